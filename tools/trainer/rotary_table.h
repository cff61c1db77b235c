// The rotary tables of a run on its device, rebuilt when the window schedule stretches them.
#ifndef TOOLS_TRAINER_ROTARY_TABLE_H_
#define TOOLS_TRAINER_ROTARY_TABLE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/arena.h"
#include "kernels/queue.h"
#include "sched/rotary.h"

namespace tools {

class RotaryTable {
 public:
  // Room for positions [0, positions) and heads of head_dim features.
  static absl::StatusOr<RotaryTable> Create(int64_t positions, int64_t head_dim,
                                            kernels::Backend& backend);

  void Set(const sched::Rotary& rotary, kernels::Queue& queue);

  kernels::Tensor cos() const { return arena_.Get(cos_); }  // bf16 [positions, head_dim / 2]
  kernels::Tensor sin() const { return arena_.Get(sin_); }
  float attention_scale() const { return attention_scale_; }
  int64_t bytes() const { return arena_.plan().bytes(); }

 private:
  kernels::Arena arena_;
  kernels::TensorId cos_, sin_;
  float attention_scale_ = 0;
};

}  // namespace tools

#endif  // TOOLS_TRAINER_ROTARY_TABLE_H_
