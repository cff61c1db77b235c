// One buffer of a sharded step: stack gradients, reduce-scatter, (update the own chunk), gather,
// copy back. A rank that owns nothing takes part in the collectives with zeros. A replicated buffer
// is all-reduced, is every rank's own as a whole, and needs no gather. The weights of a flat buffer
// stay where they are.
#ifndef OPTIM_SHARDED_BUFFER_H_
#define OPTIM_SHARDED_BUFFER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "comm/communicator.h"
#include "kernels/arena.h"
#include "kernels/parameter.h"
#include "optim/optimizer_state.h"
#include "optim/step_layout.h"

namespace optim {

// How slots are spread and added.
struct SlotPlan {
  int slots = 1;               // of the global batch
  int local_slots = 1;         // of this rank
  bool deterministic = false;  // one gradient leaf per local slot, summed along the slot tree
  int leaves() const { return deterministic ? local_slots : 1; }
};

class ShardedBuffer {
 public:
  // Plans its memory in `plan`. `members` and `comm` outlive the buffer.
  ShardedBuffer(const BufferLayout& layout, std::vector<const kernels::Parameter*> members,
                const SlotPlan& slots, comm::Communicator& comm, kernels::ArenaPlan* plan);
  // Once, after the arena was made. `tree_scratch` is DeterministicScratchElements() of f32,
  // shared by all buffers; empty unless deterministic.
  void Bind(const kernels::Arena& arena, kernels::Tensor tree_scratch);

  // Stacks the members' gradients if needed and starts the reduction. The gradients' memory
  // belongs to the collective from here on, and its contents are lost.
  void LaunchReduce(kernels::Queue& queue);
  // After it own_gradient() is this rank's chunk of the gradient: (1 / slots) times the sum over
  // all slots of the slot's own gradient, whatever the number of ranks. The one place where this
  // rule is applied.
  absl::Status WaitReduce(kernels::Queue& queue);
  // Of it the rule, for a sum over all slots that came into own_gradient() another way.
  void TakeMean(kernels::Queue& queue);
  // Puts this rank's chunk of the weights where own_value() is.
  void LoadOwnValue(kernels::Queue& queue);
  // Starts the gather of all ranks' own_value().
  void LaunchGather(kernels::Queue& queue);
  // Waits and copies every member back into its parameter.
  absl::Status FinishGather(kernels::Queue& queue);
  // Waits for what is under way and forgets its outcome: after a failure.
  void Drain(kernels::Queue& queue);

  // own_value() and own_gradient() begin here, in elements of the whole buffer.
  int64_t own_begin() const { return layout_.replicated() ? 0 : comm_.rank() * chunk_; }
  kernels::Tensor own_gradient() const { return own_gradient_; }  // f32 [chunk]
  kernels::Tensor own_value() const { return own_value_; }  // weights' dtype [chunk]; flat: empty
  int64_t chunk() const { return chunk_; }
  int64_t padded() const { return padded_; }
  const BufferLayout& layout() const { return layout_; }
  const std::vector<const kernels::Parameter*>& members() const { return members_; }
  // Elements of this rank's chunk that are no padding: they lead.
  int64_t own_size() const;

  // What is kept for each member: PREFIX/NAME, of one size for all unless flat. `own`, this rank's
  // share, holds the members of its chunk in order; it has the same size on all ranks.
  struct Kept {
    std::string prefix;
    kernels::Tensor own;
    std::vector<int64_t> (*shape)(const kernels::ParameterSpec&) = StoredShape;
  };
  static std::vector<int64_t> StoredShape(const kernels::ParameterSpec& spec) { return spec.shape; }

  // PREFIX/NAME of each member.
  std::vector<std::string> StateNames(const Kept& kept) const;
  // All ranks' shares, one after the other, in `stage` or, if replicated, where they are.
  // Collective; `stage` is at least all the shares together.
  absl::StatusOr<kernels::Tensor> GatherShares(const Kept& kept, kernels::Tensor stage,
                                               kernels::Queue& queue) const;
  // All ranks' shares, cut into members and appended to *out. Collective; `stage` is at least all
  // the shares together. The host waits.
  absl::Status GatherState(const Kept& kept, kernels::Tensor stage, kernels::Queue& queue,
                           std::vector<StateTensor>* out) const;
  // FailedPrecondition: a tensor is missing, or of another dtype or shape.
  absl::Status CheckState(const Kept& kept, const OptimizerState& state) const;
  // The inverse of GatherState, without communication, of a state that CheckState accepts.
  void LoadState(const Kept& kept, const OptimizerState& state, kernels::Queue& queue) const;

 private:
  // A lone member needs no staging where its memory has room for the padding.
  bool LiesInPlace(int64_t padded, int64_t leaves) const;
  bool gradient_in_place() const { return LiesInPlace(reduce_padded_, slots_.leaves()); }
  bool value_in_place() const { return layout_.flat() || LiesInPlace(padded_, 1); }
  // Where a share of `kept` begins among all of them, in elements.
  int64_t ShareBegin(const Kept& kept) const {
    return layout_.replicated() ? 0 : comm_.rank() * kept.own.size();
  }
  void ReduceAlongTree(kernels::Queue& queue);

  const BufferLayout layout_;
  const std::vector<const kernels::Parameter*> members_;
  const SlotPlan slots_;
  comm::Communicator& comm_;
  const int64_t chunk_, padded_;
  // Of a leaf of gradients_. The slot tree needs equal pieces for all ranks, replicated or not.
  const int64_t reduce_padded_;
  kernels::TensorId gradient_id_, reduced_id_, value_id_;
  kernels::Tensor gradients_;  // f32 [leaves, reduce_padded_], perhaps the member's own memory
  kernels::Tensor reduced_;    // f32, deterministic only: the own piece; replicated: all
  kernels::Tensor values_;     // [padded], perhaps the member's own memory
  kernels::Tensor own_gradient_, own_value_, tree_scratch_;
  absl::Status tree_status_;  // of the reduction along the slot tree, which does not overlap
  comm::Future reduce_, gather_;
};

}  // namespace optim

#endif  // OPTIM_SHARDED_BUFFER_H_
