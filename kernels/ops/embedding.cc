#include "kernels/ops/embedding.h"

#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

void CheckTokens(const char* op, const Tensor& tokens, const Tensor& rows) {
  CHECK(tokens.dtype() == DType::kI32 && tokens.rank() == 2) << op << ": tokens " << tokens;
  CHECK(rows.dtype() == DType::kBF16 && rows.rank() == 3 && rows.dim(0) == tokens.dim(0) &&
        rows.dim(1) == tokens.dim(1))
      << op << ": rows " << rows << ", tokens " << tokens;
}

void CheckLeaves(const char* op, const Tensor& grad, int64_t size, int64_t slots) {
  CHECK(grad.dtype() == DType::kF32 && (grad.dim(0) == 1 || grad.dim(0) == slots) &&
        grad.size() == grad.dim(0) * size)
      << op << ": gradient " << grad << " of " << size << " elements, " << slots << " slots";
}

void CheckSmear(const char* op, const EmbedSmearNormArgs& a) {
  if (a.smear_lambda == -1) {
    CHECK(a.smear_w.empty() && a.scalars.empty())
        << op << ": no smear, but smear_w " << a.smear_w << ", scalars " << a.scalars;
    return;
  }
  CHECK(a.smear_w.dtype() == DType::kBF16 && a.smear_w.rank() == 2 && a.smear_w.dim(0) == 1 &&
        a.smear_w.cols() <= a.x0.cols())
      << op << ": smear_w " << a.smear_w;
  CHECK(a.scalars.dtype() == DType::kF32 && a.smear_lambda >= 0 &&
        a.smear_lambda < a.scalars.size())
      << op << ": scalar " << a.smear_lambda << " of " << a.scalars;
}

void CheckForward(const char* op, const EmbedSmearNormArgs& a) {
  CheckTokens(op, a.tokens, a.x0);
  CHECK(a.table.dtype() == DType::kBF16 && a.table.rank() == 2 && a.table.cols() == a.x0.cols())
      << op << ": table " << a.table << ", x0 " << a.x0;
  CheckSmear(op, a);
  CHECK(a.inv_rms.dtype() == DType::kF32 && a.inv_rms.size() == a.tokens.size())
      << op << ": inv_rms " << a.inv_rms;
}

}  // namespace

void EmbedSmearNorm(const EmbedSmearNormArgs& args, Queue& queue) {
  CheckForward("EmbedSmearNorm", args);
  queue.ops().embedding->EmbedSmearNorm(args, queue);
}

void EmbedSmearNormGrad(const EmbedSmearNormArgs& forward, Tensor dx0, Tensor de, Tensor dsmear_w,
                        Tensor dscalars, Queue& queue) {
  constexpr char kOp[] = "EmbedSmearNormGrad";
  CheckForward(kOp, forward);
  if (forward.smear_lambda == -1) {
    CHECK(dsmear_w.empty() && dscalars.empty())
        << kOp << ": no smear, but dsmear_w " << dsmear_w << ", dscalars " << dscalars;
  } else {
    CheckLeaves(kOp, dsmear_w, forward.smear_w.size(), forward.x0.dim(0));
    CheckLeaves(kOp, dscalars, forward.scalars.size(), forward.x0.dim(0));
  }
  CHECK(dx0.dtype() == DType::kBF16 && SameShape(dx0, forward.x0)) << kOp << ": dx0 " << dx0;
  CHECK(de.dtype() == DType::kBF16 && SameShape(de, forward.x0)) << kOp << ": de " << de;
  CHECK(de.data() != dx0.data()) << kOp << ": de may not be dx0";
  queue.ops().embedding->EmbedSmearNormGrad(forward, dx0, de, dsmear_w, dscalars, queue);
}

void EmbeddingGrad(Tensor tokens, Tensor de, Tensor dtable, Tensor workspace, Queue& queue) {
  constexpr char kOp[] = "EmbeddingGrad";
  CheckTokens(kOp, tokens, de);
  CHECK(dtable.rank() == 3 && dtable.cols() == de.cols()) << kOp << ": dtable " << dtable;
  CheckLeaves(kOp, dtable, dtable.dim(1) * dtable.dim(2), de.dim(0));
  const int64_t needed =
      EmbeddingGradWorkspaceBytes(de.dim(0), de.dim(1), dtable.dim(1), dtable.dim(2), queue);
  CHECK_GE(workspace.empty() ? 0 : workspace.bytes(), needed) << kOp << ": workspace";
  queue.ops().embedding->EmbeddingGrad(tokens, de, dtable, workspace, queue);
}

int64_t EmbeddingGradWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab, int64_t dim,
                                    const Queue& queue) {
  return queue.ops().embedding->EmbeddingGradWorkspaceBytes(slots, slot_tokens, vocab, dim);
}

const char* Name(RowMove move) {
  switch (move) {
    case RowMove::kGather:
      return "GatherRows";
    case RowMove::kScatter:
      return "ScatterRows";
    case RowMove::kAdd:
      return "AddRows";
  }
  return "?";
}

void MoveRows(RowMove move, Tensor rows, Tensor table, Tensor packed, Queue& queue) {
  const char* const op = Name(move);
  const bool bf16 = table.dtype() == DType::kBF16 && move != RowMove::kAdd;
  CHECK(table.rank() == 2 && (bf16 || table.dtype() == DType::kF32)) << op << ": table " << table;
  CHECK(rows.dtype() == DType::kI32 && rows.rank() == 1) << op << ": rows " << rows;
  CHECK(packed.dtype() == table.dtype() && packed.rank() == 2 && packed.rows() == rows.size() &&
        packed.cols() == table.cols())
      << op << ": packed " << packed << ", rows " << rows << ", table " << table;
  if (rows.size() == 0) return;
  queue.ops().embedding->MoveRows(move, rows, table, packed, queue);
}

}  // namespace kernels
