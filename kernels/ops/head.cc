#include "kernels/ops/head.h"

#include "kernels/ops/checks.h"
#include "kernels/ops/cost_terms.h"
#include "kernels/ops/trace_scope.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

void CheckInputs(const char* op, const HeadArgs& args) {
  const Tensor& x = args.x;
  const Tensor& w = args.w;
  CheckRank(op, "x", x, DType::kBF16, 3);
  CheckRank(op, "w", w, DType::kBF16, 2);
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

void CheckTargetsAndLosses(const char* op, const HeadArgs& args, const Tensor& losses) {
  const int64_t slots = args.x.dim(0), tokens = args.x.dim(1);
  CheckTensor(op, "targets", args.targets, DType::kI32, {slots, tokens});
  CheckTensor(op, "losses", losses, DType::kF32, {slots, tokens});
}

OpCost HeadCost(const HeadArgs& args, int products) {
  OpCost cost;
  cost.phase = OpPhase::kHeadLoss;
  cost.shape = Text(args.x, args.w);
  cost.flops = products * ProductFlops(args.x.rows(), args.w.dim(0), args.w.dim(1));
  cost.fp8 = args.precision.fp8;
  cost.bytes = Bytes(args.x) + Bytes(args.w);
  return cost;
}

}  // namespace

void HeadLoss(const HeadArgs& args, Tensor losses, Queue& queue) {
  constexpr char kOp[] = "HeadLoss";
  CheckInputs(kOp, args);
  CheckTargetsAndLosses(kOp, args, losses);
  CheckWorkspace(kOp, args, queue);
  CHECK(args.loss_weights.empty())
      << kOp << ": loss_weights " << args.loss_weights << " are HeadLossGrad's alone";
  const TraceScope scope(kOp, queue, [&] { return HeadLossCost(args, losses); });
  queue.ops().head->HeadLoss(args, losses, queue);
}

void HeadLossGrad(const HeadArgs& args, Tensor losses, Tensor dx, Tensor dw, Queue& queue) {
  constexpr char kOp[] = "HeadLossGrad";
  CheckInputs(kOp, args);
  CheckTargetsAndLosses(kOp, args, losses);
  CheckWorkspace(kOp, args, queue);
  if (args.precision.fp8) {
    CHECK_GT(args.precision.grad_scale, 0.0f) << kOp << ": fp8 without a scale of the gradient";
  }
  CheckLike(kOp, "dx", dx, DType::kBF16, "x", args.x);
  const Tensor& weights = args.loss_weights;
  CHECK(weights.empty() || (weights.dtype() == DType::kF32 && weights.rank() == 1 &&
                            weights.size() >= 1 && weights.size() <= kMaxLossWeights))
      << kOp << ": loss_weights " << weights << ", of which there are 1 to " << kMaxLossWeights;
  const Tensor& w = args.w;
  CheckLeaves(kOp, "dw", dw, args.x.dim(0), {w.dim(0), w.dim(1)});
  const TraceScope scope(kOp, queue, [&] { return HeadLossGradCost(args, losses, dw); });
  queue.ops().head->HeadLossGrad(args, losses, dx, dw, queue);
}

void HeadLogits(const HeadArgs& args, Tensor logits, Queue& queue) {
  constexpr char kOp[] = "HeadLogits";
  CheckInputs(kOp, args);
  CheckWorkspace(kOp, args, queue);
  const Tensor& x = args.x;
  CHECK_EQ(x.dim(0), 1) << kOp << ": x " << x;
  CheckTensor(kOp, "logits", logits, DType::kF32, {1, x.dim(1), HeadVocab(args)});
  const TraceScope scope(kOp, queue, [&] { return HeadLogitsCost(args, logits); });
  queue.ops().head->HeadLogits(args, logits, queue);
}

int64_t HeadWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab, int64_t dim,
                           const Queue& queue) {
  return queue.ops().head_workspace->HeadWorkspaceBytes(slots, slot_tokens, vocab, dim);
}

OpCost HeadLossCost(const HeadArgs& args, const Tensor& losses) {
  OpCost cost = HeadCost(args, 1);
  cost.bytes += Bytes(args.targets) + Bytes(losses);
  return cost;
}

OpCost HeadLossGradCost(const HeadArgs& args, const Tensor& losses, const Tensor& dw) {
  OpCost cost = HeadCost(args, 3);
  cost.bytes += Bytes(args.targets) + Bytes(args.loss_weights) + Bytes(losses) + Bytes(args.x) +
                2 * Bytes(dw);
  return cost;
}

OpCost HeadLogitsCost(const HeadArgs& args, const Tensor& logits) {
  OpCost cost = HeadCost(args, 1);
  cost.bytes += Bytes(logits);
  return cost;
}

}  // namespace kernels
