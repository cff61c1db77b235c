#include "kernels/trace/tracing.h"

#include <utility>

#include "kernels/ops/elementwise.h"
#include "third_party/absl_compat/check.h"

namespace kernels {

// One decorator a family: note the call with its cost, and hand it on.
struct OpTrace::Tables {
  explicit Tables(OpTrace& trace, const OpTable& inner)
      : attention(trace, *inner.attention),
        elementwise(trace, *inner.elementwise),
        embedding(trace, *inner.embedding),
        head(trace, *inner.head),
        matmul(trace, *inner.matmul),
        norm(trace, *inner.norm),
        optimizer(trace, *inner.optimizer),
        qkv(trace, *inner.qkv),
        gated(trace, *inner.gated),
        weight(trace, *inner.weight),
        table{&attention, &elementwise, &embedding, &head,  &matmul,
              &norm,      &optimizer,   &qkv,       &gated, &weight} {}

  template <typename Ops>
  struct Traced : public Ops {
    Traced(OpTrace& trace, const Ops& inner) : trace(trace), inner(inner) {}
    OpTrace& trace;
    const Ops& inner;
  };

  struct TracedAttention : public Traced<AttentionOps> {
    using Traced::Traced;
    void Attention(const AttentionArgs& args, Queue& queue) const override {
      trace.Note("Attention", AttentionCost(args, trace.Pairs(args)), queue,
                 [&] { inner.Attention(args, queue); });
    }
    void CachedAttention(const AttentionArgs& args, int64_t begin, Queue& queue) const override {
      trace.Note("CachedAttention", CachedAttentionCost(args, begin), queue,
                 [&] { inner.CachedAttention(args, begin, queue); });
    }
    void AttentionGrad(const AttentionArgs& forward, Tensor do_, Tensor delta, Tensor dq, Tensor dk,
                       Tensor dv, Queue& queue) const override {
      trace.Note("AttentionGrad", AttentionGradCost(forward, trace.Pairs(forward)), queue,
                 [&] { inner.AttentionGrad(forward, do_, delta, dq, dk, dv, queue); });
    }
  };

  struct TracedElementwise : public Traced<ElementwiseOps> {
    using Traced::Traced;
    void FillZero(Tensor x, Queue& queue) const override {
      trace.Note("FillZero", FillZeroCost(x), queue, [&] { inner.FillZero(x, queue); });
    }
    void Copy(Tensor x, Tensor y, Queue& queue) const override {
      trace.Note("Copy", CopyCost(x, y), queue, [&] { inner.Copy(x, y, queue); });
    }
    void Add(Tensor x, Tensor y, Queue& queue) const override {
      trace.Note("Add", AddCost(x, y), queue, [&] { inner.Add(x, y, queue); });
    }
    void Sum(Tensor a, Tensor b, Tensor c, Queue& queue) const override {
      trace.Note("Sum", SumCost(a), queue, [&] { inner.Sum(a, b, c, queue); });
    }
    void Scale(Tensor x, float factor, Queue& queue) const override {
      trace.Note("Scale", ScaleCost(x), queue, [&] { inner.Scale(x, factor, queue); });
    }
    void RowSums(Tensor x, Tensor sums, Queue& queue) const override {
      trace.Note("RowSums", RowSumsCost(x, sums), queue, [&] { inner.RowSums(x, sums, queue); });
    }
    void FirstNonFinite(Tensor x, Tensor index, Queue& queue) const override {
      trace.Note("FirstNonFinite", FirstNonFiniteCost(x, index), queue,
                 [&] { inner.FirstNonFinite(x, index, queue); });
    }
    void PoisonIfFound(Tensor found, Tensor y, Queue& queue) const override {
      trace.Note("PoisonIfFound", PoisonIfFoundCost(found, y), queue,
                 [&] { inner.PoisonIfFound(found, y, queue); });
    }
    void ClearUnlessFinite(Tensor x, Tensor guard, Queue& queue) const override {
      trace.Note("ClearUnlessFinite", ClearUnlessFiniteCost(x, guard), queue,
                 [&] { inner.ClearUnlessFinite(x, guard, queue); });
    }
  };

