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
  // With split banks: where the two halves of attention.qkvo.grad, which then is scratch of one
  // layer in one pass, are to be added.  f32 [2 D D] each
  kernels::Tensor qk_grad, vo_grad;
};

struct PassWeights {
  Weight scalars;     // f32 [n]; with banks `scalars` and then x0_lambdas
  Weight embed;       // bf16 [V, D]
  Weight smear_gate;  // bf16 [1, gate_features], or empty
  std::vector<Weight> value_embeds;
  std::vector<LayerWeights> layers;
  Weight lm_head;    // bf16, in the config's head_layout
  Weight skip_gate;  // bf16 [1, gate_features], or empty
};

// Which leaves of the gradients a pass adds to. count = 0: none, forward only.
struct LeafRange {
  int64_t begin = 0;
  int64_t count = 0;
};

// What a pass of a model with banks reads and writes in the place of parameters.
struct BankTensors {
  Weight scalars;                       // f32 [n], grad f32 [1, n]: see PassWeights
  std::vector<kernels::Tensor> scaled;  // by attention layer's place in the bank: bf16 [4 D, D]
  kernels::Tensor dqkvo;                // f32 [1, 4 D D], with split banks and backward
};

// Of a model with banks. One leaf at most: an entry of a bank is dense in one leaf only.
PassWeights ViewBanks(const GptConfig& config, const ParameterLayout& layout,
                      const std::vector<kernels::Parameter>& parameters, const BankTensors& own,
                      LeafRange leaves);

// `rounded` holds the bf16 copies of f32 matrices at their parameters' positions, QKVO as [4 D, D],
// and empty tensors elsewhere.
PassWeights ViewWeights(const GptConfig& config, const ParameterLayout& layout,
                        const std::vector<kernels::Parameter>& parameters,
                        const std::vector<kernels::Tensor>& rounded, LeafRange leaves);

}  // namespace model

#endif  // MODEL_PASS_WEIGHTS_H_
