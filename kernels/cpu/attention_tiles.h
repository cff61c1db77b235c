// What the forward and the backward pass of the CPU's attention share: the problem as plain
// pointers, and which keys a query sees.
#ifndef KERNELS_CPU_ATTENTION_TILES_H_
#define KERNELS_CPU_ATTENTION_TILES_H_

#include <algorithm>
#include <cstdint>

#include "kernels/ops/attention.h"

namespace kernels {

// Queries of a task, and keys of one step of it. The f32 copies of q, k, v and o blocks of head
// dim 128 and their scores then take 144 KiB, which fits into level 2 caches; a multiple of the
// lanes of every instruction set.
constexpr int64_t kAttentionBlock = 64;

// The queries are the slot's tokens [query_begin, query_end): all of them, but in CachedAttention.
struct AttentionProblem {
  explicit AttentionProblem(const AttentionArgs& args, int64_t begin = 0)
      : slots(args.q.dim(0)),
        tokens(args.k.dim(1)),
        query_begin(begin),
        query_end(begin + args.q.dim(1)),
        heads(args.heads),
        head_dim(args.q.dim(2) / args.heads),
        blocks((args.q.dim(1) + kAttentionBlock - 1) / kAttentionBlock),
        window(args),
        scale(args.scale),
        q(args.q.bf16()),
        k(args.k.bf16()),
        v(args.v.bf16()),
        o(args.o.bf16()),
        lse(args.lse.f32()),
        boundaries(args.boundaries.i32()),
        boundary_count(args.boundaries.dim(1)) {}

  int64_t tasks() const { return slots * heads * blocks; }
  int64_t row_stride() const { return heads * head_dim; }

  int64_t slots, tokens, query_begin, query_end, heads, head_dim, blocks;
  AttentionWindow window;
  float scale;
  const BF16* q;
  const BF16* k;
  const BF16* v;
  BF16* o;
  float* lse;
  const int32_t* boundaries;
  int64_t boundary_count;
};

// One block of one head of one slot: what a task works on.
struct AttentionTile {
  AttentionTile(const AttentionProblem& problem, int64_t task)
      : slot(task / problem.blocks / problem.heads),
        head(task / problem.blocks % problem.heads),
        begin(problem.query_begin + task % problem.blocks * kAttentionBlock),
        end(std::min(begin + kAttentionBlock, problem.query_end)),
        boundaries(problem.boundaries + slot * problem.boundary_count),
        boundaries_end(boundaries + problem.boundary_count) {}

  // Of the element [slot, token, head, 0] of k and v, and where all tokens are queries of q and o.
  int64_t Offset(const AttentionProblem& problem, int64_t token) const {
    return (slot * problem.tokens + token) * problem.row_stride() + head * problem.head_dim;
  }
  // Of the element of q and o that is of this token.
  int64_t QueryOffset(const AttentionProblem& problem, int64_t token) const {
    const int64_t queries = problem.query_end - problem.query_begin;
    return (slot * queries + token - problem.query_begin) * problem.row_stride() +
           head * problem.head_dim;
  }
  // Of the element of lse and delta that is of this token and head.
  int64_t RowOffset(const AttentionProblem& problem, int64_t token) const {
    const int64_t queries = problem.query_end - problem.query_begin;
    return (slot * problem.heads + head) * queries + token - problem.query_begin;
  }
  // The end of the document that has this token: the first boundary behind it.
  int64_t DocumentEnd(int64_t token) const {
    return *std::upper_bound(boundaries, boundaries_end, token);
  }
  // first[i]: the first key that query begin + i sees, for i < count. The last is the query.
  void FirstKeys(const AttentionProblem& problem, int64_t from, int64_t count,
                 int64_t* first) const {
    const int32_t* end_of_document = std::upper_bound(boundaries, boundaries_end, from);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t query = from + i;
      while (*end_of_document <= query) ++end_of_document;
      first[i] = std::max<int64_t>(end_of_document[-1], problem.window.FirstKey(query));
    }
  }

  int64_t slot, head, begin, end;
  const int32_t* boundaries;
  const int32_t* boundaries_end;
};

// attention_grad.cc: both passes of the backward, one task each.
//   task of the query pass: delta and dq of a block of queries
//   task of the key pass: dk and dv of a block of keys; reads all deltas
struct AttentionGradPointers {
  const BF16* do_;
  float* delta;
  BF16* dq;
  BF16* dk;
  BF16* dv;
};
void AttentionQueryGradTask(const AttentionProblem& problem, const AttentionGradPointers& grad,
                            int64_t task);
void AttentionKeyGradTask(const AttentionProblem& problem, const AttentionGradPointers& grad,
                          int64_t task);

}  // namespace kernels

#endif  // KERNELS_CPU_ATTENTION_TILES_H_
