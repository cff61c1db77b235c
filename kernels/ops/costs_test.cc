// What each op costs, in numbers.
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
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

namespace kernels {
namespace {

// Costs read shapes only: all tensors share this one address.
char memory[1];
Tensor Bf16(std::vector<int64_t> dims) { return Tensor(memory, DType::kBF16, dims); }
Tensor F32(std::vector<int64_t> dims) { return Tensor(memory, DType::kF32, dims); }
Tensor I32(std::vector<int64_t> dims) { return Tensor(memory, DType::kI32, dims); }

TEST(Costs, MatMulCountsTheAddendAndBothTranspositions) {
  // Two slots of [16, 8] x [8, 4].
  const OpCost plain =
      MatMulCost(Bf16({2, 16, 8}), Bf16({4, 8}), Bf16({2, 16, 4}), {.trans_b = true});
  EXPECT_EQ(plain.phase, OpPhase::kGemm);
  EXPECT_EQ(plain.shape, "bf16 [2, 16, 8] x bf16 [4, 8]^T");
  EXPECT_EQ(plain.flops, 2 * 2 * 16 * 8 * 4);
  EXPECT_EQ(plain.bytes, 2 * (2 * 16 * 8 + 8 * 4 + 2 * 16 * 4));

  const OpCost added =
      MatMulCost(F32({8, 16}), F32({8, 4}), F32({16, 4}), {.trans_a = true, .beta = 1.0f});
  EXPECT_EQ(added.shape, "f32 [8, 16]^T x f32 [8, 4] + addend");
  EXPECT_EQ(added.flops, 2 * 16 * 4 * 8);
  EXPECT_EQ(added.bytes, 4 * (8 * 16 + 8 * 4 + 2 * 16 * 4));
}

TEST(Costs, OtherProducts) {
  const OpCost grad = WeightGradCost(Bf16({2, 16, 4}), Bf16({2, 16, 8}), F32({1, 4, 8}));
  EXPECT_EQ(grad.flops, 2 * 32 * 4 * 8);
  EXPECT_EQ(grad.bytes, 2 * 32 * (4 + 8) + 2 * 4 * 4 * 8);

  const OpCost up = LinearRelu2Cost(Bf16({2, 16, 4}), Bf16({4, 8}), Bf16({2, 16, 8}));
  EXPECT_EQ(up.flops, 2 * 32 * 4 * 8);
  EXPECT_EQ(up.bytes, 2 * (32 * 4 + 4 * 8 + 2 * 32 * 8));
  EXPECT_EQ(LinearRelu2GradCost(Bf16({2, 16, 4}), Bf16({4, 8}), Bf16({2, 16, 8})).bytes, up.bytes);

  // 3 matrices of 4 rows: 4 * 5 / 2 different entries of the product each.
  const OpCost gram = SymmetricProductCost(Bf16({3, 4, 8}), 0, Bf16({3, 4, 4}));
  EXPECT_EQ(gram.phase, OpPhase::kOptimizer);
  EXPECT_EQ(gram.flops, 3 * (4 * 5 / 2) * 2 * 8);
  EXPECT_EQ(gram.bytes, 2 * (3 * 4 * 8 + 3 * 4 * 4));
}

TEST(Costs, AttentionPairsAreThoseOfTheDefinition) {
  for (int64_t tokens : {1, 5, 16, 40}) {
    for (int64_t window : {0, 3, 16, 100}) {
      int64_t pairs = 0;
      for (int64_t p = 0; p < tokens; ++p) {
        for (int64_t j = 0; j <= p; ++j) pairs += p - window <= j;
      }
      EXPECT_EQ(AttentionPairs(tokens, window), pairs) << tokens << " tokens, window " << window;
    }
  }
  // Documents of 3, 0 and 5 tokens, and none after the end.
  EXPECT_EQ(AttentionPairs({0, 3, 3, 8, 8, 8}, 1), (1 + 2 + 2) + (1 + 2 + 2 + 2 + 2));
}

TEST(Costs, AttentionPairsOfBlocksAreThoseOfTheDefinition) {
  constexpr int64_t kBlock = 16;
  const std::vector<int32_t> tables[] = {
      {0, 200}, {0, 1, 16, 16, 47, 48, 200, 200}, {0, 0, 15, 33, 150, 160, 200}};
  for (const std::vector<int32_t>& boundaries : tables) {
    for (int64_t blocks : {0, 1, 2, 5, 20}) {
      int64_t pairs = 0;
      for (size_t i = 1; i < boundaries.size(); ++i) {
        for (int64_t p = boundaries[i - 1]; p < boundaries[i]; ++p) {
          for (int64_t j = boundaries[i - 1]; j <= p; ++j) {
            pairs += p / kBlock - j / kBlock < std::max<int64_t>(blocks, 1);
          }
        }
      }
      EXPECT_EQ(AttentionPairs(boundaries, {blocks * kBlock, kBlock}), pairs) << blocks;
      if (boundaries.size() == 2) {
        EXPECT_EQ(AttentionPairs(200, {blocks * kBlock, kBlock}), pairs) << blocks;
      }
    }
  }
}

TEST(Costs, Attention) {
  AttentionArgs args;
  args.q = args.k = args.v = args.o = Bf16({2, 16, 8});
  args.boundaries = I32({2, 4});
  args.heads = 2;
  args.window_tokens = 5;
  args.lse = F32({2, 2, 16});
  // Scores and output: two products of 2 flops for each pair, feature and slot.
  const OpCost forward = AttentionCost(args, 100);
  EXPECT_EQ(forward.phase, OpPhase::kAttention);
  EXPECT_EQ(forward.shape, "bf16 [2, 16, 8], 2 heads, window 5");
  EXPECT_EQ(forward.flops, 2 * 2 * 100 * 8 * 2);
  EXPECT_EQ(forward.bytes, 4 * 2 * 256 + 4 * 8 + 4 * 64);
  const OpCost backward = AttentionGradCost(args, 100);
  EXPECT_EQ(backward.flops, forward.flops / 2 * 5);
  EXPECT_EQ(backward.bytes, 8 * 2 * 256 + 4 * 8 + 4 * 64);
  args.window_tokens = 32;
  args.window_block = 16;
  EXPECT_EQ(AttentionCost(args, 100).shape, "bf16 [2, 16, 8], 2 heads, window 32 in blocks of 16");
}

TEST(Costs, CachedAttention) {
  AttentionArgs args;
  args.q = args.o = Bf16({2, 3, 8});
  args.k = args.v = Bf16({2, 100, 8});
  args.boundaries = I32({2, 4});
  args.heads = 2;
  args.window_tokens = 5;
  args.lse = F32({2, 2, 3});
  // The queries 20 to 22 see six keys each, of the rows 15 to 22.
  const OpCost cost = CachedAttentionCost(args, 20);
  EXPECT_EQ(cost.phase, OpPhase::kAttention);
  EXPECT_EQ(cost.shape, "bf16 [2, 3, 8], 2 heads, window 5, 20 tokens before");
  EXPECT_EQ(cost.flops, 2 * 2 * (3 * 6) * 8 * 2);
  EXPECT_EQ(cost.bytes, 2 * 2 * 48 + 2 * 2 * (2 * 8 * 8) + 4 * 8 + 4 * 12);
}

TEST(Costs, HeadHasOneProductForwardAndThreeWithTheGradient) {
  HeadArgs args;
  args.x = Bf16({2, 16, 8});
  args.w = Bf16({64, 8});
  args.targets = I32({2, 16});
  const Tensor losses = F32({2, 16});
  const OpCost loss = HeadLossCost(args, losses);
  EXPECT_EQ(loss.phase, OpPhase::kHeadLoss);
  EXPECT_FALSE(loss.fp8);
  EXPECT_EQ(loss.flops, 2 * 32 * 64 * 8);
  EXPECT_EQ(loss.bytes, 2 * (32 * 8 + 64 * 8) + 4 * 32 + 4 * 32);
  args.precision.fp8 = true;
  const OpCost grad = HeadLossGradCost(args, losses, F32({1, 64, 8}));
  EXPECT_TRUE(grad.fp8);
  EXPECT_EQ(grad.flops, 3 * loss.flops);
  EXPECT_EQ(grad.bytes, loss.bytes + 2 * 32 * 8 + 2 * 4 * 64 * 8);
}

TEST(Costs, TablesCostOnlyTheRowsThatTokensCanName) {
  EmbedSmearNormArgs args;
  args.tokens = I32({1, 16});
  args.table = Bf16({1000, 8});
  args.smear_w = Bf16({1, 4});
  args.scalars = F32({5});
  args.x0 = Bf16({1, 16, 8});
  args.inv_rms = F32({1, 16});
  const double forward = 4 * 16 + 2 * 16 * 8 + 2 * 4 + 4 * 5 + 2 * 16 * 8 + 4 * 16;
  EXPECT_EQ(EmbedSmearNormCost(args).bytes, forward);
  EXPECT_EQ(EmbedSmearNormGradCost(args, args.x0, F32({1, 4}), F32({1, 5})).bytes,
            forward + 2 * 16 * 8 + 2 * 4 * 4 + 2 * 4 * 5);
  EXPECT_EQ(EmbeddingGradCost(args.tokens, args.x0, F32({1, 1000, 8})).bytes,
            4 * 16 + 2 * 16 * 8 + 2 * 4 * 16 * 8);
  // A table smaller than the batch: all of it.
  EXPECT_EQ(EmbeddingGradCost(args.tokens, args.x0, F32({1, 10, 8})).bytes,
            4 * 16 + 2 * 16 * 8 + 2 * 4 * 10 * 8);
  // Rows by number: read and written, of a sum read on both sides.
  const Tensor rows = I32({5});
  EXPECT_EQ(MoveRowsCost(RowMove::kGather, rows, Bf16({1000, 8}), Bf16({5, 8})).bytes,
            4 * 5 + 2 * 2 * 5 * 8);
  EXPECT_EQ(MoveRowsCost(RowMove::kAdd, rows, F32({1000, 8}), F32({5, 8})).bytes,
            4 * 5 + 3 * 4 * 5 * 8);
}

TEST(Costs, Norms) {
  const Tensor x = Bf16({2, 16, 8}), rows = F32({2, 16}), scalars = F32({5});
  const double bytes = x.bytes(), row_bytes = rows.bytes();
  EXPECT_EQ(RmsNormCost(x, rows).bytes, 2 * bytes + row_bytes);
  RmsNormGradArgs norm_grad = {.dy = x, .x = x, .inv_rms = rows, .dx = x};
  EXPECT_EQ(RmsNormGradCost(norm_grad).bytes, 3 * bytes + row_bytes);
  norm_grad.residual = x;
  EXPECT_EQ(RmsNormGradCost(norm_grad).bytes, 4 * bytes + row_bytes);
  MixNormArgs mix;
  mix.x = mix.x0 = mix.mixed = mix.u = x;
  mix.scalars = scalars;
  mix.inv_rms = rows;
  EXPECT_EQ(MixNormCost(mix).bytes, 4 * bytes + row_bytes + 20);
  mix.saved = x;
  EXPECT_EQ(MixNormCost(mix).bytes, 5 * bytes + row_bytes + 20);
  mix.u = mix.inv_rms = Tensor();  // without a norm
  EXPECT_EQ(MixNormCost(mix).bytes, 4 * bytes + 20);
  MixNormGradArgs grad;
  grad.dresidual = grad.du = grad.x = grad.x0 = grad.dx = grad.dx0 = x;
  grad.inv_rms = rows;
  grad.scalars = grad.dscalars = scalars;
  // Read: dresidual, du, x, x0, dx0. Written: dx, dx0.
  EXPECT_EQ(MixNormGradCost(grad).bytes, 7 * bytes + row_bytes + 3 * 20);
  grad.saved = grad.dsaved = grad.dx_extra = x;
  grad.du_head = F32({2, 16, 4});
  EXPECT_EQ(MixNormGradCost(grad).bytes, 10 * bytes + row_bytes + 3 * 20 + 4 * 32 * 4);
}

TEST(Costs, Qkv) {
  QkvArgs args;
  args.qkv = Bf16({2, 16, 24});
  args.heads = 2;
  args.cos = args.sin = Bf16({64, 2});  // 16 positions of it are used
  args.tokens = I32({2, 16});
  args.scalars = F32({5});
  args.q = args.k = args.v = Bf16({2, 16, 8});
  args.inv_rms = F32({2, 16, 4});
  const double plain = 2 * 2 * 32 * 24 + 2 * 2 * 16 * 2 + 4 * 32 * 4 + 4 * 5;
  EXPECT_EQ(QkvSplitNormRotaryCost(args).bytes, plain);
  QkvGradArgs grad;
  grad.dscalars = F32({1, 5});
  EXPECT_EQ(QkvSplitNormRotaryGradCost(args, grad).bytes, plain + 2 * 32 * 24 + 2 * 4 * 5);
  args.value_table = Bf16({1000, 8});
  const double valued = plain + 4 * 32 + 2 * 32 * 8;
  EXPECT_EQ(QkvSplitNormRotaryCost(args).bytes, valued);
  grad.dvalue_rows = args.v;
  EXPECT_EQ(QkvSplitNormRotaryGradCost(args, grad).bytes,
            valued + 2 * 32 * 24 + 2 * 2 * 32 * 8 + 2 * 4 * 5);
  args.norm_value = true;
  args.inv_rms = F32({2, 16, 6});
  args.cos = args.sin = F32({64, 2});
  EXPECT_EQ(QkvSplitNormRotaryCost(args).bytes, valued + 2 * 2 * 16 * 2 + 4 * 32 * 2);
  args.value_table = args.tokens = Tensor();  // and so its tokens
  EXPECT_EQ(QkvSplitNormRotaryCost(args).bytes, plain + 2 * 2 * 16 * 2 + 4 * 32 * 2);

  const Tensor o = args.v, gate_w = Bf16({2, 3});
  EXPECT_EQ(HeadGateCost(o, gate_w).bytes, 2 * 2 * 32 * 8 + 2 * 32 * 3 + 2 * 6);
  const HeadGateGradArgs gate = {.dy = o,
                                 .o = o,
                                 .u = o,
                                 .gate_w = gate_w,
                                 .do_ = o,
                                 .du_head = F32({2, 16, 3}),
                                 .dgate_w = F32({1, 6})};
  EXPECT_EQ(HeadGateGradCost(gate).bytes,
            3 * 2 * 32 * 8 + 2 * 32 * 3 + 2 * 6 + 4 * 32 * 3 + 2 * 4 * 6);
}

TEST(Costs, GatedQkv) {
  GatedQkvArgs args;
  args.qkv = Bf16({2, 16, 48});
  args.heads = 2;
  args.cos = args.sin = Bf16({64, 4});  // 16 positions of it are used
  args.q = args.k = args.v = args.u = Bf16({2, 16, 16});
  args.inv_rms = F32({2, 16, 4});
  const double plain = 2 * 2 * 32 * 48 + 2 * 2 * 16 * 4 + 4 * 32 * 4;
  const OpCost cost = GatedQkvCost(args);
  EXPECT_EQ(cost.phase, OpPhase::kNormElementwise);
  EXPECT_EQ(cost.shape, "bf16 [2, 16, 48]");
  EXPECT_EQ(cost.bytes, plain);
  args.paired = true;  // 32 positions
  EXPECT_EQ(GatedQkvCost(args).bytes, plain + 2 * 2 * 16 * 4);
  args.paired = false;
  GatedQkvGradArgs grad;
  grad.dq = grad.dk = grad.dv = args.q;
  grad.dqkv = args.qkv;
  EXPECT_EQ(GatedQkvGradCost(args, grad).bytes, plain + 2 * 32 * 48);

  // Tokens, their rows of the table, the first 3 features of u, and the gate.
  args.tokens = I32({2, 16});
  args.value_table = Bf16({1000, 16});
  args.value_gate = Bf16({2, 3});
  const double valued = plain + 4 * 32 + 2 * 32 * 16 + 2 * 32 * 3 + 2 * 6;
  EXPECT_EQ(GatedQkvCost(args).bytes, valued);
  EXPECT_EQ(GatedQkvCost(args).shape, "bf16 [2, 16, 48], value");
  grad.dvalue_rows = args.v;
  grad.du_head = F32({2, 16, 3});
  grad.dvalue_gate = F32({1, 6});
  EXPECT_EQ(GatedQkvGradCost(args, grad).bytes,
            valued + 2 * 32 * 48 + 2 * (2 * 32 * 16 + 4 * 32 * 3 + 4 * 6));
}

TEST(Costs, GatedSkip) {
  GatedSkipArgs args;
  args.x = args.x0 = args.saved = args.y = Bf16({2, 16, 8});
  args.gate = Bf16({1, 3});
  args.scalars = F32({5});
  // x, saved and y whole, of x0 three features.
  EXPECT_EQ(GatedSkipCost(args).bytes, 2 * 32 * (3 * 8 + 3));
  EXPECT_EQ(GatedSkipCost(args).phase, OpPhase::kNormElementwise);
  GatedSkipGradArgs grad;
  grad.dy = grad.dsaved = grad.dx0 = args.x;
  grad.dgate = F32({1, 3});
  grad.dscalars = F32({1, 5});
  // dy, saved and dsaved whole; of x0 three features, and of dx0 twice.
  EXPECT_EQ(GatedSkipGradCost(args, grad).bytes, 2 * 32 * (3 * 8 + 3 * 3) + 2 * 4 * (3 + 5));
}

TEST(Costs, Weights) {
  const Tensor w = Bf16({4, 5});
  EXPECT_EQ(ScaleWeightCost(w, w).bytes, 80);
  EXPECT_EQ(ScaleWeightCost(w, w).phase, OpPhase::kOther);
  EXPECT_EQ(ScaleWeightGradCost(w, F32({4, 5})).bytes, 40 + 2 * 80);
  EXPECT_EQ(TransposeCopyCost(w, Bf16({5, 4})).bytes, 80);
  EXPECT_EQ(TransposeCopyCost(w, Bf16({5, 4})).shape, "bf16 [4, 5]^T");
  EXPECT_EQ(TransposeAddCost(F32({4, 5}), F32({5, 4})).bytes, 3 * 80);
}

TEST(Costs, OptimizerAndElementwise) {
  AdamArgs adam;
  adam.p = adam.m = adam.v = Bf16({10});
  adam.g = F32({10});
  adam.rates = F32({3});
  EXPECT_EQ(AdamUpdateCost(adam).bytes, 10 * (2 * 2 + 4 + 2 * 2 + 2 * 2) + 12);
  EXPECT_EQ(AdamUpdateCost(adam).phase, OpPhase::kOptimizer);
  adam.mantissa = Bf16({10});  // of two bytes an element
  EXPECT_EQ(AdamUpdateCost(adam).bytes, 10 * (2 * 2 + 4 + 2 * 2 + 2 * 2 + 2 * 2) + 12);
  AdamFlatArgs flat;
  flat.p = {Bf16({3}), Bf16({7})};
  flat.g = flat.m = flat.v = F32({10});
  flat.rates = F32({2, 6});
  EXPECT_EQ(AdamFlatCost(flat).bytes, 10 * (2 * 2 + 4 + 2 * 4 + 2 * 4) + 48);
  EXPECT_EQ(AdamFlatCost(flat).phase, OpPhase::kOptimizer);
  MomentumArgs momentum;
  momentum.g = momentum.m = F32({10});
  momentum.u = Bf16({10});
  EXPECT_EQ(MomentumUpdateCost(momentum).bytes, 10 * (4 + 8 + 2));
  EXPECT_EQ(NormalizeFrobeniusCost(Bf16({2, 4, 5})).bytes, 2 * 2 * 40);
  SecondMomentArgs moment;
  moment.o = moment.p = Bf16({2, 4, 5});
  moment.w = F32({2, 5});
  EXPECT_EQ(NormalizeBySecondMomentCost(moment).bytes, 40 * (2 * 2 + 2) + 10 * 2 * 4);
  MatrixUpdateArgs matrix;
  matrix.p = F32({2, 4, 5});
  matrix.o = Bf16({2, 4, 5});
  matrix.lr = matrix.decay = F32({2});
  EXPECT_EQ(MatrixUpdateCost(matrix).bytes, 40 * (8 + 2) + 16);
  SplitMatrixArgs split;
  split.p = split.o = Bf16({2, 4, 5});
  split.mantissa = Tensor(memory, DType::kU16, {2, 4, 5});
  split.lr = split.decay = F32({2});
  EXPECT_EQ(SplitMatrixUpdateCost(split).bytes, 40 * (4 + 4 + 2) + 16);
  EXPECT_EQ(SplitMatrixUpdateCost(split).phase, OpPhase::kOptimizer);
  split.gate = F32({2, 4, 5});
  EXPECT_EQ(SplitMatrixUpdateCost(split).bytes, 40 * (4 + 4 + 2 + 4) + 16);
  TwinRailArgs rails;
  rails.g = rails.fast = rails.slow = F32({10});
  rails.u = Bf16({10});
  EXPECT_EQ(TwinRailUpdateCost(rails).bytes, 10 * (4 + 8 + 8 + 2));
  GramNormArgs gram;
  gram.u = gram.x = Bf16({2, 4, 5});
  gram.gram = Bf16({2, 4, 4});
  EXPECT_EQ(NormalizeByGramCost(gram).bytes, 2 * (2 * 40 + 3 * 32));

  EXPECT_EQ(FillZeroCost(F32({10})).bytes, 40);
  EXPECT_EQ(CopyCost(F32({10}), Bf16({10})).bytes, 60);
  EXPECT_EQ(CopyCost(F32({10}), Bf16({10})).shape, "f32 [10] to bf16");
  EXPECT_EQ(AddCost(Bf16({10}), Bf16({10})).bytes, 60);
  EXPECT_EQ(AddCost(Bf16({10}), Bf16({10})).phase, OpPhase::kNormElementwise);
  EXPECT_EQ(SumCost(F32({10})).bytes, 120);
  EXPECT_EQ(ScaleCost(F32({10})).bytes, 80);
  EXPECT_EQ(RowSumsCost(F32({2, 5}), F32({2})).bytes, 48);
  EXPECT_EQ(FirstNonFiniteCost(F32({10}), Tensor(memory, DType::kI64, {1})).bytes, 48);
  EXPECT_EQ(PoisonIfFoundCost(Tensor(memory, DType::kI64, {10}), F32({1})).bytes, 84);
  EXPECT_EQ(ClearUnlessFiniteCost(F32({10}), I32({1})).bytes, 44);
}

}  // namespace
}  // namespace kernels
