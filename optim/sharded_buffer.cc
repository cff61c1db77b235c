#include "optim/sharded_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

std::string Describe(DType dtype, const std::vector<int64_t>& shape) {
  return absl::StrCat(kernels::Name(dtype), " [", absl::StrJoin(shape, ", "), "]");
}

std::string StateName(absl::string_view prefix, const Parameter& parameter) {
  return absl::StrCat(prefix, "/", parameter.spec.name);
}

const StateTensor* FindState(const OptimizerState& state, const std::string& name) {
  const auto found = std::find_if(state.tensors.begin(), state.tensors.end(),
                                  [&](const StateTensor& t) { return t.name == name; });
  return found == state.tensors.end() ? nullptr : &*found;
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
      padded_(layout.Padded(comm.size())) {
  CHECK_EQ(members_.size(), layout_.members.size());
  for (const Parameter* member : members_) {
    CHECK_EQ(member->spec.size(), layout_.member_size) << member->spec.name;
    CHECK_EQ(member->value.dtype(), layout_.dtype) << member->spec.name;
    CHECK_EQ(member->value.size(), layout_.member_size) << member->spec.name;
    CHECK_EQ(member->grad.size(), slots_.leaves() * layout_.member_size) << member->spec.name;
  }
  const std::string& label = layout_.label;
  if (!in_place()) {
    gradient_id_ = plan->Add(absl::StrCat("grad/", label), DType::kF32, {slots_.leaves(), padded_});
    value_id_ = plan->Add(absl::StrCat("value/", label), layout_.dtype, {padded_});
  }
  if (slots_.deterministic) {
    reduced_id_ = plan->Add(absl::StrCat("reduced/", label), DType::kF32, {chunk_});
  }
}

void ShardedBuffer::Bind(const kernels::Arena& arena, Tensor tree_scratch) {
  if (in_place()) {
    gradients_ = members_[0]->grad.Reshape({slots_.leaves(), padded_});
    values_ = members_[0]->value.Reshape({padded_});
  } else {
    gradients_ = arena.Get(gradient_id_);
    values_ = arena.Get(value_id_);
  }
  const int64_t own_begin = comm_.rank() * chunk_;
  own_value_ = values_.Slice(own_begin, chunk_);
  own_gradient_ =
      slots_.deterministic ? arena.Get(reduced_id_) : gradients_.At(0).Slice(own_begin, chunk_);
  tree_scratch_ = tree_scratch;
}

int64_t ShardedBuffer::own_size() const {
  return std::clamp<int64_t>(layout_.size() - comm_.rank() * chunk_, 0, chunk_);
}

void ShardedBuffer::LaunchReduce(Queue& queue) {
  if (!in_place()) {
    const int64_t size = layout_.member_size;
    for (int leaf = 0; leaf < slots_.leaves(); ++leaf) {
      for (size_t i = 0; i < members_.size(); ++i) {
        kernels::Copy(members_[i]->grad.Reshape({slots_.leaves(), size}).At(leaf),
                      gradients_.At(leaf).Slice(static_cast<int64_t>(i) * size, size), queue);
      }
    }
  }
  if (!slots_.deterministic) {
    reduce_ = comm_.ReduceScatter(layout_.label, gradients_.At(0), own_gradient_,
                                  comm::ReduceOp::kSum, queue);
    return;
  }
  std::vector<Tensor> leaves;
  for (int leaf = 0; leaf < slots_.leaves(); ++leaf) leaves.push_back(gradients_.At(leaf));
  tree_status_ = comm::DeterministicReduceScatter(comm_, layout_.label, slots_.slots, leaves,
                                                  own_gradient_, tree_scratch_, queue);
}

absl::Status ShardedBuffer::WaitReduce(Queue& queue) {
  ABSL_RETURN_IF_ERROR(slots_.deterministic ? tree_status_ : reduce_.Wait(queue));
  kernels::Scale(own_gradient_, 1.0f / static_cast<float>(slots_.slots), queue);
  return absl::OkStatus();
}

void ShardedBuffer::LoadOwnValue(Queue& queue) {
  if (in_place()) return;
  // An own chunk may begin and end inside a member (Adam) or hold several (Muon).
  const int64_t size = layout_.member_size, own_begin = comm_.rank() * chunk_;
  const int64_t own_end = own_begin + own_size();
  for (size_t i = 0; i < members_.size(); ++i) {
    const int64_t offset = static_cast<int64_t>(i) * size;
    const int64_t from = std::max(own_begin, offset), to = std::min(own_end, offset + size);
    if (from >= to) continue;
    kernels::Copy(members_[i]->value.Reshape({size}).Slice(from - offset, to - from),
                  values_.Slice(from, to - from), queue);
  }
}

void ShardedBuffer::LaunchGather(Queue& queue) {
  gather_ = comm_.AllGather(layout_.label, own_value_, values_, queue);
}

absl::Status ShardedBuffer::FinishGather(Queue& queue) {
  ABSL_RETURN_IF_ERROR(gather_.Wait(queue));
  if (in_place()) return absl::OkStatus();
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

absl::Status ShardedBuffer::GatherState(absl::string_view prefix, Tensor own, Tensor stage,
                                        Queue& queue, std::vector<StateTensor>* out) const {
  CHECK_EQ(own.size(), chunk_);
  const Tensor all = stage.Reshape({-1}).Slice(0, padded_);
  const std::string label = absl::StrCat(prefix, "/", layout_.label);
  ABSL_RETURN_IF_ERROR(comm_.AllGather(label, own, all, queue).Wait(queue));
  const int64_t size = layout_.member_size;
  for (size_t i = 0; i < members_.size(); ++i) {
    StateTensor tensor{.name = StateName(prefix, *members_[i]),
                       .dtype = own.dtype(),
                       .shape = members_[i]->spec.shape,
                       .bytes = std::vector<uint8_t>(size * kernels::SizeOf(own.dtype()))};
    queue.Download(all.Slice(static_cast<int64_t>(i) * size, size), tensor.bytes.data());
    queue.Synchronize();  // the bytes are about to move with the vector
    out->push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status ShardedBuffer::CheckState(absl::string_view prefix, const OptimizerState& state,
                                       DType dtype) const {
  const int64_t bytes = layout_.member_size * kernels::SizeOf(dtype);
  for (const Parameter* member : members_) {
    const std::string name = StateName(prefix, *member);
    const std::string want = Describe(dtype, member->spec.shape);
    const StateTensor* found = FindState(state, name);
    if (found == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("optimizer state ", name, ": this run needs ", want,
                       ", the checkpoint has none; was it written by another recipe?"));
    }
    if (found->dtype == dtype && found->shape == member->spec.shape &&
        static_cast<int64_t>(found->bytes.size()) == bytes) {
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("optimizer state ", name, ": this run needs ", want, " (", bytes,
                     " bytes), the checkpoint has ", Describe(found->dtype, found->shape), " (",
                     found->bytes.size(), " bytes); it is not converted"));
  }
  return absl::OkStatus();
}

void ShardedBuffer::LoadState(absl::string_view prefix, const OptimizerState& state, Tensor own,
                              Queue& queue) const {
  CHECK_EQ(own.size(), chunk_);
  const int64_t width = kernels::SizeOf(own.dtype()), size = layout_.member_size;
  const int64_t own_begin = comm_.rank() * chunk_;
  std::vector<uint8_t> host(own.bytes());  // padding stays zero
  for (size_t i = 0; i < members_.size(); ++i) {
    const int64_t offset = static_cast<int64_t>(i) * size;
    const int64_t from = std::max(own_begin, offset);
    const int64_t to = std::min(own_begin + chunk_, offset + size);
    if (from >= to) continue;
    const StateTensor* tensor = FindState(state, StateName(prefix, *members_[i]));
    CHECK(tensor != nullptr) << members_[i]->spec.name;
    std::memcpy(host.data() + (from - own_begin) * width,
                tensor->bytes.data() + (from - offset) * width, (to - from) * width);
  }
  queue.Upload(host.data(), own);
}

}  // namespace optim
