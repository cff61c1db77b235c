#include "kernels/ops/gated.h"

#include <vector>

#include "kernels/ops/checks.h"
#include "kernels/ops/cost_terms.h"
#include "kernels/ops/trace_scope.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

// [rows, n] weights that read the first n of `dim` features.
void CheckGate(const char* op, const Tensor& gate, int64_t rows, int64_t dim) {
  CHECK(gate) << op << ": the gate's weights are empty";
  CheckRank(op, "gate", gate, DType::kBF16, 2);
  CHECK(gate.dim(0) == rows && gate.dim(1) > 0 && gate.dim(1) <= dim)
      << op << ": gate " << gate << ", wanted " << rows << " rows of 1 to " << dim << " features";
}

// [slots, T, D] of q, k or v.
std::vector<int64_t> PartDims(const GatedQkvArgs& args) {
  return {args.qkv.dim(0), args.qkv.dim(1), args.qkv.dim(2) / 3};
}

void CheckRotary(const char* op, const GatedQkvArgs& args) {
  const int64_t positions = args.qkv.dim(1) * (args.paired ? 2 : 1);
  const int64_t pairs = args.qkv.dim(2) / 3 / args.heads / 2;
  CheckRank(op, "cos", args.cos, DType::kBF16, 2);
  CHECK(args.cos.dim(0) >= positions && args.cos.dim(1) == pairs)
      << op << ": cos " << args.cos << ", wanted at least " << positions << " positions of "
      << pairs << "; qkv " << args.qkv << ", heads " << args.heads;
  CheckLike(op, "sin", args.sin, DType::kBF16, "cos", args.cos);
}

void CheckQkv(const char* op, const GatedQkvArgs& args) {
  const Tensor& qkv = args.qkv;
  CheckRank(op, "qkv", qkv, DType::kBF16, 3);
  CHECK_GT(args.heads, 0) << op;
  // Quarters of a head are whole pairs, and q, k and v have whole heads.
  CHECK_EQ(qkv.dim(2) % (3 * 8 * args.heads), 0)
      << op << ": qkv " << qkv << ", heads " << args.heads;
  CHECK(!args.paired || args.heads % 2 == 0) << op << ": " << args.heads << " heads in pairs";
  CHECK(!(args.paired && args.key_offset)) << op << ": key_offset with paired heads";
  CheckRotary(op, args);
  const std::vector<int64_t> dims = PartDims(args);
  CheckTensor(op, "inv_rms", args.inv_rms, DType::kF32, {dims[0], dims[1], 2 * args.heads});
  if (!args.value_table) return;
  const Tensor& table = args.value_table;
  CheckRank(op, "value_table", table, DType::kBF16, 2);
  CHECK_EQ(table.dim(1), dims[2]) << op << ": value_table " << table << ", qkv " << qkv;
  CheckTensor(op, "tokens", args.tokens, DType::kI32, {dims[0], dims[1]});
  CheckTensor(op, "u", args.u, DType::kBF16, dims);
  CheckGate(op, args.value_gate, args.heads, dims[2]);
}

void CheckSkip(const char* op, const GatedSkipArgs& args, const std::vector<int64_t>& dims) {
  CheckTensor(op, "x0", args.x0, DType::kBF16, dims);
  CheckTensor(op, "saved", args.saved, DType::kBF16, dims);
  CheckGate(op, args.gate, 1, dims[2]);
  CheckRank(op, "scalars", args.scalars, DType::kF32, 1);
  CHECK(args.skip >= 0 && args.skip < args.scalars.size())
      << op << ": skip " << args.skip << ", scalars " << args.scalars;
}

}  // namespace

void GatedQkv(const GatedQkvArgs& args, Queue& queue) {
  constexpr char kOp[] = "GatedQkv";
  CheckQkv(kOp, args);
  const std::vector<int64_t> dims = PartDims(args);
  CheckTensor(kOp, "q", args.q, DType::kBF16, dims);
  CheckTensor(kOp, "k", args.k, DType::kBF16, dims);
  CheckTensor(kOp, "v", args.v, DType::kBF16, dims);
  const TraceScope scope(kOp, queue, [&] { return GatedQkvCost(args); });
  queue.ops().gated->GatedQkv(args, queue);
}

