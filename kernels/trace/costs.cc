#include "kernels/trace/costs.h"

#include <algorithm>
#include <sstream>

namespace kernels {
namespace {

// "bf16 [8, 2048, 768]"
std::string Text(const Tensor& tensor) {
  std::ostringstream out;
  out << tensor;
  return out.str();
}

// "bf16 [8, 2048, 768] x bf16 [768, 3072]"
std::string Text(const Tensor& a, const Tensor& b) { return Text(a) + " x " + Text(b); }

// Of an optional tensor: an empty one has no bytes.
double Bytes(const Tensor& tensor) { return tensor ? static_cast<double>(tensor.bytes()) : 0; }

// Rows of a table that `tokens` can name, at most.
double NamedRowBytes(const Tensor& tokens, const Tensor& table) {
  if (!table) return 0;
  const int64_t width = table.cols() * SizeOf(table.dtype());
  return static_cast<double>(std::min(tokens.size(), table.rows()) * width);
}

// The first k features of u in each row.
double HeadFeatureBytes(const Tensor& o, const Tensor& gate_w) {
  return static_cast<double>(o.rows() * gate_w.cols() * SizeOf(o.dtype()));
}

double ProductFlops(double m, double n, double k) { return 2 * m * n * k; }

double AttentionFlops(const AttentionArgs& args, double pairs, int products) {
  const double slots = args.q.dim(0), features = args.q.cols();  // over all heads
  return products * 2 * pairs * features * slots;
}

std::string AttentionText(const AttentionArgs& args) {
  std::string text = Text(args.q) + ", " + std::to_string(args.heads) + " heads, window " +
                     std::to_string(args.window_tokens);
  if (args.window_block > 0) text += " in blocks of " + std::to_string(args.window_block);
  return text;
}

// Pairs of the document [begin, end) of a slot.
double DocumentPairs(int64_t begin, int64_t end, const AttentionWindow& window) {
  if (window.block == 1) {
    // The first `ramp` queries see all keys before them and their own, the others reach + 1.
    const double ramp = std::min(end - begin, window.reach + 1);
    return ramp * (ramp + 1) / 2 + (end - begin - ramp) * (window.reach + 1.0);
  }
  double pairs = 0;
  for (int64_t query = begin; query < end;) {  // the queries of a block have one first key
    const int64_t first = std::max(begin, window.FirstKey(query));
    const int64_t stop = std::min(end, query - query % window.block + window.block);
    // From query - first + 1 keys to stop - first.
    pairs += (stop - query) * ((query - first + 1.0) + (stop - first)) / 2;
    query = stop;
  }
  return pairs;
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

OpCost MemoryCost(OpPhase phase, std::string shape, double bytes) {
  return {.phase = phase, .shape = std::move(shape), .bytes = bytes};
}

}  // namespace

const char* Name(OpPhase phase) {
  constexpr const char* kNames[kOpPhases] = {
      "gemm", "attention", "norm/elementwise", "head+loss", "embedding", "optimizer", "other"};
  return kNames[static_cast<int>(phase)];
}

OpCost MatMulCost(const Tensor& a, const Tensor& b, const Tensor& c, const MatMulOptions& options) {
  const int64_t k = options.trans_a ? a.dim(-2) : a.dim(-1);
  OpCost cost;
  cost.phase = OpPhase::kGemm;
  cost.shape = Text(a) + (options.trans_a ? "^T" : "") + " x " + Text(b) +
               (options.trans_b ? "^T" : "") + (options.beta != 0 ? " + addend" : "");
  cost.flops = ProductFlops(c.rows(), c.cols(), k);
  cost.bytes = Bytes(a) + Bytes(b) + Bytes(c) * (options.beta != 0 ? 2 : 1);
  return cost;
}

OpCost WeightGradCost(const Tensor& dy, const Tensor& x, const Tensor& dw) {
  OpCost cost;
  cost.phase = OpPhase::kGemm;
  cost.shape = Text(dy) + "^T x " + Text(x);
  cost.flops = ProductFlops(dy.cols(), x.cols(), x.rows());
  cost.bytes = Bytes(dy) + Bytes(x) + 2 * Bytes(dw);
  return cost;
}

OpCost LinearRelu2Cost(const Tensor& u, const Tensor& w, const Tensor& a) {
  OpCost cost;
  cost.phase = OpPhase::kGemm;
  cost.shape = Text(u, w);
  cost.flops = ProductFlops(u.rows(), a.cols(), u.cols());
  cost.bytes = Bytes(u) + Bytes(w) + 2 * Bytes(a);
  return cost;
}

OpCost LinearRelu2GradCost(const Tensor& dy, const Tensor& w, const Tensor& a) {
  return LinearRelu2Cost(dy, w, a);  // a is read and da written, where the forward writes a and b
}

OpCost SymmetricProductCost(const Tensor& x, float beta, const Tensor& c) {
  const double batch = x.dim(0), r = x.dim(1), k = x.dim(2);
  OpCost cost;
  cost.phase = OpPhase::kOptimizer;
  cost.shape = Text(x) + " x ^T" + (beta != 0 ? " + addend" : "");
  cost.flops = batch * r * (r + 1) * k;
  cost.bytes = Bytes(x) + Bytes(c) * (beta != 0 ? 2 : 1);
  return cost;
}

OpCost AttentionCost(const AttentionArgs& args, double pairs) {
  OpCost cost;
  cost.phase = OpPhase::kAttention;
  cost.shape = AttentionText(args);
  cost.flops = AttentionFlops(args, pairs, 2);
  cost.bytes = 4 * Bytes(args.q) + Bytes(args.boundaries) + Bytes(args.lse);
  return cost;
}

OpCost AttentionGradCost(const AttentionArgs& forward, double pairs) {
  OpCost cost;
  cost.phase = OpPhase::kAttention;
  cost.shape = AttentionText(forward);
  cost.flops = AttentionFlops(forward, pairs, 5);
  // q, k, v, o, do in; dq, dk, dv out.
  cost.bytes = 8 * Bytes(forward.q) + Bytes(forward.boundaries) + Bytes(forward.lse);
  return cost;
}

OpCost CachedAttentionCost(const AttentionArgs& args, int64_t begin) {
  const AttentionWindow window(args);
  const int64_t end = begin + args.q.dim(1), first = std::max<int64_t>(0, window.FirstKey(begin));
  OpCost cost;
  cost.phase = OpPhase::kAttention;
  cost.shape = AttentionText(args) + ", " + std::to_string(begin) + " tokens before";
  cost.flops = AttentionFlops(args, AttentionPairs(end, window) - AttentionPairs(begin, window), 2);
  const double keys = static_cast<double>(args.k.dim(0) * (end - first) * args.k.cols());
  cost.bytes = 2 * Bytes(args.q) + 2 * keys * SizeOf(args.k.dtype()) + Bytes(args.boundaries) +
               Bytes(args.lse);
  return cost;
}

double AttentionPairs(int64_t slot_tokens, const AttentionWindow& window) {
  return DocumentPairs(0, slot_tokens, window);
}

double AttentionPairs(const std::vector<int32_t>& boundaries, const AttentionWindow& window) {
  double pairs = 0;
  for (size_t i = 1; i < boundaries.size(); ++i) {
    pairs += DocumentPairs(boundaries[i - 1], boundaries[i], window);
  }
  return pairs;
}

OpCost FillZeroCost(const Tensor& x) { return MemoryCost(OpPhase::kOther, Text(x), Bytes(x)); }

OpCost CopyCost(const Tensor& x, const Tensor& y) {
  return MemoryCost(OpPhase::kOther, Text(x) + " to " + Name(y.dtype()), Bytes(x) + Bytes(y));
}

OpCost AddCost(const Tensor& x, const Tensor& y) {
  return MemoryCost(OpPhase::kNormElementwise, Text(x), Bytes(x) + 2 * Bytes(y));
}

OpCost SumCost(const Tensor& a) { return MemoryCost(OpPhase::kOther, Text(a), 3 * Bytes(a)); }

OpCost ScaleCost(const Tensor& x) { return MemoryCost(OpPhase::kOther, Text(x), 2 * Bytes(x)); }

OpCost RowSumsCost(const Tensor& x, const Tensor& sums) {
  return MemoryCost(OpPhase::kOther, Text(x), Bytes(x) + Bytes(sums));
}

OpCost FirstNonFiniteCost(const Tensor& x, const Tensor& index) {
  return MemoryCost(OpPhase::kOther, Text(x), Bytes(x) + Bytes(index));
}

OpCost PoisonIfFoundCost(const Tensor& found, const Tensor& y) {
  return MemoryCost(OpPhase::kOther, Text(found), Bytes(found) + Bytes(y));
}

OpCost ClearUnlessFiniteCost(const Tensor& x, const Tensor& guard) {
  return MemoryCost(OpPhase::kOther, Text(x), Bytes(x) + Bytes(guard));
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

OpCost RmsNormCost(const Tensor& x, const Tensor& inv_rms) {
  return MemoryCost(OpPhase::kNormElementwise, Text(x), 2 * Bytes(x) + Bytes(inv_rms));
}

OpCost RmsNormGradCost(const Tensor& dy, const Tensor& inv_rms, const Tensor& residual) {
  return MemoryCost(OpPhase::kNormElementwise, Text(dy),
                    3 * Bytes(dy) + Bytes(inv_rms) + Bytes(residual));
}

OpCost MixNormCost(const Tensor& x, const Tensor& saved, const Tensor& scalars,
                   const Tensor& inv_rms) {
  // x, x0 in; mixed and, if there is a norm, u out.
  return MemoryCost(OpPhase::kNormElementwise, Text(x) + (saved ? ", skip" : ""),
                    (inv_rms ? 4 : 3) * Bytes(x) + Bytes(saved) + Bytes(scalars) + Bytes(inv_rms));
}

OpCost MixNormGradCost(const MixNormGradArgs& args) {
  double bytes = 0;
  for (const Tensor* read : {&args.dresidual, &args.du, &args.du_head, &args.inv_rms, &args.x,
                             &args.x0, &args.saved, &args.scalars, &args.dx_extra}) {
    bytes += Bytes(*read);
  }
  bytes += Bytes(args.dx) + Bytes(args.dsaved) + 2 * Bytes(args.dx0) + 2 * Bytes(args.dscalars);
  return MemoryCost(OpPhase::kNormElementwise,
                    Text(args.x) + (args.saved ? ", skip" : "") + (args.dx_extra ? ", extra" : ""),
                    bytes);
}

OpCost AdamUpdateCost(const AdamArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.p),
                    2 * Bytes(args.p) + Bytes(args.g) + 2 * Bytes(args.m) + 2 * Bytes(args.v) +
                        2 * Bytes(args.mantissa) + Bytes(args.rates));
}

OpCost AdamFlatCost(const AdamFlatArgs& args) {
  double weights = 0;
  for (const Tensor& p : args.p) weights += Bytes(p);
  return MemoryCost(
      OpPhase::kOptimizer, Text(args.g),
      2 * weights + Bytes(args.g) + 2 * Bytes(args.m) + 2 * Bytes(args.v) + Bytes(args.rates));
}

OpCost MomentumUpdateCost(const Tensor& g, const Tensor& m, const Tensor& u) {
  return MemoryCost(OpPhase::kOptimizer, Text(g), Bytes(g) + 2 * Bytes(m) + Bytes(u));
}

OpCost NormalizeFrobeniusCost(const Tensor& u) {
  return MemoryCost(OpPhase::kOptimizer, Text(u), 2 * Bytes(u));
}

OpCost TwinRailUpdateCost(const TwinRailArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.g),
                    Bytes(args.g) + 2 * Bytes(args.fast) + 2 * Bytes(args.slow) + Bytes(args.u));
}

