#include "kernels/ops/qkv.h"

#include <vector>

#include "kernels/ops/checks.h"
#include "kernels/ops/cost_terms.h"
#include "kernels/ops/trace_scope.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

void CheckQkv(const char* op, const QkvArgs& args) {
  const Tensor& qkv = args.qkv;
  CheckRank(op, "qkv", qkv, DType::kBF16, 3);
  CHECK_GT(args.heads, 0) << op;
  // Halves of a head are whole, and so are q, k and v.
  CHECK_EQ(qkv.dim(2) % (3 * 2 * args.heads), 0)
      << op << ": qkv " << qkv << ", heads " << args.heads;
  const int64_t slots = qkv.dim(0);
  const int64_t tokens = qkv.dim(1);
  const int64_t dim = qkv.dim(2) / 3;
  const int64_t half = dim / args.heads / 2;
  CHECK(IsFloat(args.cos)) << op << ": cos " << args.cos;
  CHECK(args.cos.rank() == 2 && args.cos.dim(0) >= tokens && args.cos.dim(1) == half)
      << op << ": cos " << args.cos << ", qkv " << qkv << ", heads " << args.heads;
  CheckLike(op, "sin", args.sin, args.cos.dtype(), "cos", args.cos);
  CheckRank(op, "scalars", args.scalars, DType::kF32, 1);
  const int used = args.value_table ? 2 : 1;
  CHECK(args.value_lambda >= 0 && args.value_lambda + used <= args.scalars.size())
      << op << ": value_lambda " << args.value_lambda << ", scalars " << args.scalars;
  if (args.value_table) {
    const Tensor& table = args.value_table;
    CheckRank(op, "value_table", table, DType::kBF16, 2);
    CHECK_EQ(table.dim(1), dim) << op << ": value_table " << table << ", qkv " << qkv;
    CheckTensor(op, "tokens", args.tokens, DType::kI32, {slots, tokens});
  }
  CheckTensor(op, "inv_rms", args.inv_rms, DType::kF32,
              {slots, tokens, (args.norm_value ? 3 : 2) * args.heads});
}

void CheckGate(const char* op, const Tensor& o, const Tensor& u, const Tensor& gate_w) {
  CheckRank(op, "o", o, DType::kBF16, 3);
  CheckRank(op, "gate_w", gate_w, DType::kBF16, 2);
  CHECK_EQ(o.dim(2) % gate_w.dim(0), 0) << op << ": gate_w " << gate_w << ", o " << o;
  CheckRank(op, "u", u, DType::kBF16, 3);
  CHECK(u.dim(0) == o.dim(0) && u.dim(1) == o.dim(1) && u.dim(2) >= gate_w.dim(1))
      << op << ": u " << u << ", o " << o << ", gate_w " << gate_w;
}

}  // namespace

void QkvSplitNormRotary(const QkvArgs& args, Queue& queue) {
  constexpr char kOp[] = "QkvSplitNormRotary";
  CheckQkv(kOp, args);
  const std::vector<int64_t> dims = {args.qkv.dim(0), args.qkv.dim(1), args.qkv.dim(2) / 3};
  CheckTensor(kOp, "q", args.q, DType::kBF16, dims);
  CheckTensor(kOp, "k", args.k, DType::kBF16, dims);
  CheckTensor(kOp, "v", args.v, DType::kBF16, dims);
  const TraceScope scope(kOp, queue, [&] { return QkvSplitNormRotaryCost(args); });
  queue.ops().qkv->QkvSplitNormRotary(args, queue);
}

