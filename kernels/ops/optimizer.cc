#include "kernels/ops/optimizer.h"

#include <algorithm>

#include "kernels/ops/checks.h"
#include "kernels/ops/cost_terms.h"
#include "kernels/ops/trace_scope.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

// [n] of any dtype, as many elements as `like`.
void CheckElements(const char* op, const char* name, const Tensor& t, const char* like_name,
                   const Tensor& like) {
  CHECK_EQ(t.rank(), 1) << op << ": " << name << " " << t;
  CheckLike(op, name, t, t.dtype(), like_name, like);
}

void CheckGuard(const char* op, const Tensor& guard) {
  if (guard.empty()) return;
  CHECK(guard.dtype() == DType::kI32 && guard.size() == 1) << op << ": guard " << guard;
}

}  // namespace

void AdamUpdate(const AdamArgs& args, Queue& queue) {
  constexpr char kOp[] = "AdamUpdate";
  CHECK(IsFloat(args.p)) << kOp << ": p " << args.p;
  CHECK_EQ(args.g.dtype(), DType::kF32) << kOp << ": g " << args.g;
  CHECK(IsFloat(args.m) && args.m.dtype() == args.v.dtype())
      << kOp << ": m " << args.m << ", v " << args.v;
  CheckElements(kOp, "p", args.p, "g", args.g);
  CheckElements(kOp, "m", args.m, "p", args.p);
  CheckElements(kOp, "v", args.v, "p", args.p);
  if (!args.mantissa.empty()) {
    CHECK(args.p.dtype() == DType::kBF16 && args.mantissa.dtype() == DType::kU16)
        << kOp << ": p " << args.p << ", mantissa " << args.mantissa;
    CheckElements(kOp, "mantissa", args.mantissa, "p", args.p);
  }
  CheckTensor(kOp, "rates", args.rates, DType::kF32, {3});
  CheckGuard(kOp, args.guard);
  const TraceScope scope(kOp, queue, [&] { return AdamUpdateCost(args); });
  queue.ops().optimizer->AdamUpdate(args, queue);
}

void AdamFlat(const AdamFlatArgs& args, Queue& queue) {
  constexpr char kOp[] = "AdamFlat";
  CHECK(!args.p.empty()) << kOp << ": no parameter";
  int64_t elements = 0;
  for (const Tensor& p : args.p) {
    CHECK(IsFloat(p) && p.rank() == 1 && p.dtype() == args.p[0].dtype())
        << kOp << ": p " << p << " beside " << args.p[0];
    elements += p.size();
  }
  CheckRank(kOp, "g", args.g, DType::kF32, 1);
  CHECK_EQ(args.g.size(), elements) << kOp << ": " << args.p.size() << " parameters with "
                                    << elements << " elements, g " << args.g;
  CHECK(IsFloat(args.m) && args.m.dtype() == args.v.dtype())
      << kOp << ": m " << args.m << ", v " << args.v;
  CheckElements(kOp, "m", args.m, "g", args.g);
  CheckElements(kOp, "v", args.v, "g", args.g);
  CheckTensor(kOp, "rates", args.rates, DType::kF32, {static_cast<int64_t>(args.p.size()), 6});
  CheckGuard(kOp, args.guard);
  const TraceScope scope(kOp, queue, [&] { return AdamFlatCost(args); });
  queue.ops().optimizer->AdamFlat(args, queue);
}

void MomentumUpdate(const MomentumArgs& args, Queue& queue) {
  constexpr char kOp[] = "MomentumUpdate";
  const auto& [g, m, mu, guard, u, gradient] = args;
  CHECK_EQ(g.dtype(), DType::kF32) << kOp << ": g " << g;
  CHECK(IsFloat(m)) << kOp << ": m " << m;
  CHECK_EQ(u.dtype(), DType::kBF16) << kOp << ": u " << u;
  CheckElements(kOp, "m", m, "g", g);
  CheckElements(kOp, "u", u, "g", g);
  CHECK(mu.dtype() == DType::kF32 && mu.size() == 1) << kOp << ": mu " << mu;
  CheckGuard(kOp, guard);
  CHECK(gradient == DType::kF32 || gradient == DType::kBF16) << kOp << ": gradient " << gradient;
  const TraceScope scope(kOp, queue, [&] { return MomentumUpdateCost(args); });
  queue.ops().optimizer->MomentumUpdate(args, queue);
}

