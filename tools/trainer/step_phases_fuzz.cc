// Trace files, as --phases reads them.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "third_party/absl_compat/check.h"
#include "tools/build/fuzz_file.h"
#include "tools/trainer/step_phases.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::File file(data, size);
  const absl::StatusOr<tools::StepPhases> phases = tools::ReadStepPhases(file.path());
  if (!phases.ok()) return 0;
  CHECK(std::isfinite(phases->backward_ms_per_token));
  for (const tools::BufferPhases& buffer : phases->buffers) {
    CHECK(std::isfinite(buffer.pack_ms + buffer.update_ms + buffer.unpack_ms)) << buffer.label;
  }
  return 0;
}
