#include "kernels/trace/tracing.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gated.h"
#include "kernels/ops/head.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/qkv.h"
#include "kernels/ops/weight.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;
using testing::RandomTokens;

constexpr int64_t kSlots = 2, kT = 16, kD = 16, kHeads = 2, kVocab = 128;

std::vector<std::string> Names(const std::vector<TracedOp>& ops) {
  std::vector<std::string> names;
  for (const TracedOp& op : ops) names.push_back(op.name);
  return names;
}

class Tracing : public ::testing::Test {
 protected:
  HostTensor Stream(uint32_t seed) { return RandomTensor(DType::kBF16, {kSlots, kT, kD}, seed); }

  const std::unique_ptr<Queue> queue_ = MakeCpuQueue(1);
  OpTrace trace_{*queue_};
};

TEST_F(Tracing, TracedOpsComputeTheSameAndUntracedOnesLeaveNoTrace) {
  const HostTensor a = RandomTensor(DType::kBF16, {8, 24}, 1);
  const HostTensor b = RandomTensor(DType::kBF16, {24, 16}, 2);
  const HostTensor c(DType::kBF16, {8, 16}), want(DType::kBF16, {8, 16});
  MatMul(a, b, c, {}, *queue_);
  const std::unique_ptr<Queue> untraced = MakeCpuQueue(1);
  MatMul(a, b, want, {}, *untraced);
  EXPECT_EQ(c.ToDouble(), want.ToDouble());
  const std::vector<TracedOp> ops = trace_.Take();
  ASSERT_EQ(Names(ops), std::vector<std::string>{"MatMul"});
  EXPECT_EQ(ops[0].cost.shape, "bf16 [8, 24] x bf16 [24, 16]");
  EXPECT_EQ(ops[0].cost.flops, 2 * 8 * 24 * 16);
  EXPECT_EQ(ops[0].cost.bytes, 2 * (8 * 24 + 24 * 16 + 8 * 16));
  EXPECT_TRUE(trace_.Take().empty());
}

TEST_F(Tracing, TheQueueIsItselfAgainAfterwards) {
  const std::unique_ptr<Queue> queue = MakeCpuQueue(1);
  const OpTable* own = &queue->ops();
  {
    OpTrace trace(*queue);
    EXPECT_NE(&queue->ops(), own);
  }
  EXPECT_EQ(&queue->ops(), own);
}

TEST_F(Tracing, TimesAreOrderedAndTheCallersMarksAmongThem) {
  const HostTensor x = Stream(1);
  const int64_t begin = queue_->MarkTime();
  FillZero(x, *queue_);
  Scale(HostTensor(DType::kF32, {1000}), 2.0f, *queue_);
  const int64_t end = queue_->MarkTime();
  std::vector<double> marks;
  const std::vector<TracedOp> ops = trace_.Take(&marks);
  ASSERT_EQ(ops.size(), 2u);
  ASSERT_EQ(marks.size(), 6u);
  EXPECT_EQ(marks[begin], 0);
  double last = 0;
  for (const TracedOp& op : ops) {
    EXPECT_LE(last, op.begin_s);
    EXPECT_LE(op.begin_s, op.end_s);
    last = op.end_s;
  }
  EXPECT_LE(last, marks[end]);
}

TEST_F(Tracing, PhaseOfTheCaller) {
  const HostTensor x = Stream(1);
  FillZero(x, *queue_);
  trace_.SetPhase(OpPhase::kOptimizer);
  FillZero(x, *queue_);
  trace_.SetPhase(std::nullopt);
  FillZero(x, *queue_);
  const std::vector<TracedOp> ops = trace_.Take();
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[0].cost.phase, OpPhase::kOther);
  EXPECT_EQ(ops[1].cost.phase, OpPhase::kOptimizer);
  EXPECT_EQ(ops[2].cost.phase, OpPhase::kOther);
}

