// Logs of runs, ours and the PyTorch original's, and metrics files.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "third_party/absl_compat/check.h"
#include "tools/verify_record/run_result.h"
#include "tools/verify_record/run_set.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<tools::RunResult> result = tools::ParseRunLog("log", text);
  if (result.ok()) {
    CHECK(result->val_loss > 0 && std::isfinite(result->val_loss)) << result->val_loss;
    CHECK(result->train_ms > 0 && std::isfinite(result->train_ms)) << result->train_ms;
  }
  const absl::StatusOr<std::vector<double>> list = tools::ParseList("losses", text);
  if (list.ok()) {
    for (const double value : *list) CHECK(std::isfinite(value));
  }
  return 0;
}
