// Output head, soft cap, cross entropy, and their gradient, over chunks of rows: the logits of
// all rows never exist at once.
#ifndef KERNELS_OPS_HEAD_H_
#define KERNELS_OPS_HEAD_H_

#include <cstdint>

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

constexpr int kMaxLossWeights = 4;

// The fixed scales of the fp8 products. fp8 = false: plain bf16 products, nothing else is read.
struct HeadPrecision {
  bool fp8 = false;
  float x_scale = 0;     // x8 = e4m3(x / x_scale)
  float w_scale = 0;     // w8 = e4m3(w / w_scale)
  float grad_scale = 0;  // g8 = e5m2(dlogits / grad_scale)
};

enum class SoftCap {
  kSigmoid,  // z = cap * sigmoid((logits + shift) / temperature), in (0, cap)
  kIsru,     // z = cap * logits / sqrt(logits^2 + cap^2), in (-cap, cap), with the slope 1 at 0:
             // an inverse square root unit (Carlile et al., 2017), as modded-nanogpt's track 2 has
             // it. Neither temperature nor shift is read
};

// logits = bf16(x w^T)  or  bf16(x_scale * w_scale * (x8 w8^T))
// z      = the soft cap of logits
// loss_t = sum over k of w_k (logsumexp(z_t) - z_t[target_{t+k}]), over all V classes, in f32
//
// Without weights that is k = 0 with w_0 = 1. Terms with t + k >= T are absent: the slot's end cuts
// the targets off, the ends of documents do not. Multi-token prediction: Gloeckle et al., 2024, as
// modded-nanogpt's record of 2025-12-22 has it.
struct HeadArgs {
  Tensor x;  // bf16 [slots, T, D], the normalised hidden state
  Tensor w;  // bf16 [V, D]; [D, V] if w_transposed
  bool w_transposed = false;
  // i32 [slots, T], each in [0, V). The CPU CHECKs it and names the row; on CUDA the row's loss is
  // NaN.
  Tensor targets;
  SoftCap softcap_kind = SoftCap::kSigmoid;
  float softcap = 30.0f;
  float softcap_temperature = 7.5f;
  float softcap_shift = 0.0f;
  Tensor loss_weights;  // f32 [n], 1 <= n <= kMaxLossWeights, each >= 0; or empty. HeadLossGrad's
  HeadPrecision precision;
  Tensor workspace;  // at least HeadWorkspaceBytes() bytes of any dtype
};

// V of w; D is x.cols().
inline int64_t HeadVocab(const HeadArgs& args) { return args.w.dim(args.w_transposed ? 1 : 0); }

// Losses only, of the next token alone: no loss_weights (validation).   losses  f32 [slots, T]
void HeadLoss(const HeadArgs& args, Tensor losses, Queue& queue);

// Losses and gradient in one go, for the gradient 1 of each token's loss:
//   dlogit_j = sum over k of w_k (softmax(z)_j - [j = target_{t+k}]) * dz_j/dlogit_j
//   kSigmoid:  dz/dlogit = (cap / temperature) c (1 - c),   c = z / cap
//   kIsru:     dz/dlogit = (1 + (logit / cap)^2)^(-3/2)
//   rounded to bf16, and with fp8 then to g8; x8 and w8 are reused:
//   dx  bf16 [slots, T, D], written:     bf16(dlogits w)
//   dw  f32 [leaves, V, D], added to:    dlogits^T x, or x^T dlogits [leaves, D, V]
// CUDA rounds kSigmoid's with fp8 to bf16 before a row's common factor: some g8 are the neighbour.
// Saturated logits (also infinite ones) have a gradient of 0, never NaN. With kIsru logits beyond
// 2^60 count as 2^60.
void HeadLossGrad(const HeadArgs& args, Tensor losses, Tensor dx, Tensor dw, Queue& queue);

// Logits of single positions, soft cap applied, for sampling.
//   x  bf16 [1, n, D]   logits  f32 [1, n, V]
void HeadLogits(const HeadArgs& args, Tensor logits, Queue& queue);

int64_t HeadWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab, int64_t dim,
                           const Queue& queue);

// Logits cost nothing: they need not exist.
OpCost HeadLossCost(const HeadArgs& args, const Tensor& losses);
OpCost HeadLossGradCost(const HeadArgs& args, const Tensor& losses, const Tensor& dw);
OpCost HeadLogitsCost(const HeadArgs& args, const Tensor& logits);

// The part of HeadOps that memory is planned with, which needs no device.
class HeadWorkspace {
 public:
  virtual ~HeadWorkspace() = default;
  virtual int64_t HeadWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab,
                                     int64_t dim) const = 0;
};

class HeadOps : public HeadWorkspace {
 public:
  virtual void HeadLoss(const HeadArgs& args, Tensor losses, Queue& queue) const = 0;
  virtual void HeadLossGrad(const HeadArgs& args, Tensor losses, Tensor dx, Tensor dw,
                            Queue& queue) const = 0;
  virtual void HeadLogits(const HeadArgs& args, Tensor logits, Queue& queue) const = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_HEAD_H_