TEST_F(Tracing, AttentionWithTheCallersPairs) {
  const HostTensor q = Stream(1), k = Stream(2), v = Stream(3), d_o = Stream(4);
  const HostTensor o = Stream(0), dq = Stream(0), dk = Stream(0), dv = Stream(0);
  const HostTensor boundaries(DType::kI32, {kSlots, 3});
  const HostTensor lse(DType::kF32, {kSlots, kHeads, kT}), delta(DType::kF32, {kSlots, kHeads, kT});
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    int32_t* row = boundaries.get().i32() + 3 * slot;
    row[1] = 7;
    row[2] = kT;
  }
  AttentionArgs args{.q = q,
                     .k = k,
                     .v = v,
                     .boundaries = boundaries,
                     .heads = kHeads,
                     .window_tokens = 4,
                     .scale = 0.1f,
                     .o = o,
                     .lse = lse};
  Attention(args, *queue_);
  trace_.SetAttentionPairs([](const AttentionWindow& window) {
    return AttentionPairs({0, 7, 16}, window);
  });
  AttentionGrad(args, d_o, delta, dq, dk, dv, *queue_);
  args.window_tokens = 0;
  args.window_block = 16;
  Attention(args, *queue_);
  const std::vector<TracedOp> ops = trace_.Take();
  ASSERT_EQ(Names(ops), (std::vector<std::string>{"Attention", "AttentionGrad", "Attention"}));
  EXPECT_EQ(ops[0].cost.flops, 4 * kSlots * kD * AttentionPairs(kT, 4));
  EXPECT_EQ(ops[1].cost.flops, 10 * kSlots * kD * AttentionPairs({0, 7, 16}, 4));
  EXPECT_EQ(ops[2].cost.flops, 4 * kSlots * kD * (7 * 8 / 2 + 9 * 10 / 2));  // all in one block
}

TEST_F(Tracing, ElementwiseFamily) {
  const HostTensor a = RandomTensor(DType::kF32, {2, 8}, 1),
                   b = RandomTensor(DType::kF32, {2, 8}, 2);
  const HostTensor sums(DType::kF32, {2}), index(DType::kI64, {1});
  Copy(a, b, *queue_);
  Add(a, b, *queue_);
  Sum(a, b, b, *queue_);
  Scale(b, 2.0f, *queue_);
  RowSums(b, sums, *queue_);
  FirstNonFinite(b, index, *queue_);
  PoisonIfFound(index, sums.get().Slice(0, 1), *queue_);
  ClearUnlessFinite(b, HostTensor(DType::kI32, {1}), *queue_);
  EXPECT_EQ(Names(trace_.Take()),
            (std::vector<std::string>{"Copy", "Add", "Sum", "Scale", "RowSums", "FirstNonFinite",
                                      "PoisonIfFound", "ClearUnlessFinite"}));
}

TEST_F(Tracing, MatMulFamily) {
  const HostTensor u = Stream(1), du = Stream(0), w = RandomTensor(DType::kBF16, {kD, 32}, 2);
  const HostTensor a(DType::kBF16, {kSlots, kT, 32}), b(DType::kBF16, {kSlots, kT, 32});
  const HostTensor dw(DType::kF32, {1, kD, 32}), gram(DType::kBF16, {kSlots, kT, kT});
  LinearRelu2(u, w, HiddenDim::kColumns, a, b, *queue_);
  LinearRelu2Grad(u, w, HiddenDim::kColumns, a, b, *queue_);
  WeightGrad(u, b, dw, *queue_);
  const Tensor rows = w.get().Reshape({32, kD});
  LinearRelu2(u, rows, HiddenDim::kRows, a, b, *queue_);
  LinearRelu2Grad(u, rows, HiddenDim::kRows, a, b, *queue_);
  SymmetricProduct(u, 1.0f, 0.0f, Tensor(), gram, *queue_);
  const std::vector<TracedOp> ops = trace_.Take();
  EXPECT_EQ(Names(ops),
            (std::vector<std::string>{"LinearRelu2", "LinearRelu2Grad", "WeightGrad", "LinearRelu2",
                                      "LinearRelu2Grad", "SymmetricProduct"}));
  for (int i : {0, 1, 2, 3, 4}) EXPECT_EQ(ops[i].cost.flops, 2 * kSlots * kT * kD * 32) << i;
}

