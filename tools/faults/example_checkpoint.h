// A small checkpoint whose every byte follows from its step, so that one on the disk can be
// compared with what was saved.
#ifndef TOOLS_FAULTS_EXAMPLE_CHECKPOINT_H_
#define TOOLS_FAULTS_EXAMPLE_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "tools/checkpoint/checkpoint.h"

namespace tools {

inline Checkpoint ExampleCheckpoint(int64_t step) {
  const auto bytes = [step](size_t count, int kind) {
    std::string out(count, '\0');
    for (size_t i = 0; i < count; ++i) out[i] = static_cast<char>(i * 31 + step * 7 + kind);
    return out;
  };
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.model.tensors["head"] = {kernels::DType::kBF16, {8, 16}, bytes(256, 1)};
  checkpoint.model.tensors["mlp"] = {kernels::DType::kF32, {100}, bytes(400, 2)};
  checkpoint.model.metadata["step"] = std::to_string(step);
  checkpoint.optimizer.tensors["mlp.moment"] = {kernels::DType::kF32, {100}, bytes(400, 3)};
  checkpoint.state_json = "{\"step\": " + std::to_string(step) + "}\n";
  return checkpoint;
}

inline bool SameCheckpoint(const Checkpoint& a, const Checkpoint& b) {
  return a.step == b.step && a.model.tensors == b.model.tensors &&
         a.model.metadata == b.model.metadata && a.optimizer.tensors == b.optimizer.tensors &&
         a.state_json == b.state_json;
}

}  // namespace tools

#endif  // TOOLS_FAULTS_EXAMPLE_CHECKPOINT_H_
