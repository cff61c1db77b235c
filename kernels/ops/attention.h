// Causal attention over packed documents with a sliding window.
#ifndef KERNELS_OPS_ATTENTION_H_
#define KERNELS_OPS_ATTENTION_H_

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

// The query at position p of a slot attends to the keys j of the same document with
// p - window_tokens <= j <= p: at most window_tokens + 1 keys.
struct AttentionArgs {
  Tensor q, k, v;  // bf16 [slots, T, heads * d]
  // i32 [slots, n]: 0, the documents' ends in rising order, and T up to the end. Equal
  // neighbours are empty documents, wherever they stand.
  Tensor boundaries;
  int heads = 0;
  int64_t window_tokens = 0;
  float scale = 0;  // of q . k; nothing else scales it
  Tensor o;         // bf16 [slots, T, heads * d], output
  Tensor lse;       // f32 [slots, heads, T], output: log of the sum of exp(scale * q . k)
};

// Softmax in f32. The probabilities are rounded to nothing narrower than bf16 before the
// product with v. Cost follows the window and the documents, not T^2.
// Flash attention: Dao et al., 2022.
void Attention(const AttentionArgs& args, Queue& queue);

// dq, dk, dv bf16 [slots, T, heads * d], written, from do_ (like o). `forward` has o and lse.
//   delta  f32 [slots, heads, T], scratch: rowsum(do * o)
void AttentionGrad(const AttentionArgs& forward, Tensor do_, Tensor delta, Tensor dq, Tensor dk,
                   Tensor dv, Queue& queue);

class AttentionOps {
 public:
  virtual ~AttentionOps() = default;
  virtual void Attention(const AttentionArgs& args, Queue& queue) const = 0;
  virtual void AttentionGrad(const AttentionArgs& forward, Tensor do_, Tensor delta, Tensor dq,
                             Tensor dk, Tensor dv, Queue& queue) const = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_ATTENTION_H_
