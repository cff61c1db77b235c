// The model's weights: names, shapes, labels, and the memory they live in.
#ifndef MODEL_PARAMETERS_H_
#define MODEL_PARAMETERS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/arena.h"
#include "kernels/parameter.h"
#include "model/config.h"

namespace model {

// Every weight, in the order of the PyTorch originals' enumeration, with their names; labels in
// brackets where they are others. Gates and tables are bf16, scalars f32.
//
// kPerLayer:
//   scalars, embed.weight [embed], smear_gate.weight [smear_gate], skip_gate.weight [skip_gate],
//   value_embeds.{k}.weight [value_embed], for each layer as far as it has them
//   blocks.{i}.attn.qkvo_w [attn], blocks.{i}.attn.attn_gate.weight [attn_gate],
//   blocks.{i}.attn.ve_gate.weight [ve_gate] and the MLP's two matrices, called as config.names
//   says, and the head [lm_head].
//   Shapes of qkvo_w, of the MLP's matrices and of the head, and their dtypes, are the config's.
//
// kBanks:
//   attn_bank [attn]  [attention layers, 4 dim, dim]: Q, K, V, O of each, [out, in]
//   mlp_bank [mlp]    [MLP slots, 2, hidden, dim]: c_fc [out, in] and c_proj [in, out]; layer i is
//                     slot i; the slots are a multiple of 4, so that 8 ranks share them, and those
//                     beyond the layers have no gradient
//   with split_attention_banks, instead of attn_bank:
//   qk_bank [qk]  [attention layers * heads, 2 head_dim, dim]: of each layer Q and then K, [out,
//                 in], two neighbouring heads a matrix
//   vo_bank [vo]  [2 attention layers, dim, dim]: V and O of each, [out, in]
//   scalars, value_embeds.{k}.weight [ve{k}], smear_gate.weight, skip_gate.weight [1, features],
//   attn_gate_bank [attention layers, heads, features], ve_gate_bank [layers with a value
//   embedding, heads, features], x0_lambdas f32 [layers], lm_head.weight, embed.weight
//
// A gate that the config lacks is no parameter.
std::vector<kernels::ParameterSpec> ParameterSpecs(const GptConfig& config);

// Positions in ParameterSpecs(); -1 where the layer lacks the part.
struct LayerParameters {
  int qkvo = -1;
  int attn_gate = -1;
  int value_gate = -1;
  int c_fc = -1;
  int c_proj = -1;
};
struct ParameterLayout {
  int scalars = -1;
  int embed = -1;
  int smear_gate = -1;
  int skip_gate = -1;
  std::vector<int> value_embeds;
  std::vector<LayerParameters> layers;
  int lm_head = -1;
  // With banks only; `layers` is empty then.
  int attn_bank = -1;
  int qk_bank = -1;  // this and vo_bank in the place of attn_bank
  int vo_bank = -1;
  int mlp_bank = -1;
  int attn_gate_bank = -1;
  int ve_gate_bank = -1;
  int x0_lambdas = -1;
};
ParameterLayout LayoutOf(const GptConfig& config);

// Layers of a bank's entries, in order.
std::vector<int> AttentionLayers(const GptConfig& config);
std::vector<int> ValueEmbeddingLayers(const GptConfig& config);
int64_t MlpSlots(const GptConfig& config);

// Memory of values and of gradients, one arena each, allocated once.
class ParameterArena {
 public:
  // leaves >= 1: gradients f32 [leaves, size] for each weight, zero at first. leaves = 0: none
  // (evaluation). Each weight has room (kernels::Parameter) to be shared by `ranks` ranks, between
  // its matrices or its elements. ResourceExhausted if the device has not enough memory.
  static absl::StatusOr<std::unique_ptr<ParameterArena>> Create(const GptConfig& config,
                                                                int64_t leaves,
                                                                kernels::Backend& backend,
                                                                int ranks = 1);

  const std::vector<kernels::Parameter>& parameters() const { return parameters_; }
  // NotFound, with the number of names there are.
  absl::StatusOr<kernels::Parameter> Find(absl::string_view name) const;
  void ZeroGradients(kernels::Queue& queue) const;
  int64_t bytes() const { return values_.plan().bytes() + gradients_.plan().bytes(); }

 private:
  kernels::Arena values_;
  kernels::Arena gradients_;
  std::vector<kernels::Parameter> parameters_;
};

}  // namespace model

#endif  // MODEL_PARAMETERS_H_
