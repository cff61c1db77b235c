// RMSNorm without gain (Zhang and Sennrich, 2019), alone and fused with the residual stream's
// skip connections and lambdas, and these alone. Statistics in f32; y = x * inv_rms, inv_rms =
// (mean(x^2) + eps)^(-1/2), over the last dim.
#ifndef KERNELS_OPS_NORM_H_
#define KERNELS_OPS_NORM_H_

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

// f32 machine epsilon, for bf16 inputs as well: what the PyTorch original's rms_norm adds.
constexpr float kRmsEpsilon = 1.1920929e-07f;

// y = rms(x).  x, y  bf16 [slots, T, D] (y may be x);  inv_rms  f32 [slots, T]
void RmsNorm(Tensor x, Tensor y, Tensor inv_rms, Queue& queue);

// dx = residual + inv_rms * (dy - n * mean(n * dy)), with n = x * inv_rms in f32.
//
// Without the residual dx is orthogonal to x, so sums of dx times x over many tokens are zero but
// for rounding. RmsNorm's output y, which is n rounded to bf16, would give such sums a bias, and is
// not read. PyTorch's _fused_rms_norm_backward normalises again from x in the same way.
//
struct RmsNormGradArgs {
  Tensor dy;             // bf16 [slots, T, D]
  Tensor x;              // bf16 [slots, T, D], as RmsNorm had it
  Tensor inv_rms;        // f32 [slots, T], RmsNorm's output
  Tensor residual = {};  // bf16 like dy, or empty; may be dx
  Tensor dx;             // bf16 like dy, rounded once; may be dy
};
void RmsNormGrad(const RmsNormGradArgs& args, Queue& queue);

// Which scalars a mix reads, as indices into the model's `scalars`.
struct MixScalars {
  int lambda_x = -1;   // weight of the residual stream; -1: it is 1
  int lambda_x0 = -1;  // weight of x0
  int skip = -1;       // sigmoid(scalars[skip]) weighs the saved output; -1: no skip connection
  bool subtract_x0 = false;     // x0 weighs -scalars[lambda_x0]
  bool skip_is_weight = false;  // scalars[skip] itself weighs the saved output
};

// mixed = lambda_x * (x + s * saved) + lambda_x0 * x0;  u = rms(mixed), with s = sigmoid(skip) or,
// if skip_is_weight, skip. With lambda_x = -1 and subtract_x0 that is x - lambda x0 before a norm,
// whatever x0 is. Without u and inv_rms, both empty, there is no norm.
struct MixNormArgs {
  Tensor x, x0;       // bf16 [slots, T, D]
  Tensor saved = {};  // bf16 like x; empty without a skip connection
  Tensor scalars;     // f32 [n]
  MixScalars which;
  Tensor mixed;         // bf16 like x, output, rounded once; may not be x
  Tensor u = {};        // bf16 like x, output, from the rounded mixed
  Tensor inv_rms = {};  // f32 [slots, T], output
};
void MixNorm(const MixNormArgs& args, Queue& queue);

// The backward pass of MixNorm. It mixes again: with s and mixed as there, the latter rounded to
// bf16, n = mixed * inv_rms in f32 (see RmsNormGrad) and
//   dmixed = dresidual + inv_rms * (du' - n * mean(n * du')), or without a norm dresidual alone:
//   dx            = lambda_x * dmixed + dx_extra
//   dsaved        = lambda_x * s * dmixed              (written, not added)
//   dx0          += lambda_x0 * dmixed
//   dscalars[..] += sums over slot tokens and D of dmixed with its factors.
struct MixNormGradArgs {
  Tensor dresidual;  // bf16 [slots, T, D], or empty: gradient of `mixed` by the residual path
  // bf16 [slots, T, D]. Without a norm du, du_head and inv_rms are empty, and dresidual is not.
  Tensor du;
  // f32 [slots, T, k], or empty: added to the first k features of du, making du' (the sparse
  // attention gate reads these features).
  Tensor du_head;
  Tensor inv_rms;  // f32 [slots, T], MixNorm's output
  Tensor x;        // MixNorm's inputs
  Tensor x0;
  Tensor saved;    // empty without skip connection
  Tensor scalars;  // f32 [n]
  MixScalars which;
  Tensor dx_extra;  // bf16 like x, or empty: gradient that reaches x by another way
  Tensor dx;        // bf16 like x; may be dresidual or du
  Tensor dsaved;    // bf16 like x; empty without skip connection
  Tensor dx0;       // bf16 like x, added to (one rounding a call)
  Tensor dscalars;  // f32 [leaves, n], added to; leaves = 1 or slots
};
void MixNormGrad(const MixNormGradArgs& args, Queue& queue);

OpCost RmsNormCost(const Tensor& x, const Tensor& inv_rms);
OpCost RmsNormGradCost(const RmsNormGradArgs& args);
OpCost MixNormCost(const MixNormArgs& args);
OpCost MixNormGradCost(const MixNormGradArgs& args);

class NormOps {
 public:
  virtual ~NormOps() = default;
  virtual void RmsNorm(Tensor x, Tensor y, Tensor inv_rms, Queue& queue) const = 0;
  virtual void RmsNormGrad(const RmsNormGradArgs& args, Queue& queue) const = 0;
  virtual void MixNorm(const MixNormArgs& args, Queue& queue) const = 0;
  virtual void MixNormGrad(const MixNormGradArgs& args, Queue& queue) const = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_NORM_H_
