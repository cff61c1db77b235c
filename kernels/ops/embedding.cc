#include "kernels/ops/embedding.h"

#include "kernels/ops/checks.h"
#include "kernels/ops/cost_terms.h"
#include "kernels/ops/trace_scope.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

// `rows`, of which there is one a token.
void CheckTokens(const char* op, const Tensor& tokens, const char* name, const Tensor& rows) {
  CheckRank(op, "tokens", tokens, DType::kI32, 2);
  CheckRank(op, name, rows, DType::kBF16, 3);
  CHECK(rows.dim(0) == tokens.dim(0) && rows.dim(1) == tokens.dim(1))
      << op << ": " << name << " " << rows << ", tokens " << tokens;
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
  CheckTokens(op, a.tokens, "x0", a.x0);
  CHECK(a.table.dtype() == DType::kBF16 && a.table.rank() == 2 && a.table.cols() == a.x0.cols())
      << op << ": table " << a.table << ", x0 " << a.x0;
  CheckSmear(op, a);
  CHECK(a.inv_rms.dtype() == DType::kF32 && a.inv_rms.size() == a.tokens.size())
      << op << ": inv_rms " << a.inv_rms;
}

}  // namespace

void EmbedSmearNorm(const EmbedSmearNormArgs& args, Queue& queue) {
  constexpr char kOp[] = "EmbedSmearNorm";
  CheckForward(kOp, args);
  const TraceScope scope(kOp, queue, [&] { return EmbedSmearNormCost(args); });
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
    // The gate's gradient may have both dims of the gate.
    const Tensor flat = dsmear_w ? dsmear_w.Reshape({dsmear_w.dim(0), -1}) : dsmear_w;
    CheckLeaves(kOp, "dsmear_w", flat, forward.x0.dim(0), {forward.smear_w.size()});
    CheckLeaves(kOp, "dscalars", dscalars, forward.x0.dim(0), {forward.scalars.size()});
  }
  CheckLike(kOp, "dx0", dx0, DType::kBF16, "x0", forward.x0);
  CheckLike(kOp, "de", de, DType::kBF16, "x0", forward.x0);
  CHECK(de.data() != dx0.data()) << kOp << ": de may not be dx0";
  const TraceScope scope(kOp, queue,
                         [&] { return EmbedSmearNormGradCost(forward, dx0, dsmear_w, dscalars); });
  queue.ops().embedding->EmbedSmearNormGrad(forward, dx0, de, dsmear_w, dscalars, queue);
}

void EmbeddingGrad(Tensor tokens, Tensor de, Tensor dtable, Tensor workspace, Queue& queue) {
  constexpr char kOp[] = "EmbeddingGrad";
  CheckTokens(kOp, tokens, "de", de);
  CheckRank(kOp, "dtable", dtable, DType::kF32, 3);
  CheckLeaves(kOp, "dtable", dtable, de.dim(0), {dtable.dim(1), de.cols()});
  const int64_t needed =
      EmbeddingGradWorkspaceBytes(de.dim(0), de.dim(1), dtable.dim(1), dtable.dim(2), queue);
  CHECK_GE(workspace.empty() ? 0 : workspace.bytes(), needed) << kOp << ": workspace";
  const TraceScope scope(kOp, queue, [&] { return EmbeddingGradCost(tokens, de, dtable); });
  queue.ops().embedding->EmbeddingGrad(tokens, de, dtable, workspace, queue);
}

int64_t EmbeddingGradWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab, int64_t dim,
                                    const Queue& queue) {
  return queue.ops().embedding_workspace->EmbeddingGradWorkspaceBytes(slots, slot_tokens, vocab,
                                                                      dim);
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
  CheckRank(op, "rows", rows, DType::kI32, 1);
  CHECK(packed.dtype() == table.dtype() && packed.rank() == 2 && packed.rows() == rows.size() &&
        packed.cols() == table.cols())
      << op << ": packed " << packed << ", rows " << rows << ", table " << table;
  if (rows.size() == 0) return;
  const TraceScope scope(op, queue, [&] { return MoveRowsCost(move, rows, table, packed); });
  queue.ops().embedding->MoveRows(move, rows, table, packed, queue);
}

OpCost EmbedSmearNormCost(const EmbedSmearNormArgs& args) {
  return MemoryCost(OpPhase::kEmbedding, Text(args.x0) + " from " + Text(args.table),
                    Bytes(args.tokens) + NamedRowBytes(args.tokens, args.table) +
                        Bytes(args.smear_w) + Bytes(args.scalars) + Bytes(args.x0) +
                        Bytes(args.inv_rms));
}

OpCost EmbedSmearNormGradCost(const EmbedSmearNormArgs& forward, const Tensor& dx0,
                              const Tensor& dsmear_w, const Tensor& dscalars) {
  OpCost cost = EmbedSmearNormCost(forward);
  // dx0 comes in and de goes out, the latter in place of x0, which is not read.
  cost.bytes += Bytes(dx0) + 2 * Bytes(dsmear_w) + 2 * Bytes(dscalars);
  return cost;
}

OpCost EmbeddingGradCost(const Tensor& tokens, const Tensor& de, const Tensor& dtable) {
  return MemoryCost(OpPhase::kEmbedding, Text(de) + " to " + Text(dtable),
                    Bytes(tokens) + Bytes(de) + 2 * NamedRowBytes(tokens, dtable));
}

OpCost MoveRowsCost(RowMove move, const Tensor& rows, const Tensor& table, const Tensor& packed) {
  const double times = move == RowMove::kAdd ? 3 : 2;
  return MemoryCost(OpPhase::kEmbedding, Text(packed) + " of " + Text(table),
                    Bytes(rows) + times * Bytes(packed));
}

}  // namespace kernels
