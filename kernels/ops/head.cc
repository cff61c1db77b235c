#include "kernels/ops/head.h"

#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

void CheckInputs(const char* op, const HeadArgs& args) {
  const Tensor& x = args.x;
  const Tensor& w = args.w;
  CHECK(x.rank() == 3 && x.dtype() == DType::kBF16) << op << ": x " << x;
  CHECK(w.rank() == 2 && w.dtype() == DType::kBF16) << op << ": w " << w;
  CHECK_EQ(x.cols(), w.dim(args.w_transposed ? 0 : 1))
      << op << ": x " << x << ", w " << w << (args.w_transposed ? ", transposed" : "");
  CHECK_GT(args.softcap, 0.0f) << op;
  CHECK(args.softcap_kind == SoftCap::kIsru || args.softcap_temperature > 0.0f)
      << op << ": softcap_temperature " << args.softcap_temperature << " is not positive";
  if (!args.precision.fp8) return;
  CHECK_GT(args.precision.x_scale, 0.0f) << op << ": fp8 without a scale of x";
  CHECK_GT(args.precision.w_scale, 0.0f) << op << ": fp8 without a scale of w";
}

void CheckWorkspace(const char* op, const HeadArgs& args, const Queue& queue) {
  const Tensor& x = args.x;
  const int64_t need = HeadWorkspaceBytes(x.dim(0), x.dim(1), HeadVocab(args), x.cols(), queue);
  CHECK(!args.workspace.empty() && args.workspace.bytes() >= need)
      << op << ": workspace " << args.workspace << " holds fewer than the " << need
      << " bytes that x " << x << ", w " << args.w << " need";
}

void CheckRows(const char* op, const char* what, const Tensor& rows, DType dtype, const Tensor& x) {
  CHECK(rows.dtype() == dtype && rows.rank() == 2 && rows.dim(0) == x.dim(0) &&
        rows.dim(1) == x.dim(1))
      << op << ": " << what << " " << rows << ", x " << x;
}

}  // namespace

void HeadLoss(const HeadArgs& args, Tensor losses, Queue& queue) {
  constexpr char kOp[] = "HeadLoss";
  CheckInputs(kOp, args);
  CheckRows(kOp, "targets", args.targets, DType::kI32, args.x);
  CheckRows(kOp, "losses", losses, DType::kF32, args.x);
  CheckWorkspace(kOp, args, queue);
  CHECK(args.loss_weights.empty())
      << kOp << ": loss_weights " << args.loss_weights << " are HeadLossGrad's alone";
  queue.ops().head->HeadLoss(args, losses, queue);
}

void HeadLossGrad(const HeadArgs& args, Tensor losses, Tensor dx, Tensor dw, Queue& queue) {
  constexpr char kOp[] = "HeadLossGrad";
  CheckInputs(kOp, args);
  CheckRows(kOp, "targets", args.targets, DType::kI32, args.x);
  CheckRows(kOp, "losses", losses, DType::kF32, args.x);
  CheckWorkspace(kOp, args, queue);
  if (args.precision.fp8) {
    CHECK_GT(args.precision.grad_scale, 0.0f) << kOp << ": fp8 without a scale of the gradient";
  }
  CHECK(dx.dtype() == DType::kBF16 && SameShape(dx, args.x))
      << kOp << ": dx " << dx << ", x " << args.x;
  const Tensor& weights = args.loss_weights;
  CHECK(weights.empty() || (weights.dtype() == DType::kF32 && weights.rank() == 1 &&
                            weights.size() >= 1 && weights.size() <= kMaxLossWeights))
      << kOp << ": loss_weights " << weights << ", of which there are 1 to " << kMaxLossWeights;
  const Tensor& w = args.w;
  CHECK(dw.dtype() == DType::kF32 && dw.rank() == 3 && dw.dim(1) == w.dim(0) &&
        dw.dim(2) == w.dim(1))
      << kOp << ": dw " << dw << ", w " << w;
  CHECK(dw.dim(0) == 1 || dw.dim(0) == args.x.dim(0))
      << kOp << ": dw " << dw << " has neither one leaf nor one per slot of x " << args.x;
  queue.ops().head->HeadLossGrad(args, losses, dx, dw, queue);
}

void HeadLogits(const HeadArgs& args, Tensor logits, Queue& queue) {
  constexpr char kOp[] = "HeadLogits";
  CheckInputs(kOp, args);
  CheckWorkspace(kOp, args, queue);
  const Tensor& x = args.x;
  CHECK_EQ(x.dim(0), 1) << kOp << ": x " << x;
  CHECK(logits.dtype() == DType::kF32 && logits.rank() == 3 && logits.dim(0) == 1 &&
        logits.dim(1) == x.dim(1) && logits.dim(2) == HeadVocab(args))
      << kOp << ": logits " << logits << ", x " << x << ", w " << args.w;
  queue.ops().head->HeadLogits(args, logits, queue);
}

int64_t HeadWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab, int64_t dim,
                           const Queue& queue) {
  return queue.ops().head->HeadWorkspaceBytes(slots, slot_tokens, vocab, dim);
}

}  // namespace kernels
