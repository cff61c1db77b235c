#include "kernels/ops/attention.h"

#include <string>

#include "kernels/ops/checks.h"
#include "kernels/ops/cost_terms.h"
#include "kernels/ops/trace_scope.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

constexpr int64_t kMaxHeadDim = 128;

// All but k, v and o, whose shapes differ with a cache.
void CheckArgs(const char* op, const AttentionArgs& args) {
  const Tensor& q = args.q;
  CheckRank(op, "q", q, DType::kBF16, 3);
  CHECK_GT(args.heads, 0) << op;
  CHECK_EQ(q.dim(2) % args.heads, 0) << op << ": q " << q << ", heads " << args.heads;
  const int64_t head_dim = q.dim(2) / args.heads;
  CHECK(head_dim % 8 == 0 && head_dim <= kMaxHeadDim)
      << op << ": head dim " << head_dim << " is no multiple of 8 up to " << kMaxHeadDim;
  const Tensor& boundaries = args.boundaries;
  CheckRank(op, "boundaries", boundaries, DType::kI32, 2);
  CHECK(boundaries.dim(0) == q.dim(0) && boundaries.dim(1) >= 2)
      << op << ": boundaries " << boundaries << ", q " << q;
  CHECK_GE(args.window_tokens, 0) << op;
  CHECK(args.window_block >= 0 && args.window_block % 16 == 0)
      << op << ": blocks of " << args.window_block << " tokens, which are no multiple of 16";
  CHECK(args.window_block == 0 || args.window_tokens % args.window_block == 0)
      << op << ": window of " << args.window_tokens << " tokens in blocks of " << args.window_block;
  CheckTensor(op, "lse", args.lse, DType::kF32, {q.dim(0), args.heads, q.dim(1)});
}

void CheckOfWholeSlots(const char* op, const AttentionArgs& args) {
  CheckArgs(op, args);
  CheckLike(op, "k", args.k, DType::kBF16, "q", args.q);
  CheckLike(op, "v", args.v, DType::kBF16, "q", args.q);
  CheckLike(op, "o", args.o, DType::kBF16, "q", args.q);
}

double AttentionFlops(const AttentionArgs& args, double pairs, int products) {
  const double slots = args.q.dim(0), features = args.q.cols();  // over all heads
  return products * 2 * pairs * features * slots;
}

std::string AttentionText(const AttentionArgs& args) {
  std::string text = Text(args.q) + ", " + std::to_string(args.heads) + " heads, window " +
                     std::to_string(args.window_tokens);
  if (args.window_block > 0) text += " in blocks of " + std::to_string(args.window_block);
  return text;
}

// Pairs of the document [begin, end) of a slot.
double DocumentPairs(int64_t begin, int64_t end, const AttentionWindow& window) {
  if (window.block == 1) {
    // The first `ramp` queries see all keys before them and their own, the others reach + 1.
    const double ramp = std::min(end - begin, window.reach + 1);
    return ramp * (ramp + 1) / 2 + (end - begin - ramp) * (window.reach + 1.0);
  }
  double pairs = 0;
  for (int64_t query = begin; query < end;) {  // the queries of a block have one first key
    const int64_t first = std::max(begin, window.FirstKey(query));
    const int64_t stop = std::min(end, query - query % window.block + window.block);
    // From query - first + 1 keys to stop - first.
    pairs += (stop - query) * ((query - first + 1.0) + (stop - first)) / 2;
    query = stop;
  }
  return pairs;
}

}  // namespace

void Attention(const AttentionArgs& args, Queue& queue) {
  constexpr char kOp[] = "Attention";
  CheckOfWholeSlots(kOp, args);
  const TraceScope scope(
      kOp, queue, [&] { return AttentionCost(args, queue.listener()->AttentionPairs(args)); });
  queue.ops().attention->Attention(args, queue);
}

