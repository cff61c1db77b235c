// Whole-bank optimizer ops: one call for all matrices, or all elements, of a chunk. Rates live in
// device memory, so that a captured graph can replay with new ones.
//
// guard, where an op takes one, is i32 [1], or empty: always on. With guard[0] == 0 the op changes
// no bit of weights and moments, whatever is in its inputs: that is how a step whose gradients
// turn out not to be finite is called off without the host waiting for the news.
#ifndef KERNELS_OPS_OPTIMIZER_H_
#define KERNELS_OPS_OPTIMIZER_H_

#include <vector>

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

// Adam (Kingma and Ba, 2014) with the bias correction in the rates:
//   m <- beta1 m + (1 - beta1) g;   v <- beta2 v + (1 - beta2) g^2
//   p <- p * decay - step_size * m / (sqrt(v) + eps)
// with step_size = lr sqrt(1 - beta2^t) / (1 - beta1^t) and decay = 1 - lr * weight_decay. A
// constant eps is outside of the bias correction (DistAdam of modded-nanogpt); with
// eps = eps' sqrt(1 - beta2^t) it is inside, as in torch.optim.AdamW:
//   p <- p * decay - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps')
//
// cautious (cautious weight decay: Chen et al., 2025), where only an update that makes the weight
// smaller brings decay with it, `decay` being lr^2 * weight_decay:
//   u = step_size * m / (sqrt(v) + eps);  where u p > 0: u <- u + p * decay;  p <- p - u
struct AdamArgs {
  Tensor p;     // f32 or bf16 [n]
  Tensor g;     // f32 [n]; rounded to p's dtype first, the dtype of the recipe's gradient
  Tensor m, v;  // bf16 or f32 [n]
  // u16 [n], or empty: the lower 16 bits of f32 weights whose upper half is p (bf16), as
  // SplitMatrixArgs::mantissa. The update is then in f32, and its result truncated into halves.
  Tensor mantissa = {};
  Tensor rates;       // f32 [3]: step_size, decay, eps
  Tensor guard = {};  // i32 [1] or empty: see the top
  float beta1 = 0;
  float beta2 = 0;
  bool cautious = false;
};
// In f32, rounding m, v and p once each; the update uses the unrounded new m and v.
// Elementwise: bits do not depend on how n is cut into chunks.
void AdamUpdate(const AdamArgs& args, Queue& queue);

// Adam of several parameters in one call, each with rates of its own. Their gradients and moments
// lie one after the other, in the order of `p`.
struct AdamFlatArgs {
  std::vector<Tensor> p;  // f32 or bf16 [n_i], all of one dtype, at least one
  Tensor g, m, v;         // [sum of n_i], otherwise as AdamArgs::g, m, v
  // f32 [parameters, 6]: step_size, decay, eps, beta1, beta2, active. A parameter with active 0
  // keeps weight and moments, whatever is in g.
  Tensor rates;
  Tensor guard = {};  // i32 [1] or empty: see the top
  bool cautious = false;
};
// Each element as AdamUpdate with the same rates: the same bits.
void AdamFlat(const AdamFlatArgs& args, Queue& queue);

// Nesterov momentum as an average: m <- m + (1 - mu)(g - m);  u = g + mu (m - g).
//
// With guard[0] == 0, u is undefined (it may hold NaN) and only fit for a MatrixUpdate or
// SplitMatrixUpdate with the same guard.
struct MomentumArgs {
  Tensor g;           // f32 [n]
  Tensor m;           // f32 or bf16 [n]
  Tensor mu;          // f32 [1]
  Tensor guard = {};  // i32 [1] or empty: see the top
  Tensor u;           // bf16 [n], output, from the unrounded new m
  // g is rounded to this, the dtype of the recipe's gradient, before anything else; f32 or bf16.
  DType gradient = DType::kF32;
};
void MomentumUpdate(const MomentumArgs& args, Queue& queue);

// x_b = u_b / (scale |u_b|_F + eps) for each matrix.  u, x  bf16 [B, r, c] (x may be u)
// The norm is that of the bf16 values, in f32, order fixed by r * c.
void NormalizeFrobenius(Tensor u, float scale, float eps, Tensor x, Queue& queue);

// Momentum on two rails, one fast and one slow ("twin-rail", modded-nanogpt's ANVIL): with
// lookahead, beta_fast, weight = rates[0], [1], [2],
//   fast <- fast + (1 - beta_fast)(g - fast);   slow <- slow + slow_rate (g - slow)
//   n = weight fast + (1 - weight) slow;   u = g + lookahead (n - g)
// With weight 1 u is MomentumUpdate's if lookahead is beta_fast, while the slow rail gathers.
struct TwinRailArgs {
  Tensor g;             // f32 [n]
  Tensor fast, slow;    // f32 [n]
  Tensor rates;         // f32 [3]: lookahead, beta_fast, weight
  Tensor guard = {};    // i32 [1] or empty: see the top
  Tensor u;             // bf16 [n], output
  float slow_rate = 0;  // 1 - the slow rail's beta, in (0, 1]
  // g is rounded to this, as MomentumArgs::gradient.
  DType gradient = DType::kF32;
};
// In f32; u uses the unrounded values. Elementwise, and with guard[0] == 0 as MomentumUpdate.
void TwinRailUpdate(const TwinRailArgs& args, Queue& queue);

