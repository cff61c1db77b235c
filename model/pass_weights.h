// The model's weights by their roles in a pass, instead of by their order.
#ifndef MODEL_PASS_WEIGHTS_H_
#define MODEL_PASS_WEIGHTS_H_

#include <vector>

#include "kernels/parameter.h"
#include "model/attention_block.h"
#include "model/config.h"
#include "model/mlp_block.h"
#include "model/parameters.h"
#include "model/pass.h"

namespace model {

struct LayerWeights {
  AttentionWeights attention;
  MlpWeights mlp;
};

struct PassWeights {
  Weight scalars;     // f32 [n]
  Weight embed;       // bf16 [V, D]
  Weight smear_gate;  // bf16 [1, gate_features]
  std::vector<Weight> value_embeds;
  std::vector<LayerWeights> layers;
  Weight lm_head;  // bf16 [V, D]
};

// Which leaves of the gradients a pass adds to. count = 0: none, forward only.
struct LeafRange {
  int64_t begin = 0;
  int64_t count = 0;
};

// `rounded` holds the bf16 copies of the hidden matrices at their parameters' positions, QKVO as
// [4 D, D], and empty tensors elsewhere.
PassWeights ViewWeights(const GptConfig& config, const ParameterLayout& layout,
                        const std::vector<kernels::Parameter>& parameters,
                        const std::vector<kernels::Tensor>& rounded, LeafRange leaves);

}  // namespace model

#endif  // MODEL_PASS_WEIGHTS_H_
