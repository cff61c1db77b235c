#include "optim/adam_part.h"

#include "absl/strings/str_cat.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/optimizer.h"
#include "third_party/absl_compat/status_macros.h"

namespace optim {

using kernels::Queue;
using kernels::Tensor;

AdamPart::AdamPart(const OptimizerConfig& config, const StepLayout& layout,
                   const std::vector<kernels::Parameter>& parameters, const SlotPlan& slots,
                   comm::Communicator& comm, kernels::ArenaPlan* plan) {
  for (const BufferLayout& buffer : layout.adam) {
    const int index = buffer.members[0];
    Item item;
    item.row = RowOf(config.table[layout.row_of_spec[index]], parameters[index].spec);
    item.buffer = std::make_unique<ShardedBuffer>(
        buffer, std::vector<const kernels::Parameter*>{&parameters[index]}, slots, comm, plan);
    const int64_t chunk = item.buffer->chunk();
    item.m_id = plan->Add(absl::StrCat("adam.m/", buffer.label), item.row.moment_dtype, {chunk});
    item.v_id = plan->Add(absl::StrCat("adam.v/", buffer.label), item.row.moment_dtype, {chunk});
    items_.push_back(std::move(item));
  }
  if (items_.empty()) return;
  host_rates_.resize(2 * items_.size());
  rates_id_ =
      plan->Add("adam.rates", kernels::DType::kF32, {static_cast<int64_t>(items_.size()), 2});
}

void AdamPart::Bind(const kernels::Arena& arena, Tensor tree_scratch) {
  for (Item& item : items_) {
    item.buffer->Bind(arena, tree_scratch);
    item.m = arena.Get(item.m_id);
    item.v = arena.Get(item.v_id);
  }
  if (!items_.empty()) rates_ = arena.Get(rates_id_);
}

void AdamPart::SetRates(double lr_multiplier, int64_t step, int64_t first, Queue& queue) {
  if (items_.empty()) return;
  for (size_t i = 0; i < items_.size(); ++i) {
    const ParamRow& row = items_[i].row;
    if (!IsDue(row, step)) continue;
    // Updates up to this one: the steps that were due since the first.
    const Rates rates = AdamRates(row, lr_multiplier, (step + 1) / row.every - first / row.every);
    host_rates_[2 * i] = static_cast<float>(rates.step);
    host_rates_[2 * i + 1] = static_cast<float>(rates.decay);
  }
  queue.Upload(host_rates_.data(), rates_);
}

std::vector<bool> AdamPart::Due(int64_t step) const {
  std::vector<bool> due;
  for (const Item& item : items_) due.push_back(IsDue(item.row, step));
  return due;
}

absl::Status AdamPart::Step(const std::vector<bool>& due, Tensor guard, Queue& queue) {
  for (size_t i = 0; i < items_.size(); ++i) {
    if (due[i]) items_[i].buffer->LaunchReduce(queue);
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!due[i]) continue;
    Item& item = items_[i];
    ABSL_RETURN_IF_ERROR(item.buffer->WaitReduce(queue));
    item.buffer->LoadOwnValue(queue);
    const int64_t n = item.buffer->own_size();
    if (n > 0) {
      kernels::AdamUpdate({.p = item.buffer->own_value().Slice(0, n),
                           .g = item.buffer->own_gradient().Slice(0, n),
                           .m = item.m.Slice(0, n),
                           .v = item.v.Slice(0, n),
                           .rates = rates_.At(static_cast<int64_t>(i)),
                           .guard = guard,
                           .beta1 = static_cast<float>(item.row.beta1),
                           .beta2 = static_cast<float>(item.row.beta2),
                           .eps = static_cast<float>(item.row.eps)},
                          queue);
    }
    item.buffer->LaunchGather(queue);
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    if (due[i]) ABSL_RETURN_IF_ERROR(items_[i].buffer->FinishGather(queue));
  }
  return absl::OkStatus();
}

void AdamPart::Drain(Queue& queue) {
  for (Item& item : items_) item.buffer->Drain(queue);
}

void AdamPart::Reset(Queue& queue) {
  for (const Item& item : items_) {
    for (const ShardedBuffer::Kept& kept : KeptOf(item)) kernels::FillZero(kept.own, queue);
  }
}

absl::Status AdamPart::GatherState(Tensor stage, Queue& queue, std::vector<StateTensor>* out) {
  for (const Item& item : items_) {
    const Tensor typed(stage.data(), item.row.moment_dtype, {stage.size()}, stage.device());
    for (const ShardedBuffer::Kept& kept : KeptOf(item)) {
      ABSL_RETURN_IF_ERROR(item.buffer->GatherState(kept, typed, queue, out));
    }
  }
  return absl::OkStatus();
}

absl::Status AdamPart::CheckState(const OptimizerState& state) const {
  for (const Item& item : items_) {
    for (const ShardedBuffer::Kept& kept : KeptOf(item)) {
      ABSL_RETURN_IF_ERROR(item.buffer->CheckState(kept, state));
    }
  }
  return absl::OkStatus();
}

void AdamPart::LoadState(const OptimizerState& state, Queue& queue) {
  for (const Item& item : items_) {
    for (const ShardedBuffer::Kept& kept : KeptOf(item)) {
      item.buffer->LoadState(kept, state, queue);
    }
  }
}

}  // namespace optim