// Division by a norm that the first Gram matrix of an orthogonalisation has in its trace, so that
// the product need not be repeated. For each matrix u, with a = u u^T or u^T u and t its trace,
//   d = scale sqrt(t) + eps;   x = u / d;   a <- a / d^2
// or lone_scale instead of scale where the sum of all a_ij^2 is above 0.97 t^2: then one singular
// value holds nearly all of the norm, x's is close to 1 / scale, and roundings of x and a decide
// whether it is above. A zero matrix stays zero; if a value of a is not finite (u has one, or
// squares that f32 cannot hold), x or a has NaN.
struct GramNormArgs {
  Tensor u;     // bf16 [B, r, c]
  Tensor gram;  // bf16 [B, s, s], s = min(r, c), in place
  Tensor x;     // bf16 [B, r, c], may be u
  float scale = 1, lone_scale = 1;
  float eps = 0;  // positive
};
// In f32, rounding x and a once each; sums in an order fixed by s.
void NormalizeByGram(const GramNormArgs& args, Queue& queue);
// See NormalizeByGram.
inline constexpr float kLoneShare = 0.97f;

// NorMuon's normalisation (Li et al., 2025; modded-nanogpt's variant), for each matrix O:
//   w <- w + (1 - beta2)(q - w),  q = the mean over the rows of O^2, one value per column
//   P = O max(w, floor)^-1/2 per column;  P <- P |O|_F / max(|P|_F, 1e-10)
// so columns that have been strong become weaker, and the norm stays. With per_row the same over
// rows: q is the mean along each row. A zero matrix stays zero.
struct SecondMomentArgs {
  Tensor o;           // bf16 [B, r, c]
  Tensor w;           // f32 or bf16 [B, c]; [B, r] if per_row
  Tensor guard = {};  // i32 [1] or empty: see the top
  Tensor p;           // bf16 [B, r, c]; may be o
  float beta2 = 0;
  float floor = 1e-10f;  // positive
  bool per_row = false;
};
// In f32, rounding w and p once each; p uses the unrounded new w. Sums in an order fixed by r and
// c. With guard[0] == 0, p is undefined and only fit for a MatrixUpdate with the same guard.
void NormalizeBySecondMoment(const SecondMomentArgs& args, Queue& queue);

// p_b <- p_b * decay_b - lr_b * o_b for each matrix.
struct MatrixUpdateArgs {
  Tensor p;           // f32 or bf16 [B, r, c]
  Tensor o;           // bf16 [B, r, c]
  Tensor lr, decay;   // f32 [B]
  Tensor guard = {};  // i32 [1] or empty: see the top
};
void MatrixUpdate(const MatrixUpdateArgs& args, Queue& queue);

// The same for bf16 weights that keep the 16 lower bits of an f32. With x = the f32 whose upper
// half is p and whose lower half is the mantissa, for each matrix:
//   x <- x * decay_b - o * lr_b
// or, if cautious:
//   x <- x - ((x * [o x >= 0]) * decay_b) * lr_b - o * lr_b
// in f32, each product and difference rounded; p and mantissa are then the halves of x. p is so
// truncated, not rounded, and a zero update (o = 0) decays too. With a gate, its sign decides
// about decay instead of o's: [gate x >= 0]. If cautious, a matrix with lr_b = 0 keeps its bits,
// whatever is in o and gate.
struct SplitMatrixArgs {
  Tensor p;           // bf16 [B, r, c]
  Tensor mantissa;    // u16 [B, r, c]
  Tensor o;           // bf16 [B, r, c]
  Tensor gate = {};   // f32 [B, r, c], or empty; needs cautious
  Tensor lr, decay;   // f32 [B]
  Tensor guard = {};  // i32 [1] or empty: see the top
  bool cautious = false;
};
void SplitMatrixUpdate(const SplitMatrixArgs& args, Queue& queue);

OpCost AdamUpdateCost(const AdamArgs& args);
OpCost AdamFlatCost(const AdamFlatArgs& args);
OpCost MomentumUpdateCost(const MomentumArgs& args);
OpCost NormalizeFrobeniusCost(const Tensor& u);
OpCost TwinRailUpdateCost(const TwinRailArgs& args);
OpCost NormalizeByGramCost(const GramNormArgs& args);
OpCost NormalizeBySecondMomentCost(const SecondMomentArgs& args);
OpCost MatrixUpdateCost(const MatrixUpdateArgs& args);
OpCost SplitMatrixUpdateCost(const SplitMatrixArgs& args);

class OptimizerOps {
 public:
  virtual ~OptimizerOps() = default;
  virtual void AdamUpdate(const AdamArgs& args, Queue& queue) const = 0;
  virtual void AdamFlat(const AdamFlatArgs& args, Queue& queue) const = 0;
  virtual void MomentumUpdate(const MomentumArgs& args, Queue& queue) const = 0;
  virtual void NormalizeFrobenius(Tensor u, float scale, float eps, Tensor x,
                                  Queue& queue) const = 0;
  virtual void TwinRailUpdate(const TwinRailArgs& args, Queue& queue) const = 0;
  virtual void NormalizeByGram(const GramNormArgs& args, Queue& queue) const = 0;
  virtual void NormalizeBySecondMoment(const SecondMomentArgs& args, Queue& queue) const = 0;
  virtual void MatrixUpdate(const MatrixUpdateArgs& args, Queue& queue) const = 0;
  virtual void SplitMatrixUpdate(const SplitMatrixArgs& args, Queue& queue) const = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_OPTIMIZER_H_
