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
  table.cos_ = plan.Add("rotary cos", kernels::DType::kBF16, {positions, head_dim / 2});
  table.sin_ = plan.Add("rotary sin", kernels::DType::kBF16, {positions, head_dim / 2});
  ABSL_ASSIGN_OR_RETURN(table.arena_, kernels::Arena::Create(plan, backend));
  return table;
}

void RotaryTable::Set(const sched::Rotary& rotary, kernels::Queue& queue) {
  std::vector<kernels::BF16> cos_host(cos().size()), sin_host(sin().size());
  model::FillRotary(rotary.frequencies, cos_host, sin_host);
  queue.Upload(cos_host.data(), cos());
  queue.Upload(sin_host.data(), sin());
  attention_scale_ = static_cast<float>(rotary.attn_scale);
}

}  // namespace tools
