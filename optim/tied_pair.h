// Two parameters that are each other's transpose for the first part of a run, as an LM head
// [D, V] and an embedding [V, D]. While tied only the target is updated, by the gradients of both,
// and the source gets its new weights; from then on each has moments of its own, which begin as the
// target's.
#ifndef OPTIM_TIED_PAIR_H_
#define OPTIM_TIED_PAIR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/arena.h"
#include "kernels/parameter.h"
#include "kernels/queue.h"
#include "optim/sharded_buffer.h"
#include "optim/step_layout.h"
#include "optim/update_part.h"

namespace optim {

class TiedPair {
 public:
  // Plans its memory in `plan`. `adam`, whose buffers the pair's numbers go by, outlives the pair.
  TiedPair(const TiedBuffers& tied, UpdatePart& adam, int leaves, kernels::DType moment_dtype,
           kernels::ArenaPlan* plan);
  void Bind(const kernels::Arena& arena) { transposed_ = arena.Get(transposed_id_); }

  // target.grad += source.grad^T, leaf by leaf.
  void AddGradient(kernels::Queue& queue) const;
  // source.value = target.value^T.
  void CopyWeight(kernels::Queue& queue) const;
  // Collective. The source's moments become the target's, transposed and cut as the source's are.
  // `stage`: f32, at least the target's padded buffer.
  absl::Status CopyMoments(kernels::Tensor stage, kernels::Queue& queue) const;

  // Whether the state has no moments of the source: that of a run that is tied.
  bool IsTied(const OptimizerState& state) const;

 private:
  ShardedBuffer& source_buffer() const { return adam_.buffer(tied_.source); }
  ShardedBuffer& target_buffer() const { return adam_.buffer(tied_.target); }
  const kernels::Parameter& source_parameter() const { return *source_buffer().members()[0]; }
  const kernels::Parameter& target_parameter() const { return *target_buffer().members()[0]; }

  const TiedBuffers tied_;
  UpdatePart& adam_;
  const int leaves_;
  kernels::TensorId transposed_id_;
  kernels::Tensor transposed_;  // moments' dtype, of the source's shape
};

}  // namespace optim

#endif  // OPTIM_TIED_PAIR_H_