  struct TracedEmbedding : public Traced<EmbeddingOps> {
    using Traced::Traced;
    void EmbedSmearNorm(const EmbedSmearNormArgs& args, Queue& queue) const override {
      trace.Note("EmbedSmearNorm", EmbedSmearNormCost(args), queue,
                 [&] { inner.EmbedSmearNorm(args, queue); });
    }
    void EmbedSmearNormGrad(const EmbedSmearNormArgs& forward, Tensor dx0, Tensor de,
                            Tensor dsmear_w, Tensor dscalars, Queue& queue) const override {
      trace.Note("EmbedSmearNormGrad", EmbedSmearNormGradCost(forward, dx0, dsmear_w, dscalars),
                 queue,
                 [&] { inner.EmbedSmearNormGrad(forward, dx0, de, dsmear_w, dscalars, queue); });
    }
    void EmbeddingGrad(Tensor tokens, Tensor de, Tensor dtable, Tensor workspace,
                       Queue& queue) const override {
      trace.Note("EmbeddingGrad", EmbeddingGradCost(tokens, de, dtable), queue,
                 [&] { inner.EmbeddingGrad(tokens, de, dtable, workspace, queue); });
    }
    int64_t EmbeddingGradWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab,
                                        int64_t dim) const override {
      return inner.EmbeddingGradWorkspaceBytes(slots, slot_tokens, vocab, dim);
    }
    void MoveRows(RowMove move, Tensor rows, Tensor table, Tensor packed,
                  Queue& queue) const override {
      trace.Note(Name(move), MoveRowsCost(move, rows, table, packed), queue,
                 [&] { inner.MoveRows(move, rows, table, packed, queue); });
    }
  };

