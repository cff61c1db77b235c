// The rotary tables of a run on its device, rebuilt when the window schedule stretches them.
#ifndef TOOLS_TRAINER_ROTARY_TABLE_H_
#define TOOLS_TRAINER_ROTARY_TABLE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/arena.h"
#include "kernels/queue.h"
#include "model/config.h"
#include "sched/rotary.h"

namespace tools {

class RotaryTable {
 public:
  // For slots of `slot_tokens`: that many positions, or, for a model with paired heads, twice.
  static absl::StatusOr<RotaryTable> Create(const model::GptConfig& config, int64_t slot_tokens,
                                            kernels::Backend& backend);

  // Fills the tables, unless they are that already.
  void Set(const sched::Rotary& rotary, kernels::Queue& queue);

  // [positions, head_dim / 2], in the config's rotary_dtype
  kernels::Tensor cos() const { return arena_.Get(cos_); }
  kernels::Tensor sin() const { return arena_.Get(sin_); }
  float attention_scale() const { return attention_scale_; }
  int64_t bytes() const { return arena_.plan().bytes(); }

 private:
  kernels::Arena arena_;
  kernels::TensorId cos_, sin_;
  float attention_scale_ = 0;
  sched::Rotary held_;  // what the tables hold
};

}  // namespace tools

#endif  // TOOLS_TRAINER_ROTARY_TABLE_H_