TEST_F(Tracing, NormFamily) {
  const HostTensor x = Stream(1), x0 = Stream(2), y = Stream(0), u = Stream(0), dx = Stream(0);
  const HostTensor inv_rms(DType::kF32, {kSlots, kT}), scalars(DType::kF32, {4});
  const HostTensor dscalars(DType::kF32, {1, 4});
  const MixScalars which{.lambda_x = 0, .lambda_x0 = 1};
  RmsNorm(x, y, inv_rms, *queue_);
  RmsNormGrad(x0, x, inv_rms, Tensor(), dx, *queue_);
  MixNorm(x, x0, Tensor(), scalars, which, y, u, inv_rms, *queue_);
  MixNormGradArgs grad;
  const HostTensor dx0 = Stream(3);
  grad.dresidual = grad.dx = dx;
  grad.du = y;
  grad.inv_rms = inv_rms;
  grad.x = x;
  grad.x0 = x0;
  grad.scalars = scalars;
  grad.which = which;
  grad.dx0 = dx0;
  grad.dscalars = dscalars;
  MixNormGrad(grad, *queue_);
  const std::vector<TracedOp> ops = trace_.Take();
  EXPECT_EQ(Names(ops),
            (std::vector<std::string>{"RmsNorm", "RmsNormGrad", "MixNorm", "MixNormGrad"}));
  for (const TracedOp& op : ops) EXPECT_EQ(op.cost.phase, OpPhase::kNormElementwise) << op.name;
}

TEST_F(Tracing, OptimizerFamily) {
  const HostTensor p(DType::kF32, {2, 4, 4}), g = RandomTensor(DType::kF32, {2, 4, 4}, 1);
  const HostTensor m(DType::kF32, {2, 4, 4}), u(DType::kBF16, {2, 4, 4});
  const HostTensor v(DType::kF32, {2, 4, 4}), rates(DType::kF32, {2});
  const HostTensor adam_rates(DType::kF32, {3});
  const auto flat = [](const HostTensor& x) { return x.get().Reshape({-1}); };
  AdamArgs adam;
  adam.p = flat(p);
  adam.g = flat(g);
  adam.m = flat(m);
  adam.v = flat(v);
  adam.rates = adam_rates;
  AdamUpdate(adam, *queue_);
  const HostTensor flat_rates(DType::kF32, {1, 6});
  AdamFlat({.p = {flat(p)}, .g = flat(g), .m = flat(m), .v = flat(v), .rates = flat_rates},
           *queue_);
  MomentumUpdate({.g = flat(g), .m = flat(m), .mu = rates.get().Slice(0, 1), .u = flat(u)},
                 *queue_);
  NormalizeFrobenius(u, 1.0f, 1e-7f, u, *queue_);
  const HostTensor moment(DType::kF32, {2, 4});
  NormalizeBySecondMoment({.o = u, .w = moment, .p = u, .beta2 = 0.95f}, *queue_);
  MatrixUpdate(p, u, rates, rates, Tensor(), *queue_);
  const HostTensor upper(DType::kBF16, {2, 4, 4}), mantissa(DType::kU16, {2, 4, 4});
  SplitMatrixUpdate({.p = upper, .mantissa = mantissa, .o = u, .lr = rates, .decay = rates},
                    *queue_);
  TwinRailUpdate({.g = flat(g),
                  .fast = flat(m),
                  .slow = flat(v),
                  .rates = adam_rates,
                  .u = flat(u),
                  .slow_rate = 0.02f},
                 *queue_);
  const HostTensor gram(DType::kBF16, {2, 4, 4});
  NormalizeByGram({.u = u, .gram = gram, .x = u, .eps = 1e-6f}, *queue_);
  EXPECT_EQ(
      Names(trace_.Take()),
      (std::vector<std::string>{"AdamUpdate", "AdamFlat", "MomentumUpdate", "NormalizeFrobenius",
                                "NormalizeBySecondMoment", "MatrixUpdate", "SplitMatrixUpdate",
                                "TwinRailUpdate", "NormalizeByGram"}));
}

