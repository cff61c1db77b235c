#include "optim/sharded_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/slot_tree.h"
#include "kernels/ops/elementwise.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace optim {

using kernels::DType;
using kernels::Parameter;
using kernels::Queue;
using kernels::Tensor;

namespace {

std::string StateName(absl::string_view prefix, const Parameter& parameter) {
  return absl::StrCat(prefix, "/", parameter.spec.name);
}

}  // namespace

ShardedBuffer::ShardedBuffer(const BufferLayout& layout, std::vector<const Parameter*> members,
                             const SlotPlan& slots, comm::Communicator& comm,
                             kernels::ArenaPlan* plan)
    : layout_(layout),
      members_(std::move(members)),
      slots_(slots),
      comm_(comm),
      chunk_(layout.Chunk(comm.size())),
      padded_(layout.Padded(comm.size())),
      reduce_padded_(slots.deterministic && layout.replicated()
                         ? ChunkMembers(layout.size(), comm.size()) * comm.size()
                         : padded_) {
  CHECK_EQ(members_.size(), layout_.members.size());
  CHECK(layout_.replicated() || !layout_.flat()) << layout_.label;
  for (size_t i = 0; i < members_.size(); ++i) {
    const Parameter* const member = members_[i];
    const int64_t size = layout_.MemberSize(i);
    CHECK_EQ(member->spec.size(), size) << member->spec.name;
    CHECK_EQ(member->value.dtype(), layout_.dtype) << member->spec.name;
    CHECK_EQ(member->value.size(), size) << member->spec.name;
    CHECK_EQ(member->grad.size(), slots_.leaves() * size) << member->spec.name;
    CHECK(member->room == 0 || member->room >= size) << member->spec.name;
  }
  const std::string& label = layout_.label;
  if (!gradient_in_place()) {
    gradient_id_ =
        plan->Add(absl::StrCat("grad/", label), DType::kF32, {slots_.leaves(), reduce_padded_});
  }
  if (!value_in_place()) {
    value_id_ = plan->Add(absl::StrCat("value/", label), layout_.dtype, {padded_});
  }
  if (slots_.deterministic) {
    reduced_id_ = plan->Add(absl::StrCat("reduced/", label), DType::kF32,
                            {layout_.replicated() ? reduce_padded_ : chunk_});
  }
}

bool ShardedBuffer::LiesInPlace(int64_t padded, int64_t leaves) const {
  if (members_.size() != 1) return false;
  return padded == layout_.size() || (leaves == 1 && padded <= members_[0]->room);
}

void ShardedBuffer::Bind(const kernels::Arena& arena, Tensor tree_scratch) {
  // More than the member's own elements: what is beyond is there, and zero.
  const auto whole = [](const Tensor& t, std::vector<int64_t> dims) {
    return Tensor(t.data(), t.dtype(), dims, t.device());
  };
  gradients_ = gradient_in_place() ? whole(members_[0]->grad, {slots_.leaves(), reduce_padded_})
                                   : arena.Get(gradient_id_);
  if (!layout_.flat()) {
    values_ = value_in_place() ? whole(members_[0]->value, {padded_}) : arena.Get(value_id_);
    own_value_ = values_.Slice(own_begin(), chunk_);
  }
  if (slots_.deterministic) {
    reduced_ = arena.Get(reduced_id_);
    own_gradient_ = reduced_.Slice(0, chunk_);
  } else {
    own_gradient_ = gradients_.At(0).Slice(own_begin(), chunk_);
  }
  tree_scratch_ = tree_scratch;
}

int64_t ShardedBuffer::own_size() const {
  return std::clamp<int64_t>(layout_.size() - own_begin(), 0, chunk_);
}

void ShardedBuffer::LaunchReduce(Queue& queue) {
  if (!gradient_in_place()) {
    for (int leaf = 0; leaf < slots_.leaves(); ++leaf) {
      int64_t begin = 0;
      for (size_t i = 0; i < members_.size(); ++i) {
        const int64_t size = layout_.MemberSize(i);
        kernels::Copy(members_[i]->grad.Reshape({slots_.leaves(), size}).At(leaf),
                      gradients_.At(leaf).Slice(begin, size), queue);
        begin += size;
      }
    }
  }
  if (slots_.deterministic) {
    ReduceAlongTree(queue);
  } else if (layout_.replicated()) {
    reduce_ = comm_.AllReduce(layout_.label, own_gradient_, comm::ReduceOp::kSum, queue);
  } else {
    reduce_ = comm_.ReduceScatter(layout_.label, gradients_.At(0), own_gradient_,
                                  comm::ReduceOp::kSum, queue);
  }
}

void ShardedBuffer::ReduceAlongTree(Queue& queue) {
  std::vector<Tensor> leaves;
  for (int leaf = 0; leaf < slots_.leaves(); ++leaf) leaves.push_back(gradients_.At(leaf));
  const int64_t piece = reduce_padded_ / comm_.size();
  const Tensor own = layout_.replicated() ? reduced_.Slice(comm_.rank() * piece, piece) : reduced_;
  tree_status_ = comm::DeterministicReduceScatter(comm_, layout_.label, slots_.slots, leaves, own,
                                                  tree_scratch_, queue);
  if (!tree_status_.ok() || !layout_.replicated()) return;
  tree_status_ = comm_.AllGather(layout_.label, own, reduced_, queue).Wait(queue);
}

