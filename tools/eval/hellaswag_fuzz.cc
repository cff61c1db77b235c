// HellaSwag's JSONL.
#include <cstddef>
#include <cstdint>

#include "third_party/absl_compat/check.h"
#include "tools/build/fuzz_file.h"
#include "tools/eval/hellaswag.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::File file(data, size);
  const auto examples = tools::ReadHellaSwag(file.path(), /*limit=*/0);
  if (!examples.ok()) return 0;
  CHECK(!examples->empty());
  for (const tools::HellaSwagExample& example : *examples) {
    CHECK(example.label >= 0 && example.label < tools::kEndings) << example.label;
    CHECK(!example.context.empty());
  }
  return 0;
}