TEST_F(Tracing, EmbeddingAndHeadFamilies) {
  const HostTensor tokens = RandomTokens({kSlots, kT}, kVocab, 1);
  const HostTensor table = RandomTensor(DType::kBF16, {kVocab, kD}, 2);
  const HostTensor smear_w = RandomTensor(DType::kBF16, {1, 4}, 3), scalars(DType::kF32, {4});
  const HostTensor x0 = Stream(0), inv_rms(DType::kF32, {kSlots, kT});
  const HostTensor de = Stream(0), dsmear_w(DType::kF32, {1, 4}), dscalars(DType::kF32, {1, 4});
  const HostTensor dtable(DType::kF32, {1, kVocab, kD});
  const EmbedSmearNormArgs embed{.tokens = tokens,
                                 .table = table,
                                 .smear_w = smear_w,
                                 .scalars = scalars,
                                 .smear_lambda = 0,
                                 .x0 = x0,
                                 .inv_rms = inv_rms};
  const int64_t grad_bytes = EmbeddingGradWorkspaceBytes(kSlots, kT, kVocab, kD, *queue_);
  const HostTensor grad_space(DType::kF32, {grad_bytes / 4 + 1});
  EmbedSmearNorm(embed, *queue_);
  EmbedSmearNormGrad(embed, Stream(4), de, dsmear_w, dscalars, *queue_);
  EmbeddingGrad(tokens, de, dtable, grad_bytes > 0 ? grad_space.get() : Tensor(), *queue_);
  MoveRows(RowMove::kGather, HostTensor(DType::kI32, {1}), dtable.get().At(0),
           HostTensor(DType::kF32, {1, kD}), *queue_);

  const HostTensor head_space(DType::kF32,
                              {HeadWorkspaceBytes(kSlots, kT, kVocab, kD, *queue_) / 4 + 1});
  HeadArgs head;
  head.x = x0;
  head.w = table;
  head.targets = tokens;
  head.workspace = head_space;
  const HostTensor losses(DType::kF32, {kSlots, kT});
  HeadLoss(head, losses, *queue_);
  HeadLossGrad(head, losses, de, dtable, *queue_);
  const HostTensor one = RandomTensor(DType::kBF16, {1, 1, kD}, 5);
  head.x = one;
  HeadLogits(head, HostTensor(DType::kF32, {1, 1, kVocab}), *queue_);
  EXPECT_EQ(Names(trace_.Take()),
            (std::vector<std::string>{"EmbedSmearNorm", "EmbedSmearNormGrad", "EmbeddingGrad",
                                      "GatherRows", "HeadLoss", "HeadLossGrad", "HeadLogits"}));
}

TEST_F(Tracing, QkvFamily) {
  const HostTensor qkv = RandomTensor(DType::kBF16, {kSlots, kT, 3 * kD}, 1);
  const HostTensor dqkv(DType::kBF16, {kSlots, kT, 3 * kD});
  const HostTensor cos = RandomTensor(DType::kBF16, {kT, kD / kHeads / 2}, 2);
  const HostTensor tokens = RandomTokens({kSlots, kT}, kVocab, 1), scalars(DType::kF32, {4});
  const HostTensor q = Stream(0), k = Stream(0), v = Stream(0), dscalars(DType::kF32, {1, 4});
  const HostTensor inv_rms(DType::kF32, {kSlots, kT, 2 * kHeads});
  QkvArgs args;
  args.qkv = qkv;
  args.heads = kHeads;
  args.cos = args.sin = cos;
  args.tokens = tokens;
  args.scalars = scalars;
  args.value_lambda = 0;
  args.q = q;
  args.k = k;
  args.v = v;
  args.inv_rms = inv_rms;
  QkvSplitNormRotary(args, *queue_);
  QkvSplitNormRotaryGrad(args, q, k, v, dqkv, Tensor(), dscalars, *queue_);
  const HostTensor gate_w = RandomTensor(DType::kBF16, {kHeads, 4}, 3), y = Stream(0);
  const HostTensor du_head(DType::kF32, {kSlots, kT, 4}), dgate_w(DType::kF32, {1, kHeads * 4});
  HeadGate(v, q, gate_w, y, *queue_);
  HeadGateGrad(y, v, q, gate_w, y, du_head, dgate_w, *queue_);
  EXPECT_EQ(Names(trace_.Take()),
            (std::vector<std::string>{"QkvSplitNormRotary", "QkvSplitNormRotaryGrad", "HeadGate",
                                      "HeadGateGrad"}));
}

