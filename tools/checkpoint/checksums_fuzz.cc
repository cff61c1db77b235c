// checksums.json: what is read says the same when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "third_party/absl_compat/check.h"
#include "tools/checkpoint/checksums.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<tools::Checksums> read = tools::ParseChecksums("fuzz", text);
  if (!read.ok()) return 0;
  const absl::StatusOr<tools::Checksums> again =
      tools::ParseChecksums("fuzz", tools::FormatChecksums(*read));
  CHECK(again.ok());
  CHECK(*again == *read);
  return 0;
}
