#include "kernels/ops/gated.h"

#include <vector>

#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

// CHECKs dtype and shape of one argument, `name` of `op`.
void CheckTensor(const char* op, const char* name, const Tensor& tensor, DType dtype,
                 const std::vector<int64_t>& dims) {
  CHECK(tensor) << op << ": " << name << " is empty";
  CHECK_EQ(tensor.dtype(), dtype) << op << ": " << name << " " << tensor;
  CHECK(tensor.dims() == dims) << op << ": " << name << " " << tensor << ", wanted "
                               << Tensor(tensor.data(), dtype, dims, tensor.device());
}

// One leaf for all slots, or one for each.
void CheckLeaves(const char* op, const char* name, const Tensor& grad, int64_t slots,
                 int64_t size) {
  CHECK(grad) << op << ": " << name << " is empty";
  CHECK_EQ(grad.dtype(), DType::kF32) << op << ": " << name << " " << grad;
  CHECK(grad.rank() == 2 && (grad.dim(0) == 1 || grad.dim(0) == slots) && grad.dim(1) == size)
      << op << ": " << name << " " << grad << ", " << slots << " slots, " << size << " elements";
}

// [rows, n] weights that read the first n of `dim` features.
void CheckGate(const char* op, const Tensor& gate, int64_t rows, int64_t dim) {
  CHECK(gate) << op << ": the gate's weights are empty";
  CHECK_EQ(gate.dtype(), DType::kBF16) << op << ": gate " << gate;
  CHECK(gate.rank() == 2 && gate.dim(0) == rows && gate.dim(1) > 0 && gate.dim(1) <= dim)
      << op << ": gate " << gate << ", wanted " << rows << " rows of 1 to " << dim << " features";
}

// [slots, T, D] of q, k or v.
std::vector<int64_t> PartDims(const GatedQkvArgs& args) {
  return {args.qkv.dim(0), args.qkv.dim(1), args.qkv.dim(2) / 3};
}

void CheckRotary(const char* op, const GatedQkvArgs& args) {
  const int64_t positions = args.qkv.dim(1) * (args.paired ? 2 : 1);
  const int64_t pairs = args.qkv.dim(2) / 3 / args.heads / 2;
  CHECK_EQ(args.cos.dtype(), DType::kBF16) << op << ": cos " << args.cos;
  CHECK_EQ(args.sin.dtype(), DType::kBF16) << op << ": sin " << args.sin;
  CHECK(args.cos.rank() == 2 && args.cos.dim(0) >= positions && args.cos.dim(1) == pairs)
      << op << ": cos " << args.cos << ", wanted at least " << positions << " positions of "
      << pairs << "; qkv " << args.qkv << ", heads " << args.heads;
  CHECK(SameShape(args.cos, args.sin)) << op << ": cos " << args.cos << ", sin " << args.sin;
}

void CheckQkv(const char* op, const GatedQkvArgs& args) {
  const Tensor& qkv = args.qkv;
  CHECK_EQ(qkv.dtype(), DType::kBF16) << op << ": qkv " << qkv;
  CHECK_EQ(qkv.rank(), 3) << op << ": qkv " << qkv;
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
  CHECK_EQ(table.dtype(), DType::kBF16) << op << ": value_table " << table;
  CHECK(table.rank() == 2 && table.dim(1) == dims[2])
      << op << ": value_table " << table << ", qkv " << qkv;
  CheckTensor(op, "tokens", args.tokens, DType::kI32, {dims[0], dims[1]});
  CheckTensor(op, "u", args.u, DType::kBF16, dims);
  CheckGate(op, args.value_gate, args.heads, dims[2]);
}

void CheckSkip(const char* op, const GatedSkipArgs& args, const std::vector<int64_t>& dims) {
  CheckTensor(op, "x0", args.x0, DType::kBF16, dims);
  CheckTensor(op, "saved", args.saved, DType::kBF16, dims);
  CheckGate(op, args.gate, 1, dims[2]);
  CHECK_EQ(args.scalars.dtype(), DType::kF32) << op << ": scalars " << args.scalars;
  CHECK_EQ(args.scalars.rank(), 1) << op << ": scalars " << args.scalars;
  CHECK(args.skip >= 0 && args.skip < args.scalars.size())
      << op << ": skip " << args.skip << ", scalars " << args.scalars;
}

}  // namespace

void GatedQkv(const GatedQkvArgs& args, Queue& queue) {
  const char* op = "GatedQkv";
  CheckQkv(op, args);
  const std::vector<int64_t> dims = PartDims(args);
  CheckTensor(op, "q", args.q, DType::kBF16, dims);
  CheckTensor(op, "k", args.k, DType::kBF16, dims);
  CheckTensor(op, "v", args.v, DType::kBF16, dims);
  queue.ops().gated->GatedQkv(args, queue);
}

void GatedQkvGrad(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad, Queue& queue) {
  const char* op = "GatedQkvGrad";
  CheckQkv(op, forward);
  const std::vector<int64_t> dims = PartDims(forward);
  CheckTensor(op, "dq", grad.dq, DType::kBF16, dims);
  CheckTensor(op, "dk", grad.dk, DType::kBF16, dims);
  CheckTensor(op, "dv", grad.dv, DType::kBF16, dims);
  CheckTensor(op, "dqkv", grad.dqkv, DType::kBF16, forward.qkv.dims());
  if (forward.value_table) {
    CheckTensor(op, "dvalue_rows", grad.dvalue_rows, DType::kBF16, dims);
    CheckTensor(op, "du_head", grad.du_head, DType::kF32,
                {dims[0], dims[1], forward.value_gate.dim(1)});
    CheckLeaves(op, "dvalue_gate", grad.dvalue_gate, dims[0], forward.value_gate.size());
  } else {
    CHECK(!grad.dvalue_rows && !grad.du_head && !grad.dvalue_gate)
        << op << ": gradients of a value table or its gate, without a value_table";
  }
  queue.ops().gated->GatedQkvGrad(forward, grad, queue);
}

void GatedSkip(const GatedSkipArgs& args, Queue& queue) {
  const char* op = "GatedSkip";
  CHECK_EQ(args.x.dtype(), DType::kBF16) << op << ": x " << args.x;
  CHECK_EQ(args.x.rank(), 3) << op << ": x " << args.x;
  CheckSkip(op, args, args.x.dims());
  CheckTensor(op, "y", args.y, DType::kBF16, args.x.dims());
  queue.ops().gated->GatedSkip(args, queue);
}

void GatedSkipGrad(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad, Queue& queue) {
  const char* op = "GatedSkipGrad";
  CHECK_EQ(grad.dy.dtype(), DType::kBF16) << op << ": dy " << grad.dy;
  CHECK_EQ(grad.dy.rank(), 3) << op << ": dy " << grad.dy;
  const std::vector<int64_t> dims = grad.dy.dims();
  CheckSkip(op, forward, dims);
  CheckTensor(op, "dsaved", grad.dsaved, DType::kBF16, dims);
  CheckTensor(op, "dx0", grad.dx0, DType::kBF16, dims);
  CheckLeaves(op, "dgate", grad.dgate, dims[0], forward.gate.size());
  CheckLeaves(op, "dscalars", grad.dscalars, dims[0], forward.scalars.size());
  queue.ops().gated->GatedSkipGrad(forward, grad, queue);
}

}  // namespace kernels