void QkvSplitNormRotaryGrad(const QkvArgs& forward, const QkvGradArgs& grad, Queue& queue) {
  constexpr char kOp[] = "QkvSplitNormRotaryGrad";
  CheckQkv(kOp, forward);
  const Tensor& qkv = forward.qkv;
  const std::vector<int64_t> dims = {qkv.dim(0), qkv.dim(1), qkv.dim(2) / 3};
  CheckTensor(kOp, "dq", grad.dq, DType::kBF16, dims);
  CheckTensor(kOp, "dk", grad.dk, DType::kBF16, dims);
  CheckTensor(kOp, "dv", grad.dv, DType::kBF16, dims);
  CheckLike(kOp, "dqkv", grad.dqkv, DType::kBF16, "qkv", qkv);
  CHECK_EQ(grad.dvalue_rows.empty(), forward.value_table.empty())
      << kOp << ": dvalue_rows is there exactly with a value_table";
  if (grad.dvalue_rows) CheckTensor(kOp, "dvalue_rows", grad.dvalue_rows, DType::kBF16, dims);
  CheckLeaves(kOp, "dscalars", grad.dscalars, qkv.dim(0), {forward.scalars.size()});
  const TraceScope scope(kOp, queue, [&] { return QkvSplitNormRotaryGradCost(forward, grad); });
  queue.ops().qkv->QkvSplitNormRotaryGrad(forward, grad, queue);
}

void HeadGate(Tensor o, Tensor u, Tensor gate_w, Tensor y, Queue& queue) {
  constexpr char kOp[] = "HeadGate";
  CheckGate(kOp, o, u, gate_w);
  CheckLike(kOp, "y", y, DType::kBF16, "o", o);
  const TraceScope scope(kOp, queue, [&] { return HeadGateCost(o, gate_w); });
  queue.ops().qkv->HeadGate(o, u, gate_w, y, queue);
}

void HeadGateGrad(const HeadGateGradArgs& args, Queue& queue) {
  constexpr char kOp[] = "HeadGateGrad";
  const Tensor &o = args.o, &gate_w = args.gate_w;
  CheckGate(kOp, o, args.u, gate_w);
  CheckLike(kOp, "dy", args.dy, DType::kBF16, "o", o);
  CheckLike(kOp, "do_", args.do_, DType::kBF16, "o", o);
  CheckTensor(kOp, "du_head", args.du_head, DType::kF32, {o.dim(0), o.dim(1), gate_w.dim(1)});
  CheckLeaves(kOp, "dgate_w", args.dgate_w, o.dim(0), {gate_w.size()});
  const TraceScope scope(kOp, queue, [&] { return HeadGateGradCost(args); });
  queue.ops().qkv->HeadGateGrad(args, queue);
}

OpCost QkvSplitNormRotaryCost(const QkvArgs& args) {
  // The rows of cos and sin up to the slot's length.
  const double rotary =
      2.0 * args.qkv.dim(1) * args.cos.cols() * static_cast<double>(SizeOf(args.cos.dtype()));
  return MemoryCost(OpPhase::kNormElementwise, Text(args.qkv) + (args.value_table ? ", value" : ""),
                    2 * Bytes(args.qkv) + rotary + Bytes(args.inv_rms) + Bytes(args.scalars) +
                        (args.value_table ? Bytes(args.tokens) : 0) +
                        NamedRowBytes(args.tokens, args.value_table));
}

OpCost QkvSplitNormRotaryGradCost(const QkvArgs& forward, const QkvGradArgs& grad) {
  OpCost cost = QkvSplitNormRotaryCost(forward);
  // Beside the forward's inputs dq, dk, dv are read, and dqkv is written.
  cost.bytes += Bytes(forward.qkv) + 2 * Bytes(grad.dvalue_rows) + 2 * Bytes(grad.dscalars);
  return cost;
}

OpCost HeadGateCost(const Tensor& o, const Tensor& gate_w) {
  return MemoryCost(OpPhase::kNormElementwise, Text(o),
                    2 * Bytes(o) + GateFeatureBytes(o, gate_w) + Bytes(gate_w));
}

OpCost HeadGateGradCost(const HeadGateGradArgs& args) {
  OpCost cost = HeadGateCost(args.o, args.gate_w);
  cost.bytes += Bytes(args.o) + Bytes(args.du_head) + 2 * Bytes(args.dgate_w);
  return cost;
}

}  // namespace kernels
