// One pass of the model: its shape, its input, and the memory and weights that the blocks see.
#ifndef MODEL_PASS_H_
#define MODEL_PASS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/arena.h"
#include "kernels/tensor.h"

namespace model {

class KvCache;

struct PassShape {
  int64_t slots = 1;
  int64_t slot_tokens = 0;
  int64_t max_boundaries = 0;  // columns of PassInput::boundaries
  bool train = true;           // keep what backward needs
};

struct PassInput {
  kernels::Tensor tokens;      // i32 [slots, T]
  kernels::Tensor targets;     // i32 [slots, T]; empty where no loss is asked for
  kernels::Tensor boundaries;  // i32 [slots, n], see kernels::AttentionArgs
  // i32 [slots, n], twice the boundaries: of layers with paired heads; empty without any.
  kernels::Tensor paired_boundaries;
  // f32 [GptConfig::loss_weights], of a training pass; empty if that is 0.
  kernels::Tensor loss_weights;
  int64_t short_window_tokens = 0;
  int64_t long_window_tokens = 0;
  float attention_scale = 0;
  // rotary_dtype [positions, head_dim / 2]: T of them or more, 2 T with paired heads
  kernels::Tensor cos, sin;
  // Not null in a pass without backward that continues a slot, its only one: row i is the slot's
  // row begin + i, attention sees the rows of the cache, and the rows from kept_from on go there
  // first. The rows [0, kept_from) are there already; see RowsLookedBack of kv_cache.h. Boundaries
  // and rotary tables are then those of all the cache's rows.
  const KvCache* cache = nullptr;
  int64_t begin = 0;
  int64_t kept_from = 0;
};

// A weight as one pass uses it, perhaps a part of a bank. value is what the products read: for
// hidden matrices the bf16 copy. grad is f32 [leaves, size], the leaves this pass adds to: 1 or one
// per slot; empty without backward.
struct Weight {
  kernels::Tensor value;
  kernels::Tensor grad;
};

// Collects the tensors of a pass: planned first, bound to memory later. A tensor may not move in
// between.
class PassMemory {
 public:
  explicit PassMemory(kernels::ArenaPlan& plan) : plan_(plan) {}

  void Add(kernels::Tensor* tensor, std::string name, kernels::DType dtype,
           std::vector<int64_t> dims) {
    planned_.emplace_back(tensor, plan_.Add(std::move(name), dtype, std::move(dims)));
  }

  using Planned = std::vector<std::pair<kernels::Tensor*, kernels::TensorId>>;
  Planned planned() && { return std::move(planned_); }

 private:
  kernels::ArenaPlan& plan_;
  Planned planned_;
};

}  // namespace model

#endif  // MODEL_PASS_H_
