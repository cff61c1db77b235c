#include "optim/adam_part.h"

#include "absl/strings/str_cat.h"
#include "kernels/ops/optimizer.h"

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
    if (item.row.mantissa) {
      item.mantissa_id =
          plan->Add(absl::StrCat("adam.mantissa/", buffer.label), kernels::DType::kU16, {chunk});
    }
    items_.push_back(std::move(item));
  }
  if (items_.empty()) return;
  host_rates_.resize(3 * items_.size());
  rates_id_ =
      plan->Add("adam.rates", kernels::DType::kF32, {static_cast<int64_t>(items_.size()), 3});
}

void AdamPart::Bind(const kernels::Arena& arena, Tensor tree_scratch) {
  for (Item& item : items_) {
    item.buffer->Bind(arena, tree_scratch);
    item.m = arena.Get(item.m_id);
    item.v = arena.Get(item.v_id);
    if (item.mantissa_id.index >= 0) item.mantissa = arena.Get(item.mantissa_id);
  }
  if (!items_.empty()) rates_ = arena.Get(rates_id_);
}

void AdamPart::SetRates(double lr_multiplier, int64_t step, int64_t first, Queue& queue) {
  if (items_.empty()) return;
  for (size_t i = 0; i < items_.size(); ++i) {
    const ParamRow& row = items_[i].row;
    if (!IsDue(row, step)) continue;
    items_[i].now = RowAt(row, step);
    const Rates rates = AdamRates(items_[i].now, lr_multiplier, UpdateNumber(row, step, first));
    host_rates_[3 * i] = static_cast<float>(rates.step);
    host_rates_[3 * i + 1] = static_cast<float>(rates.decay);
    host_rates_[3 * i + 2] = static_cast<float>(rates.eps);
  }
  queue.Upload(host_rates_.data(), rates_);
}

void AdamPart::Update(int i, Tensor guard, Queue& queue) {
  const Item& item = items_[i];
  const int64_t n = item.buffer->own_size();
  if (n == 0) return;
  kernels::AdamUpdate({.p = item.buffer->own_value().Slice(0, n),
                       .g = item.buffer->own_gradient().Slice(0, n),
                       .m = item.m.Slice(0, n),
                       .v = item.v.Slice(0, n),
                       .mantissa = item.mantissa ? item.mantissa.Slice(0, n) : Tensor(),
                       .rates = rates_.At(i),
                       .guard = guard,
                       .beta1 = static_cast<float>(item.now.beta1),
                       .beta2 = static_cast<float>(item.now.beta2),
                       .cautious = item.now.cautious_decay},
                      queue);
}

}  // namespace optim
