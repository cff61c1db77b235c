#include "model/pass_weights.h"

#include "third_party/absl_compat/check.h"

namespace model {
namespace {

class Viewer {
 public:
  Viewer(const std::vector<kernels::Parameter>& parameters,
         const std::vector<kernels::Tensor>& rounded, LeafRange leaves)
      : parameters_(parameters), rounded_(rounded), leaves_(leaves) {}

  Weight operator()(int index) const {
    if (index < 0) return {};
    Weight weight;
    weight.value = rounded_[index] ? rounded_[index] : parameters_[index].value;
    if (leaves_.count > 0) {
      CHECK(parameters_[index].grad) << parameters_[index].spec.name << " has no gradient";
      weight.grad = parameters_[index].grad.Slice(leaves_.begin, leaves_.count);
    }
    return weight;
  }

 private:
  const std::vector<kernels::Parameter>& parameters_;
  const std::vector<kernels::Tensor>& rounded_;
  const LeafRange leaves_;
};

}  // namespace

PassWeights ViewWeights(const GptConfig& config, const ParameterLayout& layout,
                        const std::vector<kernels::Parameter>& parameters,
                        const std::vector<kernels::Tensor>& rounded, LeafRange leaves) {
  CHECK_EQ(parameters.size(), rounded.size()) << "weights of another model?";
  const Viewer view(parameters, rounded, leaves);
  PassWeights weights;
  weights.scalars = view(layout.scalars);
  weights.embed = view(layout.embed);
  weights.smear_gate = view(layout.smear_gate);
  for (int index : layout.value_embeds) weights.value_embeds.push_back(view(index));
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const LayerParameters& at = layout.layers[i];
    LayerWeights layer;
    layer.attention.qkvo = view(at.qkvo);
    layer.attention.gate = view(at.attn_gate);
    layer.attention.scalars = weights.scalars;
    const int table = config.layers[i].value_embedding;
    if (table >= 0) layer.attention.value_table = weights.value_embeds[table];
    layer.mlp.c_fc = view(at.c_fc);
    layer.mlp.c_proj = view(at.c_proj);
    weights.layers.push_back(layer);
  }
  weights.lm_head = view(layout.lm_head);
  return weights;
}

}  // namespace model
