#include "kernels/ops/norm.h"

#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

void CheckRows(const char* op, const char* what, const Tensor& t, const Tensor& x) {
  CHECK(t.dtype() == DType::kBF16 && SameShape(t, x))
      << op << ": " << what << " " << t << ", x " << x;
}

void CheckStream(const char* op, const Tensor& x) {
  CHECK(x.dtype() == DType::kBF16 && x.rank() == 3) << op << ": x " << x;
}

void CheckActivations(const char* op, const Tensor& x, const Tensor& inv_rms) {
  CheckStream(op, x);
  CHECK(inv_rms.dtype() == DType::kF32 && inv_rms.rank() == 2 && inv_rms.dim(0) == x.dim(0) &&
        inv_rms.dim(1) == x.dim(1))
      << op << ": inv_rms " << inv_rms << ", x " << x;
}

void CheckScalars(const char* op, const Tensor& scalars, const MixScalars& which,
                  const Tensor& saved) {
  CHECK(scalars.dtype() == DType::kF32 && scalars.rank() == 1) << op << ": scalars " << scalars;
  const int64_t n = scalars.size();
  CHECK(which.lambda_x >= -1 && which.lambda_x < n && which.lambda_x0 >= 0 && which.lambda_x0 < n)
      << op << ": lambdas " << which.lambda_x << ", " << which.lambda_x0 << " of " << scalars;
  CHECK_LT(which.skip, n) << op << ": scalars " << scalars;
  CHECK_EQ(which.skip >= 0, !saved.empty()) << op << ": saved " << saved;
}

}  // namespace

void RmsNorm(Tensor x, Tensor y, Tensor inv_rms, Queue& queue) {
  CheckActivations("RmsNorm", x, inv_rms);
  CheckRows("RmsNorm", "y", y, x);
  queue.ops().norm->RmsNorm(x, y, inv_rms, queue);
}

void RmsNormGrad(Tensor dy, Tensor x, Tensor inv_rms, Tensor residual, Tensor dx, Queue& queue) {
  CheckActivations("RmsNormGrad", x, inv_rms);
  CheckRows("RmsNormGrad", "dy", dy, x);
  if (residual) CheckRows("RmsNormGrad", "residual", residual, x);
  CheckRows("RmsNormGrad", "dx", dx, x);
  queue.ops().norm->RmsNormGrad(dy, x, inv_rms, residual, dx, queue);
}

void MixNorm(Tensor x, Tensor x0, Tensor saved, Tensor scalars, MixScalars which, Tensor mixed,
             Tensor u, Tensor inv_rms, Queue& queue) {
  CheckStream("MixNorm", x);
  CheckRows("MixNorm", "x0", x0, x);
  if (saved) CheckRows("MixNorm", "saved", saved, x);
  CheckRows("MixNorm", "mixed", mixed, x);
  CHECK_EQ(u.empty(), inv_rms.empty()) << "MixNorm: u and inv_rms go together";
  if (u) {
    CheckActivations("MixNorm", x, inv_rms);
    CheckRows("MixNorm", "u", u, x);
  }
  CHECK(mixed.data() != x.data()) << "MixNorm: mixed may not be x";
  CheckScalars("MixNorm", scalars, which, saved);
  queue.ops().norm->MixNorm(x, x0, saved, scalars, which, mixed, u, inv_rms, queue);
}

void MixNormGrad(const MixNormGradArgs& a, Queue& queue) {
  constexpr char kOp[] = "MixNormGrad";
  CheckStream(kOp, a.x);
  if (a.dresidual) CheckRows(kOp, "dresidual", a.dresidual, a.x);
  if (a.du) {
    CheckActivations(kOp, a.x, a.inv_rms);
    CheckRows(kOp, "du", a.du, a.x);
  } else {
    CHECK(a.dresidual && a.du_head.empty() && a.inv_rms.empty())
        << kOp << ": without du there is no norm, hence dresidual, but no du_head and inv_rms";
  }
  CheckRows(kOp, "x0", a.x0, a.x);
  CheckRows(kOp, "dx", a.dx, a.x);
  CheckRows(kOp, "dx0", a.dx0, a.x);
  if (a.saved) CheckRows(kOp, "saved", a.saved, a.x);
  CHECK_EQ(a.saved.empty(), a.dsaved.empty()) << kOp << ": saved and dsaved go together";
  if (a.dsaved) CheckRows(kOp, "dsaved", a.dsaved, a.x);
  if (a.dx_extra) CheckRows(kOp, "dx_extra", a.dx_extra, a.x);
  if (a.du_head) {
    CHECK(a.du_head.dtype() == DType::kF32 && a.du_head.rank() == 3 &&
          a.du_head.dim(0) == a.x.dim(0) && a.du_head.dim(1) == a.x.dim(1) &&
          a.du_head.dim(2) <= a.x.dim(2))
        << kOp << ": du_head " << a.du_head << ", x " << a.x;
  }
  CheckScalars(kOp, a.scalars, a.which, a.saved);
  CHECK(a.dscalars.dtype() == DType::kF32 && a.dscalars.rank() == 2 &&
        a.dscalars.dim(1) == a.scalars.size() &&
        (a.dscalars.dim(0) == 1 || a.dscalars.dim(0) == a.x.dim(0)))
      << kOp << ": dscalars " << a.dscalars << ", scalars " << a.scalars << ", x " << a.x;
  queue.ops().norm->MixNormGrad(a, queue);
}

}  // namespace kernels
