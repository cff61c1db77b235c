// What this project's forward pass makes of some tokens, to hold an export against.
#ifndef TOOLS_EXPORT_HF_OWN_LOGITS_H_
#define TOOLS_EXPORT_HF_OWN_LOGITS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/queue.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/sample/saved_model.h"

namespace tools {

// Logits f32 [T, V] of every token, soft cap applied, with the head of validation and the windows
// of the model's step. A document begins at the first token and at each that is the model's BOS.
// InvalidArgument for no tokens or an id that the embedding has not.
absl::StatusOr<HostTensor> OwnLogits(const SavedModel& saved, const std::vector<int32_t>& tokens,
                                     kernels::Backend& backend, kernels::Queue& queue);

}  // namespace tools

#endif  // TOOLS_EXPORT_HF_OWN_LOGITS_H_