absl::Status ShardedBuffer::WaitReduce(Queue& queue) {
  ABSL_RETURN_IF_ERROR(slots_.deterministic ? tree_status_ : reduce_.Wait(queue));
  TakeMean(queue);
  return absl::OkStatus();
}

void ShardedBuffer::TakeMean(Queue& queue) {
  kernels::Scale(own_gradient_, 1.0f / static_cast<float>(slots_.slots), queue);
}

void ShardedBuffer::LoadOwnValue(Queue& queue) {
  if (value_in_place()) return;
  // An own chunk may begin and end inside a member (Adam) or hold several (Muon).
  const int64_t size = layout_.member_size, own_end = own_begin() + own_size();
  for (size_t i = 0; i < members_.size(); ++i) {
    const int64_t offset = static_cast<int64_t>(i) * size;
    const int64_t from = std::max(own_begin(), offset), to = std::min(own_end, offset + size);
    if (from >= to) continue;
    kernels::Copy(members_[i]->value.Reshape({size}).Slice(from - offset, to - from),
                  values_.Slice(from, to - from), queue);
  }
}

void ShardedBuffer::LaunchGather(Queue& queue) {
  if (layout_.replicated()) return;
  gather_ = comm_.AllGather(layout_.label, own_value_, values_, queue);
}

absl::Status ShardedBuffer::FinishGather(Queue& queue) {
  if (!layout_.replicated()) ABSL_RETURN_IF_ERROR(gather_.Wait(queue));
  if (value_in_place()) return absl::OkStatus();
  const int64_t size = layout_.member_size;
  for (size_t i = 0; i < members_.size(); ++i) {
    kernels::Copy(values_.Slice(static_cast<int64_t>(i) * size, size),
                  members_[i]->value.Reshape({size}), queue);
  }
  return absl::OkStatus();
}

void ShardedBuffer::Drain(Queue& queue) {
  for (comm::Future* future : {&reduce_, &gather_}) {
    if (future->valid()) future->Wait(queue).IgnoreError();
  }
}

std::vector<std::string> ShardedBuffer::StateNames(const Kept& kept) const {
  std::vector<std::string> names;
  for (const Parameter* member : members_) names.push_back(StateName(kept.prefix, *member));
  return names;
}

absl::StatusOr<Tensor> ShardedBuffer::GatherShares(const Kept& kept, Tensor stage,
                                                   Queue& queue) const {
  if (layout_.replicated()) return kept.own;
  const Tensor all(stage.data(), kept.own.dtype(), {comm_.size() * kept.own.size()},
                   stage.device());
  CHECK_LE(all.bytes(), stage.bytes()) << kept.prefix << " of " << layout_.label;
  const std::string label = absl::StrCat(kept.prefix, "/", layout_.label);
  ABSL_RETURN_IF_ERROR(comm_.AllGather(label, kept.own, all, queue).Wait(queue));
  return all;
}

absl::Status ShardedBuffer::GatherState(const Kept& kept, Tensor stage, Queue& queue,
                                        std::vector<StateTensor>* out) const {
  const Tensor& own = kept.own;
  ABSL_ASSIGN_OR_RETURN(const Tensor all, GatherShares(kept, stage, queue));
  int64_t offset = 0;
  for (const Parameter* member : members_) {
    StateTensor tensor{.name = StateName(kept.prefix, *member),
                       .dtype = own.dtype(),
                       .shape = kept.shape(member->spec)};
    const int64_t size = Elements(tensor.shape);
    tensor.bytes.resize(size * kernels::SizeOf(own.dtype()));
    queue.Download(all.Slice(offset, size), tensor.bytes.data());
    queue.Synchronize();  // the bytes are about to move with the vector
    out->push_back(std::move(tensor));
    offset += size;
  }
  return absl::OkStatus();
}

absl::Status ShardedBuffer::CheckState(const Kept& kept, const OptimizerState& state) const {
  for (const Parameter* member : members_) {
    ABSL_RETURN_IF_ERROR(CheckStateTensor(state, StateName(kept.prefix, *member), kept.own.dtype(),
                                          kept.shape(member->spec)));
  }
  return absl::OkStatus();
}

void ShardedBuffer::LoadState(const Kept& kept, const OptimizerState& state, Queue& queue) const {
  const int64_t width = kernels::SizeOf(kept.own.dtype());
  const int64_t own_begin = ShareBegin(kept), own_end = own_begin + kept.own.size();
  std::vector<uint8_t> host(kept.own.bytes());  // padding stays zero
  int64_t offset = 0;
  for (const Parameter* member : members_) {
    const int64_t size = Elements(kept.shape(member->spec));
    const int64_t from = std::max(own_begin, offset), to = std::min(own_end, offset + size);
    if (from < to) {
      const StateTensor* tensor = FindState(state, StateName(kept.prefix, *member));
      CHECK(tensor != nullptr) << member->spec.name;
      std::memcpy(host.data() + (from - own_begin) * width,
                  tensor->bytes.data() + (from - offset) * width, (to - from) * width);
    }
    offset += size;
  }
  queue.Upload(host.data(), kept.own);
}

}  // namespace optim