  struct TracedHead : public Traced<HeadOps> {
    using Traced::Traced;
    void HeadLoss(const HeadArgs& args, Tensor losses, Queue& queue) const override {
      trace.Note("HeadLoss", HeadLossCost(args, losses), queue,
                 [&] { inner.HeadLoss(args, losses, queue); });
    }
    void HeadLossGrad(const HeadArgs& args, Tensor losses, Tensor dx, Tensor dw,
                      Queue& queue) const override {
      trace.Note("HeadLossGrad", HeadLossGradCost(args, losses, dw), queue,
                 [&] { inner.HeadLossGrad(args, losses, dx, dw, queue); });
    }
    void HeadLogits(const HeadArgs& args, Tensor logits, Queue& queue) const override {
      trace.Note("HeadLogits", HeadLogitsCost(args, logits), queue,
                 [&] { inner.HeadLogits(args, logits, queue); });
    }
    int64_t HeadWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab,
                               int64_t dim) const override {
      return inner.HeadWorkspaceBytes(slots, slot_tokens, vocab, dim);
    }
  };

  struct TracedMatMul : public Traced<MatMulOps> {
    using Traced::Traced;
    void MatMul(Tensor a, Tensor b, Tensor c, const MatMulOptions& options, Tensor addend,
                Queue& queue) const override {
      trace.Note("MatMul", MatMulCost(a, b, c, options), queue,
                 [&] { inner.MatMul(a, b, c, options, addend, queue); });
    }
    void WeightGrad(Tensor dy, Tensor x, Tensor dw, Queue& queue) const override {
      trace.Note("WeightGrad", WeightGradCost(dy, x, dw), queue,
                 [&] { inner.WeightGrad(dy, x, dw, queue); });
    }
    void LinearRelu2(Tensor u, Tensor w, HiddenDim hidden, Tensor a, Tensor b,
                     Queue& queue) const override {
      trace.Note("LinearRelu2", LinearRelu2Cost(u, w, a), queue,
                 [&] { inner.LinearRelu2(u, w, hidden, a, b, queue); });
    }
    void LinearRelu2Grad(Tensor dy, Tensor w, HiddenDim hidden, Tensor a, Tensor da,
                         Queue& queue) const override {
      trace.Note("LinearRelu2Grad", LinearRelu2GradCost(dy, w, a), queue,
                 [&] { inner.LinearRelu2Grad(dy, w, hidden, a, da, queue); });
    }
    void SymmetricProduct(Tensor x, float alpha, float beta, Tensor addend, Tensor c,
                          Queue& queue) const override {
      trace.Note("SymmetricProduct", SymmetricProductCost(x, beta, c), queue,
                 [&] { inner.SymmetricProduct(x, alpha, beta, addend, c, queue); });
    }
  };

  struct TracedNorm : public Traced<NormOps> {
    using Traced::Traced;
    void RmsNorm(Tensor x, Tensor y, Tensor inv_rms, Queue& queue) const override {
      trace.Note("RmsNorm", RmsNormCost(x, inv_rms), queue,
                 [&] { inner.RmsNorm(x, y, inv_rms, queue); });
    }
    void RmsNormGrad(Tensor dy, Tensor x, Tensor inv_rms, Tensor residual, Tensor dx,
                     Queue& queue) const override {
      trace.Note("RmsNormGrad", RmsNormGradCost(dy, inv_rms, residual), queue,
                 [&] { inner.RmsNormGrad(dy, x, inv_rms, residual, dx, queue); });
    }
    void MixNorm(Tensor x, Tensor x0, Tensor saved, Tensor scalars, MixScalars which, Tensor mixed,
                 Tensor u, Tensor inv_rms, Queue& queue) const override {
      trace.Note("MixNorm", MixNormCost(x, saved, scalars, inv_rms), queue,
                 [&] { inner.MixNorm(x, x0, saved, scalars, which, mixed, u, inv_rms, queue); });
    }
    void MixNormGrad(const MixNormGradArgs& args, Queue& queue) const override {
      trace.Note("MixNormGrad", MixNormGradCost(args), queue,
                 [&] { inner.MixNormGrad(args, queue); });
    }
  };

  struct TracedOptimizer : public Traced<OptimizerOps> {
    using Traced::Traced;
    void AdamUpdate(const AdamArgs& args, Queue& queue) const override {
      trace.Note("AdamUpdate", AdamUpdateCost(args), queue, [&] { inner.AdamUpdate(args, queue); });
    }
    void AdamFlat(const AdamFlatArgs& args, Queue& queue) const override {
      trace.Note("AdamFlat", AdamFlatCost(args), queue, [&] { inner.AdamFlat(args, queue); });
    }
    void MomentumUpdate(const MomentumArgs& args, Queue& queue) const override {
      trace.Note("MomentumUpdate", MomentumUpdateCost(args.g, args.m, args.u), queue,
                 [&] { inner.MomentumUpdate(args, queue); });
    }
    void NormalizeFrobenius(Tensor u, float scale, float eps, Tensor x,
                            Queue& queue) const override {
      trace.Note("NormalizeFrobenius", NormalizeFrobeniusCost(u), queue,
                 [&] { inner.NormalizeFrobenius(u, scale, eps, x, queue); });
    }
    void TwinRailUpdate(const TwinRailArgs& args, Queue& queue) const override {
      trace.Note("TwinRailUpdate", TwinRailUpdateCost(args), queue,
                 [&] { inner.TwinRailUpdate(args, queue); });
    }
    void NormalizeByGram(const GramNormArgs& args, Queue& queue) const override {
      trace.Note("NormalizeByGram", NormalizeByGramCost(args), queue,
                 [&] { inner.NormalizeByGram(args, queue); });
    }
    void NormalizeBySecondMoment(const SecondMomentArgs& args, Queue& queue) const override {
      trace.Note("NormalizeBySecondMoment", NormalizeBySecondMomentCost(args), queue,
                 [&] { inner.NormalizeBySecondMoment(args, queue); });
    }
    void MatrixUpdate(Tensor p, Tensor o, Tensor lr, Tensor decay, Tensor guard,
                      Queue& queue) const override {
      trace.Note("MatrixUpdate", MatrixUpdateCost(p, o, lr), queue,
                 [&] { inner.MatrixUpdate(p, o, lr, decay, guard, queue); });
    }
    void SplitMatrixUpdate(const SplitMatrixArgs& args, Queue& queue) const override {
      trace.Note("SplitMatrixUpdate", SplitMatrixUpdateCost(args), queue,
                 [&] { inner.SplitMatrixUpdate(args, queue); });
    }
  };

  struct TracedQkv : public Traced<QkvOps> {
    using Traced::Traced;
    void QkvSplitNormRotary(const QkvArgs& args, Queue& queue) const override {
      trace.Note("QkvSplitNormRotary", QkvSplitNormRotaryCost(args), queue,
                 [&] { inner.QkvSplitNormRotary(args, queue); });
    }
    void QkvSplitNormRotaryGrad(const QkvArgs& forward, Tensor dq, Tensor dk, Tensor dv,
                                Tensor dqkv, Tensor dvalue_rows, Tensor dscalars,
                                Queue& queue) const override {
      trace.Note("QkvSplitNormRotaryGrad",
                 QkvSplitNormRotaryGradCost(forward, dvalue_rows, dscalars), queue, [&] {
                   inner.QkvSplitNormRotaryGrad(forward, dq, dk, dv, dqkv, dvalue_rows, dscalars,
                                                queue);
                 });
    }
    void HeadGate(Tensor o, Tensor u, Tensor gate_w, Tensor y, Queue& queue) const override {
      trace.Note("HeadGate", HeadGateCost(o, gate_w), queue,
                 [&] { inner.HeadGate(o, u, gate_w, y, queue); });
    }
    void HeadGateGrad(Tensor dy, Tensor o, Tensor u, Tensor gate_w, Tensor do_, Tensor du_head,
                      Tensor dgate_w, Queue& queue) const override {
      trace.Note("HeadGateGrad", HeadGateGradCost(o, gate_w, du_head, dgate_w), queue,
                 [&] { inner.HeadGateGrad(dy, o, u, gate_w, do_, du_head, dgate_w, queue); });
    }
  };

  struct TracedGated : public Traced<GatedOps> {
    using Traced::Traced;
    void GatedQkv(const GatedQkvArgs& args, Queue& queue) const override {
      trace.Note("GatedQkv", GatedQkvCost(args), queue, [&] { inner.GatedQkv(args, queue); });
    }
    void GatedQkvGrad(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad,
                      Queue& queue) const override {
      trace.Note("GatedQkvGrad", GatedQkvGradCost(forward, grad), queue,
                 [&] { inner.GatedQkvGrad(forward, grad, queue); });
    }
    void GatedSkip(const GatedSkipArgs& args, Queue& queue) const override {
      trace.Note("GatedSkip", GatedSkipCost(args), queue, [&] { inner.GatedSkip(args, queue); });
    }
    void GatedSkipGrad(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad,
                       Queue& queue) const override {
      trace.Note("GatedSkipGrad", GatedSkipGradCost(forward, grad), queue,
                 [&] { inner.GatedSkipGrad(forward, grad, queue); });
    }
  };

  struct TracedWeight : public Traced<WeightOps> {
    using Traced::Traced;
    void ScaleWeight(Tensor w, Tensor scalars, int index, Tensor y, Queue& queue) const override {
      trace.Note("ScaleWeight", ScaleWeightCost(w, y), queue,
                 [&] { inner.ScaleWeight(w, scalars, index, y, queue); });
    }
    void ScaleWeightGrad(Tensor w, Tensor scalars, int index, Tensor dw, Tensor dscalars,
                         Queue& queue) const override {
      trace.Note("ScaleWeightGrad", ScaleWeightGradCost(w, dw), queue,
                 [&] { inner.ScaleWeightGrad(w, scalars, index, dw, dscalars, queue); });
    }
    void TransposeCopy(Tensor x, Tensor y, Queue& queue) const override {
      trace.Note("TransposeCopy", TransposeCopyCost(x, y), queue,
                 [&] { inner.TransposeCopy(x, y, queue); });
    }
    void TransposeAdd(Tensor x, Tensor y, Queue& queue) const override {
      trace.Note("TransposeAdd", TransposeAddCost(x, y), queue,
                 [&] { inner.TransposeAdd(x, y, queue); });
    }
  };

  TracedAttention attention;
  TracedElementwise elementwise;
  TracedEmbedding embedding;
  TracedHead head;
  TracedMatMul matmul;
  TracedNorm norm;
  TracedOptimizer optimizer;
  TracedQkv qkv;
  TracedGated gated;
  TracedWeight weight;
  const OpTable table;
};

