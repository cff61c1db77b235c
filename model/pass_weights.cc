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
  weights.skip_gate = view(layout.skip_gate);
  for (int index : layout.value_embeds) weights.value_embeds.push_back(view(index));
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const LayerParameters& at = layout.layers[i];
    LayerWeights layer;
    layer.attention.qkvo = view(at.qkvo);
    layer.attention.gate = view(at.attn_gate);
    layer.attention.value_gate = view(at.value_gate);
    layer.attention.scalars = weights.scalars;
    const int table = config.layers[i].value_embedding;
    if (table >= 0) layer.attention.value_table = weights.value_embeds[table];
    layer.mlp.c_fc = view(at.c_fc);
    layer.mlp.c_proj = view(at.c_proj);
    layer.mlp.fc_hidden = FirstHidden(config.mlp_layout);
    layer.mlp.proj_hidden = SecondHidden(config.mlp_layout);
    if (layer.attention.qkvo.value) {
      layer.attention.qkvo.value = layer.attention.qkvo.value.Reshape({-1, config.dim});
    }
    weights.layers.push_back(layer);
  }
  weights.lm_head = view(layout.lm_head);
  return weights;
}

namespace {

// A parameter, or an entry of a bank, with one leaf of its gradient.
class BankViewer {
 public:
  using Tensor = kernels::Tensor;

  BankViewer(const std::vector<kernels::Parameter>& parameters, LeafRange leaves)
      : parameters_(parameters), leaves_(leaves) {
    CHECK_LE(leaves.count, 1) << "a pass of several leaves";
  }

  Weight Whole(int index) const {
    if (index < 0) return {};
    return View(index, parameters_[index].value, 0, parameters_[index].spec.size());
  }
  Weight Entry(int bank, int64_t entry) const {
    if (bank < 0) return {};
    const Tensor value = parameters_[bank].value.At(entry);
    return View(bank, value, entry * value.size(), value.size());
  }
  // c_fc and c_proj are two entries of one.
  Weight Half(int bank, int64_t entry, int half) const {
    const Tensor value = parameters_[bank].value.At(entry).At(half);
    return View(bank, value, (2 * entry + half) * value.size(), value.size());
  }
  // Elements [begin, begin + size) of the leaf; empty without leaves.
  Tensor GradientOf(int index, int64_t begin, int64_t size) const {
    if (leaves_.count == 0) return {};
    CHECK(parameters_[index].grad) << parameters_[index].spec.name << " has no gradient";
    return parameters_[index].grad.At(leaves_.begin).Slice(begin, size);
  }

 private:
  Weight View(int index, const Tensor& value, int64_t begin, int64_t size) const {
    Weight weight;
    weight.value = value;
    if (leaves_.count > 0) weight.grad = GradientOf(index, begin, size).Reshape({1, size});
    return weight;
  }

  const std::vector<kernels::Parameter>& parameters_;
  const LeafRange leaves_;
};

}  // namespace

PassWeights ViewBanks(const GptConfig& config, const ParameterLayout& layout,
                      const std::vector<kernels::Parameter>& parameters, const BankTensors& own,
                      LeafRange leaves) {
  const BankViewer view(parameters, leaves);
  PassWeights weights;
  weights.scalars = own.scalars;
  weights.embed = view.Whole(layout.embed);
  weights.smear_gate = view.Whole(layout.smear_gate);
  weights.skip_gate = view.Whole(layout.skip_gate);
  weights.lm_head = view.Whole(layout.lm_head);
  for (int index : layout.value_embeds) weights.value_embeds.push_back(view.Whole(index));
  int64_t attention = 0, gated = 0;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& has = config.layers[i];
    LayerWeights layer;
    layer.attention.scalars = weights.scalars;
    if (has.attention) {
      if (config.split_attention_banks) {
        const int64_t half = 2 * config.dim * config.dim;
        layer.attention.qkvo.grad = own.dqkvo;
        layer.qk_grad = view.GradientOf(layout.qk_bank, attention * half, half);
        layer.vo_grad = view.GradientOf(layout.vo_bank, attention * half, half);
      } else {
        layer.attention.qkvo = view.Entry(layout.attn_bank, attention);
      }
      layer.attention.qkvo.value = own.scaled[attention];
      layer.attention.gate = view.Entry(layout.attn_gate_bank, attention);
      ++attention;
    }
    if (has.value_embedding >= 0) {
      layer.attention.value_table = weights.value_embeds[has.value_embedding];
      layer.attention.value_gate = view.Entry(layout.ve_gate_bank, gated);
      ++gated;
    }
    if (has.mlp) {
      layer.mlp.c_fc = view.Half(layout.mlp_bank, static_cast<int64_t>(i), 0);
      layer.mlp.c_proj = view.Half(layout.mlp_bank, static_cast<int64_t>(i), 1);
      layer.mlp.fc_hidden = FirstHidden(config.mlp_layout);
      layer.mlp.proj_hidden = SecondHidden(config.mlp_layout);
    }
    weights.layers.push_back(layer);
  }
  return weights;
}

}  // namespace model
