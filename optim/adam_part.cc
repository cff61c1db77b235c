#include "optim/adam_part.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ops/optimizer.h"

namespace optim {

using kernels::Queue;
using kernels::Tensor;

namespace {

bool IsFrozen(const ParamRow& row) { return row.lr * row.lr_mul == 0; }

}  // namespace

std::vector<int64_t> AdamPart::Item::RatesShape() const {
  if (!buffer->layout().flat()) return {3};
  return {static_cast<int64_t>(rows.size()), 6};
}

AdamPart::AdamPart(const OptimizerConfig& config, const StepLayout& layout,
                   const std::vector<kernels::Parameter>& parameters, const SlotPlan& slots,
                   comm::Communicator& comm, kernels::ArenaPlan* plan) {
  int64_t rates = 0;
  for (const BufferLayout& buffer : layout.adam) {
    Item item;
    std::vector<const kernels::Parameter*> members;
    for (int index : buffer.members) {
      item.rows.push_back(RowOf(config.table[layout.row_of_spec[index]], parameters[index].spec));
      members.push_back(&parameters[index]);
    }
    item.buffer = std::make_unique<ShardedBuffer>(buffer, std::move(members), slots, comm, plan);
    const int64_t chunk = item.buffer->chunk();
    const kernels::DType moments = item.rows[0].moment_dtype;
    item.m_id = plan->Add(absl::StrCat("adam.m/", buffer.label), moments, {chunk});
    item.v_id = plan->Add(absl::StrCat("adam.v/", buffer.label), moments, {chunk});
    if (item.rows[0].mantissa) {
      item.mantissa_id =
          plan->Add(absl::StrCat("adam.mantissa/", buffer.label), kernels::DType::kU16, {chunk});
    }
    item.first_rate = rates;
    rates += Elements(item.RatesShape());
    items_.push_back(std::move(item));
  }
  if (items_.empty()) return;
  host_rates_.resize(rates);
  rates_id_ = plan->Add("adam.rates", kernels::DType::kF32, {rates});
}

void AdamPart::Bind(const kernels::Arena& arena, Tensor tree_scratch) {
  if (items_.empty()) return;
  rates_ = arena.Get(rates_id_);
  for (Item& item : items_) {
    item.buffer->Bind(arena, tree_scratch);
    item.m = arena.Get(item.m_id);
    item.v = arena.Get(item.v_id);
    if (item.mantissa_id.index >= 0) item.mantissa = arena.Get(item.mantissa_id);
    const std::vector<int64_t> shape = item.RatesShape();
    item.rates = rates_.Slice(item.first_rate, Elements(shape)).Reshape(shape);
  }
}

void AdamPart::SetRates(double lr_multiplier, int64_t step, int64_t first, Queue& queue) {
  if (items_.empty()) return;
  for (Item& item : items_) {
    auto out = host_rates_.begin() + item.first_rate;
    for (const ParamRow& row : item.rows) {
      if (!IsDue(row, step)) break;  // all or none are
      const ParamRow now = RowAt(row, step);
      const Rates rates = AdamRates(now, lr_multiplier, UpdateNumber(row, step, first));
      *out++ = static_cast<float>(rates.step);
      *out++ = static_cast<float>(rates.decay);
      *out++ = static_cast<float>(rates.eps);
      item.beta1 = static_cast<float>(now.beta1);
      item.beta2 = static_cast<float>(now.beta2);
      if (!item.buffer->layout().flat()) break;
      *out++ = item.beta1;
      *out++ = item.beta2;
      *out++ = IsFrozen(row) ? 0.0f : 1.0f;
    }
  }
  queue.Upload(host_rates_.data(), rates_);
}

void AdamPart::Update(int i, Tensor guard, Queue& queue) {
  const Item& item = items_[i];
  const ParamRow& row = item.rows[0];
  if (item.buffer->layout().flat()) {
    kernels::AdamFlatArgs args{.p = {},
                               .g = item.buffer->own_gradient(),
                               .m = item.m,
                               .v = item.v,
                               .rates = item.rates,
                               .guard = guard,
                               .cautious = row.cautious_decay};
    for (const kernels::Parameter* member : item.buffer->members()) {
      args.p.push_back(member->value.Reshape({member->spec.size()}));
    }
    kernels::AdamFlat(args, queue);
    return;
  }
  const int64_t n = item.buffer->own_size();
  if (n == 0 || IsFrozen(row)) return;
  kernels::AdamUpdate({.p = item.buffer->own_value().Slice(0, n),
                       .g = item.buffer->own_gradient().Slice(0, n),
                       .m = item.m.Slice(0, n),
                       .v = item.v.Slice(0, n),
                       .mantissa = item.mantissa ? item.mantissa.Slice(0, n) : Tensor(),
                       .rates = item.rates,
                       .guard = guard,
                       .beta1 = item.beta1,
                       .beta2 = item.beta2,
                       .cautious = row.cautious_decay},
                      queue);
}

}  // namespace optim