OpTrace::OpTrace(Queue& queue)
    : queue_(queue), tables_(std::make_unique<Tables>(*this, queue.ops())) {
  queue_.SetOps(&tables_->table);
}

OpTrace::~OpTrace() { queue_.SetOps(nullptr); }

void OpTrace::SetAttentionPairs(PairsOfWindow pairs) { pairs_ = std::move(pairs); }

void OpTrace::SetPhase(std::optional<OpPhase> phase) { phase_ = phase; }

double OpTrace::Pairs(const AttentionArgs& args) const {
  const AttentionWindow window(args);
  return pairs_ ? pairs_(window) : AttentionPairs(args.q.dim(1), window);
}

void OpTrace::Note(const char* name, OpCost cost, Queue& queue, const std::function<void()>& run) {
  if (inside_) return run();
  CHECK(&queue == &queue_) << name << " runs on another queue than the traced one";
  if (phase_.has_value()) cost.phase = *phase_;
  Marked marked{.op = {.name = name, .cost = std::move(cost)}, .begin = queue_.MarkTime()};
  inside_ = true;
  run();
  inside_ = false;
  marked.end = queue_.MarkTime();
  ops_.push_back(std::move(marked));
}

std::vector<TracedOp> OpTrace::Take() {
  std::vector<double> marks;
  return Take(&marks);
}

std::vector<TracedOp> OpTrace::Take(std::vector<double>* marks) {
  *marks = queue_.TakeTimes();
  std::vector<TracedOp> ops;
  ops.reserve(ops_.size());
  for (Marked& marked : ops_) {
    marked.op.begin_s = marks->at(marked.begin);
    marked.op.end_s = marks->at(marked.end);
    ops.push_back(std::move(marked.op));
  }
  ops_.clear();
  return ops;
}

}  // namespace kernels
