// Causal attention over packed documents with a sliding window.
#ifndef KERNELS_OPS_ATTENTION_H_
#define KERNELS_OPS_ATTENTION_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

// The query at position p of a slot attends to the keys j <= p of the same document that its
// window has.
//   window_block = 0:  p - window_tokens <= j, at most window_tokens + 1 keys
//   window_block = B:  p / B - j / B < max(window_tokens / B, 1), at most max(window_tokens, B)
// With blocks the window begins at a multiple of B in the slot, as in modded-nanogpt, track 2,
// record of 2025-04-16.
struct AttentionArgs {
  Tensor q, k, v;  // bf16 [slots, T, heads * d]
  // i32 [slots, n]: 0, the documents' ends in rising order, and T up to the end. Equal
  // neighbours are empty documents, wherever they stand.
  Tensor boundaries;
  int heads = 0;
  int64_t window_tokens = 0;  // a multiple of window_block
  int64_t window_block = 0;   // a multiple of 16, or 0
  float scale = 0;            // of q . k; nothing else scales it
  Tensor o;                   // bf16 [slots, T, heads * d], output
  Tensor lse;                 // f32 [slots, heads, T], output: log of the sum of exp(scale * q . k)
};

// The two kinds of window as one: that of single tokens has blocks of one.
struct AttentionWindow {
  AttentionWindow(int64_t tokens, int64_t blocks_of = 0)  // NOLINT: a number is a window of tokens
      : block(std::max<int64_t>(blocks_of, 1)),
        reach(blocks_of == 0 ? tokens : std::max(tokens, blocks_of) - blocks_of) {}
  explicit AttentionWindow(const AttentionArgs& args)
      : AttentionWindow(args.window_tokens, args.window_block) {}

  // Documents apart, where these are within the slot: the first key that a query sees (the last is
  // its own), and the last query that sees a key. Neither ever falls from token to token.
  int64_t FirstKey(int64_t query) const { return query - query % block - reach; }
  int64_t LastQuery(int64_t key) const { return key - key % block + (block - 1) + reach; }

  int64_t block;
  int64_t reach;  // tokens before the query's own block
};

// Softmax in f32. The probabilities are rounded to nothing narrower than bf16 before the
// product with v. Cost follows the window and the documents, not T^2.
// Flash attention: Dao et al., 2022.
void Attention(const AttentionArgs& args, Queue& queue);

// Attention of some of a slot's rows: the queries at positions [begin, begin + n), over keys and
// values that were kept.
//   q, o  bf16 [slots, n, heads * d];  lse  f32 [slots, heads, n]
//   k, v  bf16 [slots, T, heads * d], begin + n <= T. Rows behind the last query are not read
// Positions, documents and windows are those of the whole slot of T rows. Sums are cut elsewhere
// than in the slot's Attention, so bits may differ. Written for the CPU alone: other backends
// CHECK-fail.
void CachedAttention(const AttentionArgs& args, int64_t begin, Queue& queue);

// Backward. `forward` has o and lse.
struct AttentionGradArgs {
  Tensor do_;         // bf16 [slots, T, heads * d], the gradient of o
  Tensor delta;       // f32 [slots, heads, T], scratch: rowsum(do * o)
  Tensor dq, dk, dv;  // bf16 like do_, written
};
void AttentionGrad(const AttentionArgs& forward, const AttentionGradArgs& grad, Queue& queue);

// `pairs`: query-key pairs of one slot and head. Forward two products, backward five (the scores
// again, and the gradients of probabilities, q, k and v).
OpCost AttentionCost(const AttentionArgs& args, double pairs);
OpCost AttentionGradCost(const AttentionArgs& forward, double pairs);
// With the pairs of a slot that is one document; of k and v the rows that some query sees.
OpCost CachedAttentionCost(const AttentionArgs& args, int64_t begin);
// Pairs of a slot that is one document: the most that a window allows.
double AttentionPairs(int64_t slot_tokens, const AttentionWindow& window);
// Pairs of a slot with these documents (AttentionArgs::boundaries, one row).
double AttentionPairs(const std::vector<int32_t>& boundaries, const AttentionWindow& window);

class AttentionOps {
 public:
  virtual ~AttentionOps() = default;
  virtual void Attention(const AttentionArgs& args, Queue& queue) const = 0;
  virtual void AttentionGrad(const AttentionArgs& forward, const AttentionGradArgs& grad,
                             Queue& queue) const = 0;
  virtual void CachedAttention(const AttentionArgs& args, int64_t begin, Queue& queue) const;
};

}  // namespace kernels

#endif  // KERNELS_OPS_ATTENTION_H_
