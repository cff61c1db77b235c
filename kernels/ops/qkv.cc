#include "kernels/ops/qkv.h"

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

void CheckQkv(const char* op, const QkvArgs& args) {
  const Tensor& qkv = args.qkv;
  CHECK_EQ(qkv.dtype(), DType::kBF16) << op << ": qkv " << qkv;
  CHECK_EQ(qkv.rank(), 3) << op << ": qkv " << qkv;
  CHECK_GT(args.heads, 0) << op;
  // Halves of a head are whole, and so are q, k and v.
  CHECK_EQ(qkv.dim(2) % (3 * 2 * args.heads), 0)
      << op << ": qkv " << qkv << ", heads " << args.heads;
  const int64_t slots = qkv.dim(0);
  const int64_t tokens = qkv.dim(1);
  const int64_t dim = qkv.dim(2) / 3;
  const int64_t half = dim / args.heads / 2;
  CHECK(args.cos.dtype() == DType::kBF16 || args.cos.dtype() == DType::kF32)
      << op << ": cos " << args.cos;
  CHECK_EQ(args.sin.dtype(), args.cos.dtype()) << op << ": sin " << args.sin;
  CHECK(args.cos.rank() == 2 && args.cos.dim(0) >= tokens && args.cos.dim(1) == half)
      << op << ": cos " << args.cos << ", qkv " << qkv << ", heads " << args.heads;
  CHECK(SameShape(args.cos, args.sin)) << op << ": cos " << args.cos << ", sin " << args.sin;
  CHECK_EQ(args.scalars.dtype(), DType::kF32) << op << ": scalars " << args.scalars;
  CHECK_EQ(args.scalars.rank(), 1) << op << ": scalars " << args.scalars;
  const int used = args.value_table ? 2 : 1;
  CHECK(args.value_lambda >= 0 && args.value_lambda + used <= args.scalars.size())
      << op << ": value_lambda " << args.value_lambda << ", scalars " << args.scalars;
  if (args.value_table) {
    const Tensor& table = args.value_table;
    CHECK_EQ(table.dtype(), DType::kBF16) << op << ": value_table " << table;
    CHECK(table.rank() == 2 && table.dim(1) == dim)
        << op << ": value_table " << table << ", qkv " << qkv;
    CheckTensor(op, "tokens", args.tokens, DType::kI32, {slots, tokens});
  }
  CheckTensor(op, "inv_rms", args.inv_rms, DType::kF32,
              {slots, tokens, (args.norm_value ? 3 : 2) * args.heads});
}

void CheckGate(const char* op, const Tensor& o, const Tensor& u, const Tensor& gate_w,
               const Tensor& y) {
  CHECK_EQ(o.dtype(), DType::kBF16) << op << ": o " << o;
  CHECK_EQ(o.rank(), 3) << op << ": o " << o;
  CHECK_EQ(gate_w.dtype(), DType::kBF16) << op << ": gate_w " << gate_w;
  CHECK(gate_w.rank() == 2 && o.dim(2) % gate_w.dim(0) == 0)
      << op << ": gate_w " << gate_w << ", o " << o;
  CHECK_EQ(u.dtype(), DType::kBF16) << op << ": u " << u;
  CHECK(u.rank() == 3 && u.dim(0) == o.dim(0) && u.dim(1) == o.dim(1) && u.dim(2) >= gate_w.dim(1))
      << op << ": u " << u << ", o " << o << ", gate_w " << gate_w;
  CheckTensor(op, "y", y, DType::kBF16, o.dims());
}

// One leaf for all slots, or one for each.
void CheckLeaves(const char* op, const Tensor& grad, int64_t slots, int64_t size) {
  CHECK_EQ(grad.dtype(), DType::kF32) << op << ": gradient " << grad;
  CHECK(grad.rank() == 2 && (grad.dim(0) == 1 || grad.dim(0) == slots) && grad.dim(1) == size)
      << op << ": gradient " << grad << ", " << slots << " slots, " << size << " elements";
}

}  // namespace

void QkvSplitNormRotary(const QkvArgs& args, Queue& queue) {
  const char* op = "QkvSplitNormRotary";
  CheckQkv(op, args);
  const std::vector<int64_t> dims = {args.qkv.dim(0), args.qkv.dim(1), args.qkv.dim(2) / 3};
  CheckTensor(op, "q", args.q, DType::kBF16, dims);
  CheckTensor(op, "k", args.k, DType::kBF16, dims);
  CheckTensor(op, "v", args.v, DType::kBF16, dims);
  queue.ops().qkv->QkvSplitNormRotary(args, queue);
}

void QkvSplitNormRotaryGrad(const QkvArgs& forward, Tensor dq, Tensor dk, Tensor dv, Tensor dqkv,
                            Tensor dvalue_rows, Tensor dscalars, Queue& queue) {
  const char* op = "QkvSplitNormRotaryGrad";
  CheckQkv(op, forward);
  const Tensor& qkv = forward.qkv;
  const std::vector<int64_t> dims = {qkv.dim(0), qkv.dim(1), qkv.dim(2) / 3};
  CheckTensor(op, "dq", dq, DType::kBF16, dims);
  CheckTensor(op, "dk", dk, DType::kBF16, dims);
  CheckTensor(op, "dv", dv, DType::kBF16, dims);
  CheckTensor(op, "dqkv", dqkv, DType::kBF16, qkv.dims());
  CHECK_EQ(dvalue_rows.empty(), forward.value_table.empty())
      << op << ": dvalue_rows is there exactly with a value_table";
  if (dvalue_rows) CheckTensor(op, "dvalue_rows", dvalue_rows, DType::kBF16, dims);
  CheckLeaves(op, dscalars, qkv.dim(0), forward.scalars.size());
  queue.ops().qkv->QkvSplitNormRotaryGrad(forward, dq, dk, dv, dqkv, dvalue_rows, dscalars, queue);
}

void HeadGate(Tensor o, Tensor u, Tensor gate_w, Tensor y, Queue& queue) {
  CheckGate("HeadGate", o, u, gate_w, y);
  queue.ops().qkv->HeadGate(o, u, gate_w, y, queue);
}

void HeadGateGrad(Tensor dy, Tensor o, Tensor u, Tensor gate_w, Tensor do_, Tensor du_head,
                  Tensor dgate_w, Queue& queue) {
  const char* op = "HeadGateGrad";
  CheckGate(op, o, u, gate_w, do_);
  CheckTensor(op, "dy", dy, DType::kBF16, o.dims());
  CheckTensor(op, "du_head", du_head, DType::kF32, {o.dim(0), o.dim(1), gate_w.dim(1)});
  CheckLeaves(op, dgate_w, o.dim(0), gate_w.size());
  queue.ops().qkv->HeadGateGrad(dy, o, u, gate_w, do_, du_head, dgate_w, queue);
}

}  // namespace kernels
