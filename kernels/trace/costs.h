// What each op has to move and to multiply at the least, from the shapes of its arguments: the
// floor that a measured time is held against.
#ifndef KERNELS_TRACE_COSTS_H_
#define KERNELS_TRACE_COSTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/attention.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gated.h"
#include "kernels/ops/head.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/qkv.h"
#include "kernels/ops/weight.h"
#include "kernels/tensor.h"

namespace kernels {

// Parts of a step, as tables sum them up.
enum class OpPhase : uint8_t {
  kGemm,
  kAttention,
  kNormElementwise,
  kHeadLoss,
  kEmbedding,
  kOptimizer,
  kOther,  // fills, copies, casts, sums, checks
};
constexpr int kOpPhases = 7;
// "gemm", "attention", "norm/elementwise", "head+loss", "embedding", "optimizer", "other"
const char* Name(OpPhase phase);

struct OpCost {
  OpPhase phase = OpPhase::kOther;
  std::string shape;  // "bf16 [8, 2048, 768] x [768, 3072]"
  // Of products, two a multiply-add; 0 for ops that are bound by memory anyway.
  double flops = 0;
  bool fp8 = false;  // the products are of fp8 values
  // Each input read once, each output written once, what is added to both; of a table only the
  // rows that the tokens can name. Scratch and recomputation cost nothing here.
  double bytes = 0;
};

OpCost MatMulCost(const Tensor& a, const Tensor& b, const Tensor& c, const MatMulOptions& options);
OpCost WeightGradCost(const Tensor& dy, const Tensor& x, const Tensor& dw);
OpCost LinearRelu2Cost(const Tensor& u, const Tensor& w, const Tensor& a);
OpCost LinearRelu2GradCost(const Tensor& dy, const Tensor& w, const Tensor& a);
// Half of the products, and the diagonal.
OpCost SymmetricProductCost(const Tensor& x, float beta, const Tensor& c);

// `pairs`: query-key pairs of one slot and head. Forward two products, backward five (the scores
// again, and the gradients of probabilities, q, k and v).
OpCost AttentionCost(const AttentionArgs& args, double pairs);
OpCost AttentionGradCost(const AttentionArgs& forward, double pairs);
// With the pairs of a slot that is one document; of k and v the rows that some query sees.
OpCost CachedAttentionCost(const AttentionArgs& args, int64_t begin);
// Pairs of a slot that is one document: the most that a window allows.
double AttentionPairs(int64_t slot_tokens, const AttentionWindow& window);
// Pairs of a slot with these documents (AttentionArgs::boundaries, one row).
double AttentionPairs(const std::vector<int32_t>& boundaries, const AttentionWindow& window);

OpCost FillZeroCost(const Tensor& x);
OpCost CopyCost(const Tensor& x, const Tensor& y);
OpCost AddCost(const Tensor& x, const Tensor& y);
OpCost SumCost(const Tensor& a);
OpCost ScaleCost(const Tensor& x);
OpCost RowSumsCost(const Tensor& x, const Tensor& sums);
OpCost FirstNonFiniteCost(const Tensor& x, const Tensor& index);
OpCost PoisonIfFoundCost(const Tensor& found, const Tensor& y);
OpCost ClearUnlessFiniteCost(const Tensor& x, const Tensor& guard);

OpCost EmbedSmearNormCost(const EmbedSmearNormArgs& args);
OpCost EmbedSmearNormGradCost(const EmbedSmearNormArgs& forward, const Tensor& dx0,
                              const Tensor& dsmear_w, const Tensor& dscalars);
OpCost EmbeddingGradCost(const Tensor& tokens, const Tensor& de, const Tensor& dtable);
OpCost MoveRowsCost(RowMove move, const Tensor& rows, const Tensor& table, const Tensor& packed);

// Logits cost nothing: they need not exist.
OpCost HeadLossCost(const HeadArgs& args, const Tensor& losses);
OpCost HeadLossGradCost(const HeadArgs& args, const Tensor& losses, const Tensor& dw);
OpCost HeadLogitsCost(const HeadArgs& args, const Tensor& logits);

OpCost RmsNormCost(const Tensor& x, const Tensor& inv_rms);
OpCost RmsNormGradCost(const Tensor& dy, const Tensor& inv_rms, const Tensor& residual);
OpCost MixNormCost(const Tensor& x, const Tensor& saved, const Tensor& scalars,
                   const Tensor& inv_rms);
OpCost MixNormGradCost(const MixNormGradArgs& args);

OpCost AdamUpdateCost(const AdamArgs& args);
OpCost AdamFlatCost(const AdamFlatArgs& args);
OpCost MomentumUpdateCost(const Tensor& g, const Tensor& m, const Tensor& u);
OpCost NormalizeFrobeniusCost(const Tensor& u);
OpCost TwinRailUpdateCost(const TwinRailArgs& args);
OpCost NormalizeByGramCost(const GramNormArgs& args);
OpCost NormalizeBySecondMomentCost(const SecondMomentArgs& args);
OpCost SplitMatrixUpdateCost(const SplitMatrixArgs& args);
OpCost MatrixUpdateCost(const Tensor& p, const Tensor& o, const Tensor& lr);

OpCost QkvSplitNormRotaryCost(const QkvArgs& args);
OpCost QkvSplitNormRotaryGradCost(const QkvArgs& forward, const Tensor& dvalue_rows,
                                  const Tensor& dscalars);
OpCost HeadGateCost(const Tensor& o, const Tensor& gate_w);
OpCost HeadGateGradCost(const Tensor& o, const Tensor& gate_w, const Tensor& du_head,
                        const Tensor& dgate_w);

OpCost GatedQkvCost(const GatedQkvArgs& args);
OpCost GatedQkvGradCost(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad);
OpCost GatedSkipCost(const GatedSkipArgs& args);
OpCost GatedSkipGradCost(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad);

OpCost ScaleWeightCost(const Tensor& w, const Tensor& y);
OpCost ScaleWeightGradCost(const Tensor& w, const Tensor& dw);
OpCost TransposeCopyCost(const Tensor& x, const Tensor& y);
OpCost TransposeAddCost(const Tensor& x, const Tensor& y);

}  // namespace kernels

#endif  // KERNELS_TRACE_COSTS_H_
