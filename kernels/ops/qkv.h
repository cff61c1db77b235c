// Between the QKV product and attention: head split, QK norm, rotary, value mix. Between
// attention and the O product: the sparse gate.
#ifndef KERNELS_OPS_QKV_H_
#define KERNELS_OPS_QKV_H_

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

// With qkv = [q | k | v], each `heads` heads of d features, and x1, x2 a head's halves:
//   q, k <- rms over the head's features (epsilon kRmsEpsilon), then rotary by -theta:
//           y1 = x1 cos + x2 sin,  y2 = -x1 sin + x2 cos
//   v    <- scalars[value_lambda] * v + scalars[value_lambda + 1] * value_table[token]
// where norm_value puts rms(v) over the head's features in the place of v. The second term is
// absent without a table. Position = index in the slot, not in the document.
// One rounding to bf16 for each output. Rotary: Su et al., 2021; QK norm: Henry et al., 2020;
// value embeddings: Zhou et al., 2024 (value residual learning), as modded-nanogpt uses them.
struct QkvArgs {
  Tensor qkv;  // bf16 [slots, T, 3 * D], D = heads * d
  int heads = 0;
  Tensor cos;             // bf16 or f32 [positions >= T, d / 2]
  Tensor sin;             // likewise
  Tensor tokens;          // i32 [slots, T]
  Tensor value_table;     // bf16 [V, D], or empty
  Tensor scalars;         // f32 [n]
  int value_lambda = -1;  // index of a0; a1 follows it
  Tensor q, k, v;         // bf16 [slots, T, D], outputs
  // f32 [slots, T, 2 * heads], output: q's heads, then k's; with norm_value [slots, T, 3 * heads]:
  // then v's.
  Tensor inv_rms;
  bool norm_value = false;
};
void QkvSplitNormRotary(const QkvArgs& args, Queue& queue);

// Backward.
struct QkvGradArgs {
  Tensor dq, dk, dv;  // bf16 [slots, T, D]
  Tensor dqkv;        // bf16 [slots, T, 3 * D], written
  // bf16 [slots, T, D], added to: gradient of the table's row of each token; empty without a table
  Tensor dvalue_rows = {};
  Tensor dscalars;  // f32 [leaves, n], added to
};
void QkvSplitNormRotaryGrad(const QkvArgs& forward, const QkvGradArgs& grad, Queue& queue);

// y_head = o_head * sigmoid(gate_w[head] . u[0..k)): one scalar per token and head.
// Sparse attention gate: modded-nanogpt, record of 2025-08-23.
//
//   o, y    bf16 [slots, T, heads * d];  u  bf16 [slots, T, D];  gate_w  bf16 [heads, k]
void HeadGate(Tensor o, Tensor u, Tensor gate_w, Tensor y, Queue& queue);

// Backward.
struct HeadGateGradArgs {
  Tensor dy;            // bf16 like o
  Tensor o, u, gate_w;  // HeadGate's inputs
  Tensor do_;           // bf16 like o, written; may be dy
  Tensor du_head;       // f32 [slots, T, k], written: what the gate adds to the gradient of u[0..k)
  Tensor dgate_w;       // f32 [leaves, heads * k], added to
};
void HeadGateGrad(const HeadGateGradArgs& args, Queue& queue);

OpCost QkvSplitNormRotaryCost(const QkvArgs& args);
OpCost QkvSplitNormRotaryGradCost(const QkvArgs& forward, const QkvGradArgs& grad);
OpCost HeadGateCost(const Tensor& o, const Tensor& gate_w);
OpCost HeadGateGradCost(const HeadGateGradArgs& args);

class QkvOps {
 public:
  virtual ~QkvOps() = default;
  virtual void QkvSplitNormRotary(const QkvArgs& args, Queue& queue) const = 0;
  virtual void QkvSplitNormRotaryGrad(const QkvArgs& forward, const QkvGradArgs& grad,
                                      Queue& queue) const = 0;
  virtual void HeadGate(Tensor o, Tensor u, Tensor gate_w, Tensor y, Queue& queue) const = 0;
  virtual void HeadGateGrad(const HeadGateGradArgs& args, Queue& queue) const = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_QKV_H_