void GatedQkvGrad(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad, Queue& queue) {
  constexpr char kOp[] = "GatedQkvGrad";
  CheckQkv(kOp, forward);
  const std::vector<int64_t> dims = PartDims(forward);
  CheckTensor(kOp, "dq", grad.dq, DType::kBF16, dims);
  CheckTensor(kOp, "dk", grad.dk, DType::kBF16, dims);
  CheckTensor(kOp, "dv", grad.dv, DType::kBF16, dims);
  CheckTensor(kOp, "dqkv", grad.dqkv, DType::kBF16, forward.qkv.dims());
  if (forward.value_table) {
    CheckTensor(kOp, "dvalue_rows", grad.dvalue_rows, DType::kBF16, dims);
    CheckTensor(kOp, "du_head", grad.du_head, DType::kF32,
                {dims[0], dims[1], forward.value_gate.dim(1)});
    CheckLeaves(kOp, "dvalue_gate", grad.dvalue_gate, dims[0], {forward.value_gate.size()});
  } else {
    CHECK(!grad.dvalue_rows && !grad.du_head && !grad.dvalue_gate)
        << kOp << ": gradients of a value table or its gate, without a value_table";
  }
  const TraceScope scope(kOp, queue, [&] { return GatedQkvGradCost(forward, grad); });
  queue.ops().gated->GatedQkvGrad(forward, grad, queue);
}

void GatedSkip(const GatedSkipArgs& args, Queue& queue) {
  constexpr char kOp[] = "GatedSkip";
  CheckRank(kOp, "x", args.x, DType::kBF16, 3);
  CheckSkip(kOp, args, args.x.dims());
  CheckTensor(kOp, "y", args.y, DType::kBF16, args.x.dims());
  const TraceScope scope(kOp, queue, [&] { return GatedSkipCost(args); });
  queue.ops().gated->GatedSkip(args, queue);
}

void GatedSkipGrad(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad, Queue& queue) {
  constexpr char kOp[] = "GatedSkipGrad";
  CheckRank(kOp, "dy", grad.dy, DType::kBF16, 3);
  const std::vector<int64_t> dims = grad.dy.dims();
  CheckSkip(kOp, forward, dims);
  CheckTensor(kOp, "dsaved", grad.dsaved, DType::kBF16, dims);
  CheckTensor(kOp, "dx0", grad.dx0, DType::kBF16, dims);
  CheckLeaves(kOp, "dgate", grad.dgate, dims[0], {forward.gate.size()});
  CheckLeaves(kOp, "dscalars", grad.dscalars, dims[0], {forward.scalars.size()});
  const TraceScope scope(kOp, queue, [&] { return GatedSkipGradCost(forward, grad); });
  queue.ops().gated->GatedSkipGrad(forward, grad, queue);
}

OpCost GatedQkvCost(const GatedQkvArgs& args) {
  const double positions = static_cast<double>(args.qkv.dim(1)) * (args.paired ? 2 : 1);
  const double rotary = 2 * positions * args.cos.cols() * SizeOf(args.cos.dtype());
  double bytes = 2 * Bytes(args.qkv) + rotary + Bytes(args.inv_rms);
  if (args.value_table) {
    bytes += Bytes(args.tokens) + NamedRowBytes(args.tokens, args.value_table) +
             GateFeatureBytes(args.v, args.value_gate) + Bytes(args.value_gate);
  }
  return MemoryCost(OpPhase::kNormElementwise, Text(args.qkv) + (args.value_table ? ", value" : ""),
                    bytes);
}

OpCost GatedQkvGradCost(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad) {
  OpCost cost = GatedQkvCost(forward);
  // Beside the forward's inputs dq, dk, dv are read, and dqkv is written.
  cost.bytes += Bytes(forward.qkv) + 2 * Bytes(grad.dvalue_rows) + 2 * Bytes(grad.du_head) +
                2 * Bytes(grad.dvalue_gate);
  return cost;
}

OpCost GatedSkipCost(const GatedSkipArgs& args) {
  return MemoryCost(OpPhase::kNormElementwise, Text(args.x),
                    3 * Bytes(args.x) + GateFeatureBytes(args.x, args.gate));
}

OpCost GatedSkipGradCost(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad) {
  return MemoryCost(OpPhase::kNormElementwise, Text(grad.dy),
                    3 * Bytes(grad.dy) + 3 * GateFeatureBytes(grad.dy, forward.gate) +
                        2 * Bytes(grad.dgate) + 2 * Bytes(grad.dscalars));
}

}  // namespace kernels
