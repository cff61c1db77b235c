// Adam: one buffer per parameter, or a flat one for several. Rates are those of the parameters
// whose row is due. One whose lr or lr_mul is 0 is frozen: it keeps weight and moments.
#ifndef OPTIM_ADAM_PART_H_
#define OPTIM_ADAM_PART_H_

#include <memory>
#include <vector>

#include "kernels/arena.h"
#include "optim/param_table.h"
#include "optim/sharded_buffer.h"
#include "optim/step_layout.h"
#include "optim/update_part.h"

namespace optim {

class AdamPart : public UpdatePart {
 public:
  // Plans its memory in `plan`.
  AdamPart(const OptimizerConfig& config, const StepLayout& layout,
           const std::vector<kernels::Parameter>& parameters, const SlotPlan& slots,
           comm::Communicator& comm, kernels::ArenaPlan* plan);
  void Bind(const kernels::Arena& arena, kernels::Tensor tree_scratch);

  // Uploads the rates of step `step` of a run whose first step was `first`, all in one go.
  void SetRates(double lr_multiplier, int64_t step, int64_t first, kernels::Queue& queue);

  int buffers() const override { return static_cast<int>(items_.size()); }
  ShardedBuffer& buffer(int i) override { return *items_[i].buffer; }
  void Update(int i, kernels::Tensor guard, kernels::Queue& queue) override;
  std::vector<ShardedBuffer::Kept> KeptOf(int i) const override {
    const Item& item = items_[i];
    std::vector<ShardedBuffer::Kept> kept = {{.prefix = "adam.m", .own = item.m},
                                             {.prefix = "adam.v", .own = item.v}};
    if (item.mantissa) kept.push_back({.prefix = "adam.mantissa", .own = item.mantissa});
    return kept;
  }

 private:
  struct Item {
    std::vector<ParamRow> rows;  // of the members
    std::unique_ptr<ShardedBuffer> buffer;
    kernels::TensorId m_id, v_id, mantissa_id;
    kernels::Tensor m, v;      // moment_dtype [chunk]
    kernels::Tensor mantissa;  // u16 [chunk], or empty
    // Unless flat, of the step of the latest SetRates.
    float beta1 = 0, beta2 = 0;
    int64_t first_rate = 0;  // place in rates_
    kernels::Tensor rates;   // AdamArgs::rates, or AdamFlatArgs::rates
    std::vector<int64_t> RatesShape() const;
  };

  std::vector<Item> items_;
  kernels::TensorId rates_id_;
  kernels::Tensor rates_;  // f32, of all items
  std::vector<float> host_rates_;
};

}  // namespace optim

#endif  // OPTIM_ADAM_PART_H_
