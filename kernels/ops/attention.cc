#include "kernels/ops/attention.h"

#include <initializer_list>

#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

constexpr int64_t kMaxHeadDim = 128;

// `same`: those of the tensors that have q's shape.
void CheckArgs(const char* op, const AttentionArgs& args, std::initializer_list<Tensor> same) {
  const Tensor& q = args.q;
  CHECK_EQ(q.dtype(), DType::kBF16) << op << ": q " << q;
  CHECK_EQ(q.rank(), 3) << op << ": q " << q;
  CHECK_GT(args.heads, 0) << op;
  CHECK_EQ(q.dim(2) % args.heads, 0) << op << ": q " << q << ", heads " << args.heads;
  const int64_t head_dim = q.dim(2) / args.heads;
  CHECK(head_dim % 8 == 0 && head_dim <= kMaxHeadDim)
      << op << ": head dim " << head_dim << " is no multiple of 8 up to " << kMaxHeadDim;
  for (const Tensor& like : same) {
    CHECK_EQ(like.dtype(), DType::kBF16) << op << ": " << like << " beside q " << q;
    CHECK(SameShape(like, q)) << op << ": " << like << " beside q " << q;
  }
  const Tensor& boundaries = args.boundaries;
  CHECK_EQ(boundaries.dtype(), DType::kI32) << op << ": boundaries " << boundaries;
  CHECK(boundaries.rank() == 2 && boundaries.dim(0) == q.dim(0) && boundaries.dim(1) >= 2)
      << op << ": boundaries " << boundaries << ", q " << q;
  CHECK_GE(args.window_tokens, 0) << op;
  CHECK(args.window_block >= 0 && args.window_block % 16 == 0)
      << op << ": blocks of " << args.window_block << " tokens, which are no multiple of 16";
  CHECK(args.window_block == 0 || args.window_tokens % args.window_block == 0)
      << op << ": window of " << args.window_tokens << " tokens in blocks of " << args.window_block;
  const Tensor& lse = args.lse;
  CHECK_EQ(lse.dtype(), DType::kF32) << op << ": lse " << lse;
  CHECK(lse.rank() == 3 && lse.dim(0) == q.dim(0) && lse.dim(1) == args.heads &&
        lse.dim(2) == q.dim(1))
      << op << ": lse " << lse << ", q " << q << ", heads " << args.heads;
}

}  // namespace

void Attention(const AttentionArgs& args, Queue& queue) {
  CheckArgs("Attention", args, {args.k, args.v, args.o});
  queue.ops().attention->Attention(args, queue);
}

void CachedAttention(const AttentionArgs& args, int64_t begin, Queue& queue) {
  const Tensor &q = args.q, &k = args.k;
  CheckArgs("CachedAttention", args, {args.o});
  for (const Tensor& kept : {k, args.v}) {
    CHECK_EQ(kept.dtype(), DType::kBF16) << "CachedAttention: " << kept << " beside q " << q;
    CHECK(kept.rank() == 3 && kept.dim(0) == q.dim(0) && kept.dim(2) == q.dim(2) &&
          SameShape(kept, k))
        << "CachedAttention: " << kept << " beside q " << q << ", k " << k;
  }
  CHECK(begin >= 0 && begin + q.dim(1) <= k.dim(1))
      << "CachedAttention: q " << q << " from position " << begin << " on, k " << k;
  queue.ops().attention->CachedAttention(args, begin, queue);
}

void AttentionOps::CachedAttention(const AttentionArgs&, int64_t, Queue&) const {
  CHECK(false) << "CachedAttention is written for the CPU alone";
}

void AttentionGrad(const AttentionArgs& forward, Tensor do_, Tensor delta, Tensor dq, Tensor dk,
                   Tensor dv, Queue& queue) {
  CheckArgs("AttentionGrad", forward, {forward.k, forward.v, forward.o});
  for (const Tensor& like : {do_, dq, dk, dv}) {
    CHECK_EQ(like.dtype(), DType::kBF16) << "AttentionGrad: " << like << " beside q " << forward.q;
    CHECK(SameShape(like, forward.q)) << "AttentionGrad: " << like << " beside q " << forward.q;
  }
  CHECK_EQ(delta.dtype(), DType::kF32) << "AttentionGrad: delta " << delta;
  CHECK(SameShape(delta, forward.lse))
      << "AttentionGrad: delta " << delta << ", lse " << forward.lse;
  queue.ops().attention->AttentionGrad(forward, do_, delta, dq, dk, dv, queue);
}

}  // namespace kernels
