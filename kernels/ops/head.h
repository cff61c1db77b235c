// Output head, soft cap, cross entropy, and their gradient, over chunks of rows: the logits of
// all rows never exist at once.
#ifndef KERNELS_OPS_HEAD_H_
#define KERNELS_OPS_HEAD_H_

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

// The fixed scales of the fp8 products. fp8 = false: plain bf16 products, nothing else is read.
struct HeadPrecision {
  bool fp8 = false;
  float x_scale = 0;     // x8 = e4m3(x / x_scale)
  float w_scale = 0;     // w8 = e4m3(w / w_scale)
  float grad_scale = 0;  // g8 = e5m2(dlogits / grad_scale)
};

// logits = bf16(x w^T)  or  bf16(x_scale * w_scale * (x8 w8^T))
// z      = cap * sigmoid(logits / temperature)
// loss_t = logsumexp(z_t) - z_t[target_t], over all V classes, in f32
struct HeadArgs {
  Tensor x;  // bf16 [slots, T, D], the normalised hidden state
  Tensor w;  // bf16 [V, D]
  // i32 [slots, T], each in [0, V). The CPU CHECKs it and names the row; on CUDA the row's loss is
  // NaN.
  Tensor targets;
  float softcap = 30.0f;
  float softcap_temperature = 7.5f;
  HeadPrecision precision;
  Tensor workspace;  // at least HeadWorkspaceBytes() bytes of any dtype
};

// Losses only (validation).   losses  f32 [slots, T]
void HeadLoss(const HeadArgs& args, Tensor losses, Queue& queue);

// Losses and gradient in one go, for the gradient 1 of each token's loss:
//   dlogit_j = (softmax(z)_j - [j = target]) * (cap / temperature) c_j (1 - c_j), c = sigmoid(..)
//   rounded to bf16, and with fp8 then to g8; x8 and w8 are reused:
//   dx  bf16 [slots, T, D], written:     bf16(dlogits w)
//   dw  f32 [leaves, V, D], added to:    dlogits^T x
// Saturated logits (also infinite ones) have a gradient of 0, never NaN.
void HeadLossGrad(const HeadArgs& args, Tensor losses, Tensor dx, Tensor dw, Queue& queue);

// Logits of single positions, soft cap applied, for sampling.
//   x  bf16 [1, n, D]   logits  f32 [1, n, V]
void HeadLogits(const HeadArgs& args, Tensor logits, Queue& queue);

int64_t HeadWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab, int64_t dim,
                           const Queue& queue);

class HeadOps {
 public:
  virtual ~HeadOps() = default;
  virtual void HeadLoss(const HeadArgs& args, Tensor losses, Queue& queue) const = 0;
  virtual void HeadLossGrad(const HeadArgs& args, Tensor losses, Tensor dx, Tensor dw,
                            Queue& queue) const = 0;
  virtual void HeadLogits(const HeadArgs& args, Tensor logits, Queue& queue) const = 0;
  virtual int64_t HeadWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab,
                                     int64_t dim) const = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_HEAD_H_
