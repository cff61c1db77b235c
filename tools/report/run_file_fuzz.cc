// Logs, metrics and traces of runs, whole or cut: whatever is read becomes a page.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "third_party/absl_compat/check.h"
#include "tools/report/page.h"
#include "tools/report/trace_file.h"
#include "tools/run_logs/run_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  tools::Inputs inputs;
  for (const auto parse : {tools::ParsePrintedLog, tools::ParseMetrics}) {
    absl::StatusOr<std::vector<tools::TrainingRun>> runs = parse("run", text);
    if (runs.ok()) inputs.runs.insert(inputs.runs.end(), runs->begin(), runs->end());
  }
  absl::StatusOr<tools::TraceFile> trace = tools::ParseTrace("trace", text);
  if (trace.ok()) inputs.traces.push_back(*std::move(trace));
  (void)tools::KindOf("file", text);
  if (inputs.runs.empty() && inputs.traces.empty()) return 0;
  for (tools::TrainingRun& run : inputs.runs) tools::Complete(&run);
  CHECK(!tools::Page(inputs, {}).empty());
  return 0;
}