// The Gram matrix is read twice, for its norm and to be rescaled.
OpCost NormalizeByGramCost(const GramNormArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.u),
                    Bytes(args.u) + Bytes(args.x) + 3 * Bytes(args.gram));
}

OpCost NormalizeBySecondMomentCost(const SecondMomentArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.o),
                    2 * Bytes(args.o) + Bytes(args.p) + 2 * Bytes(args.w));
}

OpCost SplitMatrixUpdateCost(const SplitMatrixArgs& args) {
  return MemoryCost(OpPhase::kOptimizer, Text(args.p),
                    2 * Bytes(args.p) + 2 * Bytes(args.mantissa) + Bytes(args.o) +
                        Bytes(args.gate) + Bytes(args.lr) + Bytes(args.decay));
}

OpCost MatrixUpdateCost(const Tensor& p, const Tensor& o, const Tensor& lr) {
  return MemoryCost(OpPhase::kOptimizer, Text(p), 2 * Bytes(p) + Bytes(o) + 2 * Bytes(lr));
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

OpCost QkvSplitNormRotaryGradCost(const QkvArgs& forward, const Tensor& dvalue_rows,
                                  const Tensor& dscalars) {
  OpCost cost = QkvSplitNormRotaryCost(forward);
  // Beside the forward's inputs dq, dk, dv are read, and dqkv is written.
  cost.bytes += Bytes(forward.qkv) + 2 * Bytes(dvalue_rows) + 2 * Bytes(dscalars);
  return cost;
}

OpCost HeadGateCost(const Tensor& o, const Tensor& gate_w) {
  return MemoryCost(OpPhase::kNormElementwise, Text(o),
                    2 * Bytes(o) + HeadFeatureBytes(o, gate_w) + Bytes(gate_w));
}

OpCost HeadGateGradCost(const Tensor& o, const Tensor& gate_w, const Tensor& du_head,
                        const Tensor& dgate_w) {
  OpCost cost = HeadGateCost(o, gate_w);
  cost.bytes += Bytes(o) + Bytes(du_head) + 2 * Bytes(dgate_w);
  return cost;
}

OpCost GatedQkvCost(const GatedQkvArgs& args) {
  const double positions = static_cast<double>(args.qkv.dim(1)) * (args.paired ? 2 : 1);
  const double rotary = 2 * positions * args.cos.cols() * SizeOf(args.cos.dtype());
  double bytes = 2 * Bytes(args.qkv) + rotary + Bytes(args.inv_rms);
  if (args.value_table) {
    bytes += Bytes(args.tokens) + NamedRowBytes(args.tokens, args.value_table) +
             HeadFeatureBytes(args.v, args.value_gate) + Bytes(args.value_gate);
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
                    3 * Bytes(args.x) + HeadFeatureBytes(args.x, args.gate));
}

OpCost GatedSkipGradCost(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad) {
  return MemoryCost(OpPhase::kNormElementwise, Text(grad.dy),
                    3 * Bytes(grad.dy) + 3 * HeadFeatureBytes(grad.dy, forward.gate) +
                        2 * Bytes(grad.dgate) + 2 * Bytes(grad.dscalars));
}

OpCost ScaleWeightCost(const Tensor& w, const Tensor& y) {
  return MemoryCost(OpPhase::kOther, Text(w), Bytes(w) + Bytes(y));
}

OpCost ScaleWeightGradCost(const Tensor& w, const Tensor& dw) {
  return MemoryCost(OpPhase::kOther, Text(w), Bytes(w) + 2 * Bytes(dw));
}

OpCost TransposeCopyCost(const Tensor& x, const Tensor& y) {
  return MemoryCost(OpPhase::kOther, Text(x) + "^T", Bytes(x) + Bytes(y));
}

OpCost TransposeAddCost(const Tensor& x, const Tensor& y) {
  return MemoryCost(OpPhase::kOther, Text(x) + "^T", Bytes(x) + 2 * Bytes(y));
}

}  // namespace kernels
