#include "kernels/ops/optimizer.h"

#include <algorithm>

#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

bool IsFloat(const Tensor& t) { return t.dtype() == DType::kF32 || t.dtype() == DType::kBF16; }

void CheckElements(const char* op, const char* what, const Tensor& t, const Tensor& like) {
  CHECK(t.rank() == 1 && SameShape(t, like))
      << op << ": " << what << " " << t << " beside " << like;
}

void CheckGuard(const char* op, const Tensor& guard) {
  if (guard.empty()) return;
  CHECK(guard.dtype() == DType::kI32 && guard.size() == 1) << op << ": guard " << guard;
}

void CheckPerMatrix(const char* op, const char* what, const Tensor& t, const Tensor& p) {
  CHECK(t.dtype() == DType::kF32 && t.rank() == 1 && t.dim(0) == p.dim(0))
      << op << ": " << what << " " << t << ", p " << p;
}

}  // namespace

void AdamUpdate(const AdamArgs& args, Queue& queue) {
  constexpr char kOp[] = "AdamUpdate";
  CHECK(IsFloat(args.p)) << kOp << ": p " << args.p;
  CHECK_EQ(args.g.dtype(), DType::kF32) << kOp << ": g " << args.g;
  CHECK(IsFloat(args.m) && args.m.dtype() == args.v.dtype())
      << kOp << ": m " << args.m << ", v " << args.v;
  CheckElements(kOp, "p", args.p, args.g);
  CheckElements(kOp, "m", args.m, args.p);
  CheckElements(kOp, "v", args.v, args.p);
  if (!args.mantissa.empty()) {
    CHECK(args.p.dtype() == DType::kBF16 && args.mantissa.dtype() == DType::kU16)
        << kOp << ": p " << args.p << ", mantissa " << args.mantissa;
    CheckElements(kOp, "mantissa", args.mantissa, args.p);
  }
  CHECK(args.rates.dtype() == DType::kF32 && args.rates.rank() == 1 && args.rates.dim(0) == 3)
      << kOp << ": rates " << args.rates;
  CheckGuard(kOp, args.guard);
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
  CHECK(args.g.dtype() == DType::kF32 && args.g.rank() == 1) << kOp << ": g " << args.g;
  CHECK_EQ(args.g.size(), elements) << kOp << ": " << args.p.size() << " parameters with "
                                    << elements << " elements, g " << args.g;
  CHECK(IsFloat(args.m) && args.m.dtype() == args.v.dtype())
      << kOp << ": m " << args.m << ", v " << args.v;
  CheckElements(kOp, "m", args.m, args.g);
  CheckElements(kOp, "v", args.v, args.g);
  CHECK(args.rates.dtype() == DType::kF32 && args.rates.rank() == 2 &&
        args.rates.dim(0) == static_cast<int64_t>(args.p.size()) && args.rates.dim(1) == 6)
      << kOp << ": rates " << args.rates << " of " << args.p.size() << " parameters";
  CheckGuard(kOp, args.guard);
  queue.ops().optimizer->AdamFlat(args, queue);
}

void MomentumUpdate(const MomentumArgs& args, Queue& queue) {
  constexpr char kOp[] = "MomentumUpdate";
  const auto& [g, m, mu, guard, u, gradient] = args;
  CHECK_EQ(g.dtype(), DType::kF32) << kOp << ": g " << g;
  CHECK(IsFloat(m)) << kOp << ": m " << m;
  CHECK_EQ(u.dtype(), DType::kBF16) << kOp << ": u " << u;
  CheckElements(kOp, "m", m, g);
  CheckElements(kOp, "u", u, g);
  CHECK(mu.dtype() == DType::kF32 && mu.size() == 1) << kOp << ": mu " << mu;
  CheckGuard(kOp, guard);
  CHECK(gradient == DType::kF32 || gradient == DType::kBF16) << kOp << ": gradient " << gradient;
  queue.ops().optimizer->MomentumUpdate(args, queue);
}

void NormalizeFrobenius(Tensor u, float scale, float eps, Tensor x, Queue& queue) {
  constexpr char kOp[] = "NormalizeFrobenius";
  CHECK(u.dtype() == DType::kBF16 && u.rank() == 3) << kOp << ": u " << u;
  CHECK(x.dtype() == DType::kBF16 && SameShape(x, u)) << kOp << ": x " << x << ", u " << u;
  CHECK_GT(eps, 0.0f) << kOp << ": a zero matrix would become NaN";
  queue.ops().optimizer->NormalizeFrobenius(u, scale, eps, x, queue);
}

