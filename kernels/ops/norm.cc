#include "kernels/ops/norm.h"

#include "kernels/ops/checks.h"
#include "kernels/ops/cost_terms.h"
#include "kernels/ops/trace_scope.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

// A tensor that is bf16 like x, or empty.
void CheckOptional(const char* op, const char* name, const Tensor& tensor, const Tensor& x) {
  if (tensor) CheckLike(op, name, tensor, DType::kBF16, "x", x);
}

void CheckNorm(const char* op, const Tensor& x, const Tensor& inv_rms) {
  CheckRank(op, "x", x, DType::kBF16, 3);
  CheckTensor(op, "inv_rms", inv_rms, DType::kF32, {x.dim(0), x.dim(1)});
}

void CheckScalars(const char* op, const Tensor& scalars, const MixScalars& which,
                  const Tensor& saved) {
  CheckRank(op, "scalars", scalars, DType::kF32, 1);
  const int64_t n = scalars.size();
  CHECK(which.lambda_x >= -1 && which.lambda_x < n && which.lambda_x0 >= 0 && which.lambda_x0 < n)
      << op << ": lambdas " << which.lambda_x << ", " << which.lambda_x0 << " of " << scalars;
  CHECK_LT(which.skip, n) << op << ": scalars " << scalars;
  CHECK_EQ(which.skip >= 0, !saved.empty()) << op << ": saved " << saved;
}

}  // namespace

void RmsNorm(Tensor x, Tensor y, Tensor inv_rms, Queue& queue) {
  constexpr char kOp[] = "RmsNorm";
  CheckNorm(kOp, x, inv_rms);
  CheckLike(kOp, "y", y, DType::kBF16, "x", x);
  const TraceScope scope(kOp, queue, [&] { return RmsNormCost(x, inv_rms); });
  queue.ops().norm->RmsNorm(x, y, inv_rms, queue);
}

void RmsNormGrad(const RmsNormGradArgs& args, Queue& queue) {
  constexpr char kOp[] = "RmsNormGrad";
  CheckNorm(kOp, args.x, args.inv_rms);
  CheckLike(kOp, "dy", args.dy, DType::kBF16, "x", args.x);
  CheckOptional(kOp, "residual", args.residual, args.x);
  CheckLike(kOp, "dx", args.dx, DType::kBF16, "x", args.x);
  const TraceScope scope(kOp, queue, [&] { return RmsNormGradCost(args); });
  queue.ops().norm->RmsNormGrad(args, queue);
}

void MixNorm(const MixNormArgs& args, Queue& queue) {
  constexpr char kOp[] = "MixNorm";
  const Tensor& x = args.x;
  CheckRank(kOp, "x", x, DType::kBF16, 3);
  CheckLike(kOp, "x0", args.x0, DType::kBF16, "x", x);
  CheckOptional(kOp, "saved", args.saved, x);
  CheckLike(kOp, "mixed", args.mixed, DType::kBF16, "x", x);
  CHECK_EQ(args.u.empty(), args.inv_rms.empty()) << kOp << ": u and inv_rms go together";
  CheckOptional(kOp, "u", args.u, x);
  if (args.u) CheckNorm(kOp, x, args.inv_rms);
  CHECK(args.mixed.data() != x.data()) << kOp << ": mixed may not be x";
  CheckScalars(kOp, args.scalars, args.which, args.saved);
  const TraceScope scope(kOp, queue, [&] { return MixNormCost(args); });
  queue.ops().norm->MixNorm(args, queue);
}

void MixNormGrad(const MixNormGradArgs& a, Queue& queue) {
  constexpr char kOp[] = "MixNormGrad";
  CheckRank(kOp, "x", a.x, DType::kBF16, 3);
  CheckOptional(kOp, "dresidual", a.dresidual, a.x);
  if (a.du) {
    CheckNorm(kOp, a.x, a.inv_rms);
    CheckLike(kOp, "du", a.du, DType::kBF16, "x", a.x);
  } else {
    CHECK(a.dresidual && a.du_head.empty() && a.inv_rms.empty())
        << kOp << ": without du there is no norm, hence dresidual, but no du_head and inv_rms";
  }
  CheckLike(kOp, "x0", a.x0, DType::kBF16, "x", a.x);
  CheckLike(kOp, "dx", a.dx, DType::kBF16, "x", a.x);
  CheckLike(kOp, "dx0", a.dx0, DType::kBF16, "x", a.x);
  CheckOptional(kOp, "saved", a.saved, a.x);
  CHECK_EQ(a.saved.empty(), a.dsaved.empty()) << kOp << ": saved and dsaved go together";
  CheckOptional(kOp, "dsaved", a.dsaved, a.x);
  CheckOptional(kOp, "dx_extra", a.dx_extra, a.x);
  if (a.du_head) {
    CheckRank(kOp, "du_head", a.du_head, DType::kF32, 3);
    CHECK(a.du_head.dim(0) == a.x.dim(0) && a.du_head.dim(1) == a.x.dim(1) &&
          a.du_head.dim(2) <= a.x.dim(2))
        << kOp << ": du_head " << a.du_head << ", x " << a.x;
  }
  CheckScalars(kOp, a.scalars, a.which, a.saved);
  CheckLeaves(kOp, "dscalars", a.dscalars, a.x.dim(0), {a.scalars.size()});
  const TraceScope scope(kOp, queue, [&] { return MixNormGradCost(a); });
  queue.ops().norm->MixNormGrad(a, queue);
}

OpCost RmsNormCost(const Tensor& x, const Tensor& inv_rms) {
  return MemoryCost(OpPhase::kNormElementwise, Text(x), 2 * Bytes(x) + Bytes(inv_rms));
}

OpCost RmsNormGradCost(const RmsNormGradArgs& args) {
  return MemoryCost(OpPhase::kNormElementwise, Text(args.dy),
                    3 * Bytes(args.dy) + Bytes(args.inv_rms) + Bytes(args.residual));
}

OpCost MixNormCost(const MixNormArgs& args) {
  // x, x0 in; mixed and, if there is a norm, u out.
  return MemoryCost(OpPhase::kNormElementwise, Text(args.x) + (args.saved ? ", skip" : ""),
                    (args.inv_rms ? 4 : 3) * Bytes(args.x) + Bytes(args.saved) +
                        Bytes(args.scalars) + Bytes(args.inv_rms));
}

OpCost MixNormGradCost(const MixNormGradArgs& args) {
  double bytes = 0;
  for (const Tensor* read : {&args.dresidual, &args.du, &args.du_head, &args.inv_rms, &args.x,
                             &args.x0, &args.saved, &args.scalars, &args.dx_extra}) {
    bytes += Bytes(*read);
  }
  bytes += Bytes(args.dx) + Bytes(args.dsaved) + 2 * Bytes(args.dx0) + 2 * Bytes(args.dscalars);
  return MemoryCost(OpPhase::kNormElementwise,
                    Text(args.x) + (args.saved ? ", skip" : "") + (args.dx_extra ? ", extra" : ""),
                    bytes);
}

}  // namespace kernels
