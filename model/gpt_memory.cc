// Gpt's memory: what a pass keeps, layer by layer.
#include "absl/strings/str_cat.h"
#include "model/gpt.h"
#include "third_party/absl_compat/check.h"

namespace model {

using kernels::DType;

void Gpt::Plan(kernels::ArenaPlan& plan, const kernels::Queue& queue) {
  CHECK(planned_.empty()) << "planned twice";
  PassMemory memory(plan);
  embedding_.Plan(shape_, queue, memory);
  const std::vector<int64_t> stream = {shape_.slots, shape_.slot_tokens, config_.dim};
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    const LayerConfig& layer = config_.layers[i];
    if (!layer.executed()) continue;
    memory.Add(&outputs_[i], absl::StrCat("output ", i), DType::kBF16, stream);
    if (!shape_.train) continue;
    PlanLayer(static_cast<int>(i), memory);
    if (layer.skip_from >= 0) {
      memory.Add(&dskip_[layer.skip_from], absl::StrCat("dskip ", layer.skip_from), DType::kBF16,
                 stream);
    }
  }
  if (shape_.train && config_.backout_layer >= 0) {
    memory.Add(&dskip_[config_.backout_layer], "dbackout", DType::kBF16, stream);
  }
  if (!shape_.train) PlanForwardOnly(memory);
  PlanScratch(memory);
  head_.Plan(shape_, queue, memory);
  if (weights_of_ == this) PlanWeights(memory);
  planned_ = std::move(memory).planned();
}

void Gpt::PlanWeights(PassMemory& memory) {
  const std::vector<kernels::ParameterSpec> specs = ParameterSpecs(config_);
  if (has_banks()) {
    const int64_t lambdas = specs[layout_.scalars].size() + specs[layout_.x0_lambdas].size();
    memory.Add(&banks_.scalars.value, "lambdas", DType::kF32, {lambdas});
    if (shape_.train) memory.Add(&banks_.scalars.grad, "dlambdas", DType::kF32, {1, lambdas});
    if (shape_.train && config_.split_attention_banks) {
      memory.Add(&banks_.dqkvo, "dqkvo", DType::kF32, {1, 4 * config_.dim * config_.dim});
    }
    banks_.scaled.resize(AttentionLayers(config_).size());
    for (kernels::Tensor& scaled : banks_.scaled) {
      memory.Add(&scaled, "scaled qkvo", DType::kBF16, {4 * config_.dim, config_.dim});
    }
    return;
  }
  rounded_.resize(specs.size());
  const auto round = [&](int index) {
    if (index < 0 || specs[index].dtype == DType::kBF16) return;
    const kernels::ParameterSpec& spec = specs[index];
    memory.Add(&rounded_[index], spec.name + " bf16", DType::kBF16,
               {spec.matrices * spec.rows, spec.cols});
  };
  for (const LayerParameters& layer : layout_.layers) {
    for (int index : {layer.qkvo, layer.c_fc, layer.c_proj}) round(index);
  }
  round(layout_.lm_head);
}

// One layer's memory serves all: as much as any of them needs.
void Gpt::PlanForwardOnly(PassMemory& memory) {
  const std::vector<int64_t> stream = {shape_.slots, shape_.slot_tokens, config_.dim};
  const std::vector<int64_t> rows = {shape_.slots, shape_.slot_tokens};
  LayerMemory& m = layers_[0];
  memory.Add(&m.u, "u", DType::kBF16, stream);
  memory.Add(&m.inv_rms, "inv_rms", DType::kF32, rows);
  m.attention.Plan(config_, shape_, memory);
  m.mlp.Plan(config_, shape_, memory);
  memory.Add(&m.mlp_x, "mlp x", DType::kBF16, stream);
  memory.Add(&m.mlp_u, "mlp u", DType::kBF16, stream);
  memory.Add(&m.mlp_inv_rms, "mlp inv_rms", DType::kF32, rows);
  if (HasGatedSkips()) memory.Add(&m.skipped, "skipped", DType::kBF16, stream);
}

void Gpt::PlanLayer(int layer, PassMemory& memory) {
  const bool attention = config_.layers[layer].attention, mlp = config_.layers[layer].mlp;
  const std::vector<int64_t> stream = {shape_.slots, shape_.slot_tokens, config_.dim};
  const std::vector<int64_t> rows = {shape_.slots, shape_.slot_tokens};
  LayerMemory& m = layers_[layer];
  memory.Add(&m.u, "u", DType::kBF16, stream);
  memory.Add(&m.inv_rms, "inv_rms", DType::kF32, rows);
  if (attention) m.attention.Plan(config_, shape_, memory);
  if (mlp) m.mlp.Plan(config_, shape_, memory);
  if (HasGatedSkip(layer)) memory.Add(&m.skipped, "skipped", DType::kBF16, stream);
  if (attention && mlp) {
    memory.Add(&m.mlp_x, "mlp x", DType::kBF16, stream);
    memory.Add(&m.mlp_u, "mlp u", DType::kBF16, stream);
    memory.Add(&m.mlp_inv_rms, "mlp inv_rms", DType::kF32, rows);
  }
}

void Gpt::PlanScratch(PassMemory& memory) {
  const std::vector<int64_t> stream = {shape_.slots, shape_.slot_tokens, config_.dim};
  if (config_.backout_layer >= 0) memory.Add(&scratch_.left, "left", DType::kBF16, stream);
  scratch_.attention.Plan(config_, shape_, memory);
  if (!shape_.train) return;
  memory.Add(&scratch_.dx, "dx", DType::kBF16, stream);
  memory.Add(&scratch_.du, "du", DType::kBF16, stream);
  bool gates = false;
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    gates = gates || HasAttentionGates(static_cast<int>(i));
  }
  if (gates) {
    memory.Add(&scratch_.du_head, "du_head", DType::kF32,
               {shape_.slots, shape_.slot_tokens, config_.gate_features});
  }
  memory.Add(&scratch_.da, "mlp da", DType::kBF16,
             {shape_.slots, shape_.slot_tokens, config_.mlp_dim});
}

void Gpt::Bind(const kernels::Arena& arena) {
  CHECK(!planned_.empty()) << "Bind before Plan";
  for (const auto& [tensor, id] : planned_) *tensor = arena.Get(id);
}

}  // namespace model