void TwinRailUpdate(const TwinRailArgs& args, Queue& queue) {
  constexpr char kOp[] = "TwinRailUpdate";
  const Tensor &g = args.g, &rates = args.rates;
  for (const Tensor* t : {&g, &args.fast, &args.slow}) {
    CHECK_EQ(t->dtype(), DType::kF32) << kOp << ": " << *t;
  }
  CHECK_EQ(args.u.dtype(), DType::kBF16) << kOp << ": u " << args.u;
  CheckElements(kOp, "fast", args.fast, g);
  CheckElements(kOp, "slow", args.slow, g);
  CheckElements(kOp, "u", args.u, g);
  CHECK(rates.dtype() == DType::kF32 && rates.rank() == 1 && rates.dim(0) == 3)
      << kOp << ": rates " << rates;
  CHECK(args.slow_rate > 0 && args.slow_rate <= 1) << kOp << ": slow_rate " << args.slow_rate;
  CHECK(args.gradient == DType::kF32 || args.gradient == DType::kBF16)
      << kOp << ": gradient " << args.gradient;
  CheckGuard(kOp, args.guard);
  queue.ops().optimizer->TwinRailUpdate(args, queue);
}

void NormalizeByGram(const GramNormArgs& args, Queue& queue) {
  constexpr char kOp[] = "NormalizeByGram";
  const Tensor &u = args.u, &gram = args.gram;
  CHECK(u.dtype() == DType::kBF16 && u.rank() == 3) << kOp << ": u " << u;
  CHECK(args.x.dtype() == DType::kBF16 && SameShape(args.x, u))
      << kOp << ": x " << args.x << ", u " << u;
  const int64_t side = std::min(u.dim(1), u.dim(2));
  CHECK(gram.dtype() == DType::kBF16 && gram.rank() == 3 && gram.dim(0) == u.dim(0) &&
        gram.dim(1) == side && gram.dim(2) == side)
      << kOp << ": gram " << gram << ", u " << u;
  CHECK_GT(args.eps, 0.0f) << kOp << ": a zero matrix would become NaN";
  queue.ops().optimizer->NormalizeByGram(args, queue);
}

void NormalizeBySecondMoment(const SecondMomentArgs& args, Queue& queue) {
  constexpr char kOp[] = "NormalizeBySecondMoment";
  const Tensor &o = args.o, &w = args.w;
  CHECK(o.dtype() == DType::kBF16 && o.rank() == 3) << kOp << ": o " << o;
  CHECK(args.p.dtype() == DType::kBF16 && SameShape(args.p, o))
      << kOp << ": p " << args.p << ", o " << o;
  CHECK(IsFloat(w) && w.rank() == 2 && w.dim(0) == o.dim(0) &&
        w.dim(1) == o.dim(args.per_row ? 1 : 2))
      << kOp << ": w " << w << ", o " << o << (args.per_row ? ", per row" : ", per column");
  CHECK(args.beta2 >= 0 && args.beta2 < 1) << kOp << ": beta2 " << args.beta2;
  CHECK_GT(args.floor, 0.0f) << kOp << ": a column of zeros would become NaN";
  CheckGuard(kOp, args.guard);
  queue.ops().optimizer->NormalizeBySecondMoment(args, queue);
}

void MatrixUpdate(Tensor p, Tensor o, Tensor lr, Tensor decay, Tensor guard, Queue& queue) {
  constexpr char kOp[] = "MatrixUpdate";
  CHECK(IsFloat(p) && p.rank() == 3) << kOp << ": p " << p;
  CHECK(o.dtype() == DType::kBF16 && SameShape(o, p)) << kOp << ": o " << o << ", p " << p;
  CheckPerMatrix(kOp, "lr", lr, p);
  CheckPerMatrix(kOp, "decay", decay, p);
  CheckGuard(kOp, guard);
  queue.ops().optimizer->MatrixUpdate(p, o, lr, decay, guard, queue);
}

void SplitMatrixUpdate(const SplitMatrixArgs& args, Queue& queue) {
  constexpr char kOp[] = "SplitMatrixUpdate";
  CHECK(args.p.dtype() == DType::kBF16 && args.p.rank() == 3) << kOp << ": p " << args.p;
  CHECK(args.mantissa.dtype() == DType::kU16 && SameShape(args.mantissa, args.p))
      << kOp << ": mantissa " << args.mantissa << ", p " << args.p;
  CHECK(args.o.dtype() == DType::kBF16 && SameShape(args.o, args.p))
      << kOp << ": o " << args.o << ", p " << args.p;
  if (!args.gate.empty()) {
    CHECK(args.cautious) << kOp << ": a gate without cautious";
    CHECK(args.gate.dtype() == DType::kF32 && SameShape(args.gate, args.p))
        << kOp << ": gate " << args.gate << ", p " << args.p;
  }
  CheckPerMatrix(kOp, "lr", args.lr, args.p);
  CheckPerMatrix(kOp, "decay", args.decay, args.p);
  CheckGuard(kOp, args.guard);
  queue.ops().optimizer->SplitMatrixUpdate(args, queue);
}

}  // namespace kernels
