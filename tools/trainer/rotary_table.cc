#include "tools/trainer/rotary_table.h"

#include <vector>

#include "model/rotary.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {

absl::StatusOr<RotaryTable> RotaryTable::Create(const model::GptConfig& config, int64_t slot_tokens,
                                                kernels::Backend& backend) {
  const int64_t positions = (model::HasPairedHeads(config) ? 2 : 1) * slot_tokens;
  const int64_t head_dim = config.head_dim;
  RotaryTable table;
  kernels::ArenaPlan plan;
  table.cos_ = plan.Add("rotary cos", config.rotary_dtype, {positions, head_dim / 2});
  table.sin_ = plan.Add("rotary sin", config.rotary_dtype, {positions, head_dim / 2});
  ABSL_ASSIGN_OR_RETURN(table.arena_, kernels::Arena::Create(plan, backend));
  return table;
}

void RotaryTable::Set(const sched::Rotary& rotary, kernels::Queue& queue) {
  if (rotary == held_) return;  // filling a validation's table takes seconds
  held_ = rotary;
  const auto fill = [&](auto zero) {
    std::vector<decltype(zero)> cos_host(cos().size()), sin_host(sin().size());
    model::FillRotary(rotary.frequencies, cos_host, sin_host);
    queue.Upload(cos_host.data(), cos());
    queue.Upload(sin_host.data(), sin());
  };
  cos().dtype() == kernels::DType::kF32 ? fill(0.0f) : fill(kernels::BF16{});
  attention_scale_ = static_cast<float>(rotary.attn_scale);
}

}  // namespace tools