TEST_F(Tracing, GatedFamily) {
  const HostTensor qkv = RandomTensor(DType::kBF16, {kSlots, kT, 3 * kD}, 1);
  const HostTensor dqkv(DType::kBF16, {kSlots, kT, 3 * kD});
  const HostTensor cos = RandomTensor(DType::kBF16, {kT, kD / kHeads / 2}, 2);
  const HostTensor tokens = RandomTokens({kSlots, kT}, kVocab, 1), u = Stream(3);
  const HostTensor table = RandomTensor(DType::kBF16, {kVocab, kD}, 4);
  const HostTensor gate = RandomTensor(DType::kBF16, {kHeads, 4}, 5);
  const HostTensor q = Stream(0), k = Stream(0), v = Stream(0), rows = Stream(0);
  const HostTensor inv_rms(DType::kF32, {kSlots, kT, 2 * kHeads}),
      du_head(DType::kF32, {kSlots, kT, 4});
  const HostTensor dgate(DType::kF32, {1, kHeads * 4});
  const GatedQkvArgs args{.qkv = qkv,
                          .heads = kHeads,
                          .cos = cos,
                          .sin = cos,
                          .tokens = tokens,
                          .value_table = table,
                          .u = u,
                          .value_gate = gate,
                          .q = q,
                          .k = k,
                          .v = v,
                          .inv_rms = inv_rms};
  GatedQkv(args, *queue_);
  GatedQkvGrad(args,
               {.dq = q,
                .dk = k,
                .dv = v,
                .dqkv = dqkv,
                .dvalue_rows = rows,
                .du_head = du_head,
                .dvalue_gate = dgate},
               *queue_);
  const HostTensor scalars(DType::kF32, {3}), dscalars(DType::kF32, {1, 3}), y = Stream(0);
  const HostTensor skip_gate = RandomTensor(DType::kBF16, {1, 4}, 6), dskip(DType::kF32, {1, 4});
  const GatedSkipArgs skip{
      .x = q, .x0 = u, .saved = k, .gate = skip_gate, .scalars = scalars, .skip = 1, .y = y};
  GatedSkip(skip, *queue_);
  GatedSkipGrad(skip, {.dy = y, .dsaved = v, .dx0 = rows, .dgate = dskip, .dscalars = dscalars},
                *queue_);
  const std::vector<TracedOp> ops = trace_.Take();
  EXPECT_EQ(Names(ops),
            (std::vector<std::string>{"GatedQkv", "GatedQkvGrad", "GatedSkip", "GatedSkipGrad"}));
  for (const TracedOp& op : ops) EXPECT_EQ(op.cost.phase, OpPhase::kNormElementwise) << op.name;
}

TEST_F(Tracing, WeightFamily) {
  const HostTensor w = RandomTensor(DType::kBF16, {8, 4}, 1), y(DType::kBF16, {8, 4});
  const HostTensor dw = RandomTensor(DType::kF32, {8, 4}, 2), turned(DType::kF32, {4, 8});
  const HostTensor scalars = RandomTensor(DType::kF32, {3}, 3), dscalars(DType::kF32, {3});
  ScaleWeight(w, scalars, 1, y, *queue_);
  ScaleWeightGrad(w, scalars, 1, dw, dscalars, *queue_);
  TransposeCopy(dw, turned, *queue_);
  const std::vector<double> once = turned.ToDouble();
  TransposeAdd(dw, turned, *queue_);
  EXPECT_EQ(Names(trace_.Take()), (std::vector<std::string>{"ScaleWeight", "ScaleWeightGrad",
                                                            "TransposeCopy", "TransposeAdd"}));
  // They went through, each to its own op.
  EXPECT_EQ(ToFloat(y.get().bf16()[5]),
            RoundToBF16(scalars.get().f32()[1] * ToFloat(w.get().bf16()[5])));
  EXPECT_NE(dscalars.ToDouble()[1], 0);
  EXPECT_EQ(turned.ToDouble()[9], 2 * once[9]);
  EXPECT_NE(once[9], 0);
}

}  // namespace
}  // namespace kernels
