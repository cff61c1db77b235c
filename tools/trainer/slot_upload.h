// A slot's tokens on their way to the device.
#ifndef TOOLS_TRAINER_SLOT_UPLOAD_H_
#define TOOLS_TRAINER_SLOT_UPLOAD_H_

#include "data/batcher.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "third_party/absl_compat/check.h"

namespace tools {

// tokens, targets  i32 [1, T];  boundaries  i32 [1, n]
inline void UploadSlot(const data::SlotBatch& slot, kernels::Tensor tokens, kernels::Tensor targets,
                       kernels::Tensor boundaries, kernels::Queue& queue) {
  CHECK_EQ(static_cast<int64_t>(slot.inputs.size()), tokens.size());
  CHECK_EQ(static_cast<int64_t>(slot.targets.size()), targets.size());
  CHECK_EQ(static_cast<int64_t>(slot.boundaries.size()), boundaries.size());
  queue.Upload(slot.inputs.data(), tokens);
  queue.Upload(slot.targets.data(), targets);
  queue.Upload(slot.boundaries.data(), boundaries);
}

}  // namespace tools

#endif  // TOOLS_TRAINER_SLOT_UPLOAD_H_