void NormalizeFrobenius(Tensor u, float scale, float eps, Tensor x, Queue& queue) {
  constexpr char kOp[] = "NormalizeFrobenius";
  CheckRank(kOp, "u", u, DType::kBF16, 3);
  CheckLike(kOp, "x", x, DType::kBF16, "u", u);
  CHECK_GT(eps, 0.0f) << kOp << ": a zero matrix would become NaN";
  const TraceScope scope(kOp, queue, [&] { return NormalizeFrobeniusCost(u); });
  queue.ops().optimizer->NormalizeFrobenius(u, scale, eps, x, queue);
}

void TwinRailUpdate(const TwinRailArgs& args, Queue& queue) {
  constexpr char kOp[] = "TwinRailUpdate";
  CheckRank(kOp, "g", args.g, DType::kF32, 1);
  CheckLike(kOp, "fast", args.fast, DType::kF32, "g", args.g);
  CheckLike(kOp, "slow", args.slow, DType::kF32, "g", args.g);
  CheckLike(kOp, "u", args.u, DType::kBF16, "g", args.g);
  CheckTensor(kOp, "rates", args.rates, DType::kF32, {3});
  CHECK(args.slow_rate > 0 && args.slow_rate <= 1) << kOp << ": slow_rate " << args.slow_rate;
  CHECK(args.gradient == DType::kF32 || args.gradient == DType::kBF16)
      << kOp << ": gradient " << args.gradient;
  CheckGuard(kOp, args.guard);
  const TraceScope scope(kOp, queue, [&] { return TwinRailUpdateCost(args); });
  queue.ops().optimizer->TwinRailUpdate(args, queue);
}

void NormalizeByGram(const GramNormArgs& args, Queue& queue) {
  constexpr char kOp[] = "NormalizeByGram";
  const Tensor& u = args.u;
  CheckRank(kOp, "u", u, DType::kBF16, 3);
  CheckLike(kOp, "x", args.x, DType::kBF16, "u", u);
  const int64_t side = std::min(u.dim(1), u.dim(2));
  CheckTensor(kOp, "gram", args.gram, DType::kBF16, {u.dim(0), side, side});
  CHECK_GT(args.eps, 0.0f) << kOp << ": a zero matrix would become NaN";
  const TraceScope scope(kOp, queue, [&] { return NormalizeByGramCost(args); });
  queue.ops().optimizer->NormalizeByGram(args, queue);
}

void NormalizeBySecondMoment(const SecondMomentArgs& args, Queue& queue) {
  constexpr char kOp[] = "NormalizeBySecondMoment";
  const Tensor &o = args.o, &w = args.w;
  CheckRank(kOp, "o", o, DType::kBF16, 3);
  CheckLike(kOp, "p", args.p, DType::kBF16, "o", o);
  CHECK(IsFloat(w) && w.rank() == 2 && w.dim(0) == o.dim(0) &&
        w.dim(1) == o.dim(args.per_row ? 1 : 2))
      << kOp << ": w " << w << ", o " << o << (args.per_row ? ", per row" : ", per column");
  CHECK(args.beta2 >= 0 && args.beta2 < 1) << kOp << ": beta2 " << args.beta2;
  CHECK_GT(args.floor, 0.0f) << kOp << ": a column of zeros would become NaN";
  CheckGuard(kOp, args.guard);
  const TraceScope scope(kOp, queue, [&] { return NormalizeBySecondMomentCost(args); });
  queue.ops().optimizer->NormalizeBySecondMoment(args, queue);
}

