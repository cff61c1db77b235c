// MLP half of a layer: out = residual + max(u c_fc, 0)^2 c_proj^T.
#ifndef MODEL_MLP_BLOCK_H_
#define MODEL_MLP_BLOCK_H_

#include "kernels/ops/matmul.h"
#include "kernels/queue.h"
#include "model/config.h"
#include "model/pass.h"

namespace model {

// bf16. With HiddenDim::kColumns c_fc is [D, hidden], that is [in, out], and c_proj [D, hidden],
// that is [out, in]; with kRows either is [hidden, D].
struct MlpWeights {
  Weight c_fc;
  Weight c_proj;
  kernels::HiddenDim fc_hidden = kernels::HiddenDim::kColumns;
  kernels::HiddenDim proj_hidden = kernels::HiddenDim::kColumns;
};

// Where the two matrices of a layout have the hidden dim.
kernels::HiddenDim FirstHidden(MlpLayout layout);
kernels::HiddenDim SecondHidden(MlpLayout layout);

// What forward leaves for backward: a = u c_fc and b = max(a, 0)^2, bf16 [slots, T, hidden].
struct MlpActivations {
  kernels::Tensor a, b;
  void Plan(const GptConfig& config, const PassShape& shape, PassMemory& memory);
};

// Squared ReLU: So et al., Primer, 2021.  u, residual, out  bf16 [slots, T, D].
void MlpForward(const MlpWeights& weights, kernels::Tensor u, kernels::Tensor residual,
                MlpActivations& saved, kernels::Tensor out, kernels::Queue& queue);

// From dout: adds to the weights' gradients and writes du, bf16 [slots, T, D].
//   da  bf16 [slots, T, hidden], scratch
void MlpBackward(const MlpWeights& weights, kernels::Tensor u, const MlpActivations& saved,
                 kernels::Tensor dout, kernels::Tensor da, kernels::Tensor du,
                 kernels::Queue& queue);

}  // namespace model

#endif  // MODEL_MLP_BLOCK_H_
