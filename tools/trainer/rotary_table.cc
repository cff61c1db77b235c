#include "tools/trainer/rotary_table.h"

#include "model/rotary.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {

absl::StatusOr<RotaryTable> RotaryTable::Create(int64_t positions, int64_t head_dim,
                                                kernels::Backend& backend) {
  RotaryTable table;
  kernels::ArenaPlan plan;
  table.cos_ = plan.Add("rotary cos", kernels::DType::kBF16, {positions, head_dim / 2});
  table.sin_ = plan.Add("rotary sin", kernels::DType::kBF16, {positions, head_dim / 2});
  ABSL_ASSIGN_OR_RETURN(table.arena_, kernels::Arena::Create(plan, backend));
  return table;
}

void RotaryTable::Set(const sched::Rotary& rotary, kernels::Queue& queue) {
  CHECK_EQ(static_cast<int64_t>(rotary.frequencies.size()), cos().cols());
  const model::RotaryTables tables = model::FillRotary(rotary.frequencies, cos().dim(0));
  queue.Upload(tables.cos.data(), cos());
  queue.Upload(tables.sin.data(), sin());
  attention_scale_ = static_cast<float>(rotary.attn_scale);
}

}  // namespace tools