void MatrixUpdate(const MatrixUpdateArgs& args, Queue& queue) {
  constexpr char kOp[] = "MatrixUpdate";
  CHECK(IsFloat(args.p) && args.p.rank() == 3) << kOp << ": p " << args.p;
  CheckLike(kOp, "o", args.o, DType::kBF16, "p", args.p);
  CheckTensor(kOp, "lr", args.lr, DType::kF32, {args.p.dim(0)});
  CheckTensor(kOp, "decay", args.decay, DType::kF32, {args.p.dim(0)});
  CheckGuard(kOp, args.guard);
  const TraceScope scope(kOp, queue, [&] { return MatrixUpdateCost(args); });
  queue.ops().optimizer->MatrixUpdate(args, queue);
}

void SplitMatrixUpdate(const SplitMatrixArgs& args, Queue& queue) {
  constexpr char kOp[] = "SplitMatrixUpdate";
  CheckRank(kOp, "p", args.p, DType::kBF16, 3);
  CheckLike(kOp, "mantissa", args.mantissa, DType::kU16, "p", args.p);
  CheckLike(kOp, "o", args.o, DType::kBF16, "p", args.p);
  if (!args.gate.empty()) {
    CHECK(args.cautious) << kOp << ": a gate without cautious";
    CheckLike(kOp, "gate", args.gate, DType::kF32, "p", args.p);
  }
  CheckTensor(kOp, "lr", args.lr, DType::kF32, {args.p.dim(0)});
  CheckTensor(kOp, "decay", args.decay, DType::kF32, {args.p.dim(0)});
  CheckGuard(kOp, args.guard);
  const TraceScope scope(kOp, queue, [&] { return SplitMatrixUpdateCost(args); });
  queue.ops().optimizer->SplitMatrixUpdate(args, queue);
}

OpCost AdamUpdateCost(const AdamArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.p),
                    2 * Bytes(args.p) + Bytes(args.g) + 2 * Bytes(args.m) + 2 * Bytes(args.v) +
                        2 * Bytes(args.mantissa) + Bytes(args.rates));
}

OpCost AdamFlatCost(const AdamFlatArgs& args) {
  double weights = 0;
  for (const Tensor& p : args.p) weights += Bytes(p);
  return MemoryCost(
      OpPhase::kOptimizer, Text(args.g),
      2 * weights + Bytes(args.g) + 2 * Bytes(args.m) + 2 * Bytes(args.v) + Bytes(args.rates));
}

OpCost MomentumUpdateCost(const MomentumArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.g),
                    Bytes(args.g) + 2 * Bytes(args.m) + Bytes(args.u));
}

OpCost NormalizeFrobeniusCost(const Tensor& u) {
  return MemoryCost(OpPhase::kOptimizer, Text(u), 2 * Bytes(u));
}

OpCost TwinRailUpdateCost(const TwinRailArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.g),
                    Bytes(args.g) + 2 * Bytes(args.fast) + 2 * Bytes(args.slow) + Bytes(args.u));
}

// The Gram matrix is read twice, for its norm and to be rescaled.
OpCost NormalizeByGramCost(const GramNormArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.u),
                    Bytes(args.u) + Bytes(args.x) + 3 * Bytes(args.gram));
}

OpCost NormalizeBySecondMomentCost(const SecondMomentArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.o),
                    2 * Bytes(args.o) + Bytes(args.p) + 2 * Bytes(args.w));
}

OpCost MatrixUpdateCost(const MatrixUpdateArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.p),
                    2 * Bytes(args.p) + Bytes(args.o) + Bytes(args.lr) + Bytes(args.decay));
}

OpCost SplitMatrixUpdateCost(const SplitMatrixArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.p),
                    2 * Bytes(args.p) + 2 * Bytes(args.mantissa) + Bytes(args.o) +
                        Bytes(args.gate) + Bytes(args.lr) + Bytes(args.decay));
}

}  // namespace kernels
