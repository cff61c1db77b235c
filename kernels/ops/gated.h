// Per-token gates of the record of 2025-12-29 and later: on value embeddings, inside of what stands
// between the QKV product and attention, and on a skip connection.
#ifndef KERNELS_OPS_GATED_H_
#define KERNELS_OPS_GATED_H_

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

// With qkv = [q | k | v], each `heads` heads of d features:
//   q, k <- rms over the head's features (epsilon kRmsEpsilon of norm.h), then rotary by -theta on
//           neighbouring features: y[2i] = x[2i] cos_i + x[2i+1] sin_i,
//                                  y[2i+1] = x[2i+1] cos_i - x[2i] sin_i
//   k[t] <- with key_offset, features [d/4, d/2) and [3d/4, d) of every head come from k[t-1], both
//           after rotary; position 0 keeps its own. It crosses documents, never slots.
//   v    <- v + gamma * value_table[token],  gamma = 2 sigmoid(value_gate[head] . u[0..n)), one a
//           token and head; without a table v stays
// Rotary position of token t: t, index in the slot; with paired heads 2 t for even heads and 2 t +
// 1 for odd ones (attention then reads [T, heads, d] as [2 T, heads / 2, d]). One rounding to bf16
// for each output. modded-nanogpt's records of 2025-12-14 (key offset), 2025-12-29 (value gates)
// and 2026-01-07 (paired heads).
struct GatedQkvArgs {
  Tensor qkv;  // bf16 [slots, T, 3 * D], D = heads * d, d a multiple of 8
  int heads = 0;
  bool paired = false;      // heads is even
  bool key_offset = false;  // not with paired
  Tensor cos;               // bf16 [positions, d / 2], positions >= T, or >= 2 T if paired
  Tensor sin;               // likewise
  Tensor tokens;            // i32 [slots, T]
  Tensor value_table;       // bf16 [V, D], or empty, and then tokens, u, value_gate are not read
  Tensor u;                 // bf16 [slots, T, D], what the QKV product read
  Tensor value_gate;        // bf16 [heads, n], n <= D
  Tensor q, k, v;           // bf16 [slots, T, D], outputs
  Tensor inv_rms;           // f32 [slots, T, 2 * heads], output: q's heads, then k's
};
void GatedQkv(const GatedQkvArgs& args, Queue& queue);

// Backward.
struct GatedQkvGradArgs {
  Tensor dq, dk, dv;  // bf16 [slots, T, D]
  Tensor dqkv;        // bf16 [slots, T, 3 * D], written
  // The rest is empty without a table.
  Tensor dvalue_rows;  // bf16 [slots, T, D], added to: gradient of the table's row of each token
  Tensor du_head;      // f32 [slots, T, n], added to: what the gate adds to the gradient of u
  Tensor dvalue_gate;  // f32 [leaves, heads * n], added to; leaves = 1 or slots
};
void GatedQkvGrad(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad, Queue& queue);

// y_t = x_t + s_t saved_t,  s_t = sigmoid(scalars[skip]) * 2 sigmoid(gate . x0_t[0..n)), one a
// token.
//
//   x, x0, saved, y  bf16 [slots, T, D]; y may be x     gate  bf16 [1, n]     scalars  f32 [m]
struct GatedSkipArgs {
  Tensor x, x0, saved;
  Tensor gate;
  Tensor scalars;
  int skip = 0;
  Tensor y;
};
void GatedSkip(const GatedSkipArgs& args, Queue& queue);

// Backward; x itself has dy as its gradient, and is not read.
struct GatedSkipGradArgs {
  Tensor dy;        // bf16 [slots, T, D]
  Tensor dsaved;    // bf16 [slots, T, D], written: s_t dy_t
  Tensor dx0;       // bf16 [slots, T, D]: its first n features are added to, with one rounding
  Tensor dgate;     // f32 [leaves, n], added to; leaves = 1 or slots
  Tensor dscalars;  // f32 [leaves, m], added to
};
void GatedSkipGrad(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad, Queue& queue);

OpCost GatedQkvCost(const GatedQkvArgs& args);
OpCost GatedQkvGradCost(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad);
OpCost GatedSkipCost(const GatedSkipArgs& args);
OpCost GatedSkipGradCost(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad);

class GatedOps {
 public:
  virtual ~GatedOps() = default;
  virtual void GatedQkv(const GatedQkvArgs& args, Queue& queue) const = 0;
  virtual void GatedQkvGrad(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad,
                            Queue& queue) const = 0;
  virtual void GatedSkip(const GatedSkipArgs& args, Queue& queue) const = 0;
  virtual void GatedSkipGrad(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad,
                             Queue& queue) const = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_GATED_H_