void CachedAttention(const AttentionArgs& args, int64_t begin, Queue& queue) {
  constexpr char kOp[] = "CachedAttention";
  const Tensor &q = args.q, &k = args.k;
  CheckArgs(kOp, args);
  CheckLike(kOp, "o", args.o, DType::kBF16, "q", q);
  CheckRank(kOp, "k", k, DType::kBF16, 3);
  CHECK(k.dim(0) == q.dim(0) && k.dim(2) == q.dim(2)) << kOp << ": k " << k << ", q " << q;
  CheckLike(kOp, "v", args.v, DType::kBF16, "k", k);
  CHECK(begin >= 0 && begin + q.dim(1) <= k.dim(1))
      << kOp << ": q " << q << " from position " << begin << " on, k " << k;
  const TraceScope scope(kOp, queue, [&] { return CachedAttentionCost(args, begin); });
  queue.ops().attention->CachedAttention(args, begin, queue);
}

void AttentionOps::CachedAttention(const AttentionArgs&, int64_t, Queue&) const {
  CHECK(false) << "CachedAttention is written for the CPU alone";
}

void AttentionGrad(const AttentionArgs& forward, const AttentionGradArgs& grad, Queue& queue) {
  constexpr char kOp[] = "AttentionGrad";
  CheckOfWholeSlots(kOp, forward);
  CheckLike(kOp, "do_", grad.do_, DType::kBF16, "q", forward.q);
  CheckLike(kOp, "dq", grad.dq, DType::kBF16, "q", forward.q);
  CheckLike(kOp, "dk", grad.dk, DType::kBF16, "q", forward.q);
  CheckLike(kOp, "dv", grad.dv, DType::kBF16, "q", forward.q);
  CheckLike(kOp, "delta", grad.delta, DType::kF32, "lse", forward.lse);
  const TraceScope scope(kOp, queue, [&] {
    return AttentionGradCost(forward, queue.listener()->AttentionPairs(forward));
  });
  queue.ops().attention->AttentionGrad(forward, grad, queue);
}

OpCost AttentionCost(const AttentionArgs& args, double pairs) {
  return {.phase = OpPhase::kAttention,
          .shape = AttentionText(args),
          .flops = AttentionFlops(args, pairs, 2),
          .bytes = 4 * Bytes(args.q) + Bytes(args.boundaries) + Bytes(args.lse)};
}

OpCost AttentionGradCost(const AttentionArgs& forward, double pairs) {
  // Bytes: q, k, v, o, do in; dq, dk, dv out.
  return {.phase = OpPhase::kAttention,
          .shape = AttentionText(forward),
          .flops = AttentionFlops(forward, pairs, 5),
          .bytes = 8 * Bytes(forward.q) + Bytes(forward.boundaries) + Bytes(forward.lse)};
}

OpCost CachedAttentionCost(const AttentionArgs& args, int64_t begin) {
  const AttentionWindow window(args);
  const int64_t end = begin + args.q.dim(1), first = std::max<int64_t>(0, window.FirstKey(begin));
  OpCost cost;
  cost.phase = OpPhase::kAttention;
  cost.shape = AttentionText(args) + ", " + std::to_string(begin) + " tokens before";
  cost.flops = AttentionFlops(args, AttentionPairs(end, window) - AttentionPairs(begin, window), 2);
  const double keys = static_cast<double>(args.k.dim(0) * (end - first) * args.k.cols());
  cost.bytes = 2 * Bytes(args.q) + 2 * keys * SizeOf(args.k.dtype()) + Bytes(args.boundaries) +
               Bytes(args.lse);
  return cost;
}

double AttentionPairs(int64_t slot_tokens, const AttentionWindow& window) {
  return DocumentPairs(0, slot_tokens, window);
}

double AttentionPairs(const std::vector<int32_t>& boundaries, const AttentionWindow& window) {
  double pairs = 0;
  for (size_t i = 1; i < boundaries.size(); ++i) {
    pairs += DocumentPairs(boundaries[i - 1], boundaries[i], window);
  }
  return pairs;
}

}  // namespace kernels
