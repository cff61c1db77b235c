// The ops on weights and gradients, and on tensors of any kind.
#include <limits>
#include <vector>

#include "kernels/ops/elementwise.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/weight.h"
#include "kernels/trace/op_cases.h"

namespace kernels {
namespace {

void AddElementwise(Cases& c) {
  const auto family = &OpTable::elementwise;
  const Tensor zeroed = c.F32({8});
  c.Add("FillZero", FillZeroCost(zeroed), FillZero, family, &ElementwiseOps::FillZero, zeroed);
  const Tensor from = c.F32({8}), to = c.Bf16({8});
  c.Add("Copy", CopyCost(from, to), Copy, family, &ElementwiseOps::Copy, from, to);
  const Tensor x = c.Bf16({8}), y = c.Bf16({8});
  c.Add("Add", AddCost(x, y), Add, family, &ElementwiseOps::Add, x, y);
  const Tensor a = c.F32({8}), b = c.F32({8}), sum = c.F32({8});
  c.Add("Sum", SumCost(a), Sum, family, &ElementwiseOps::Sum, a, b, sum);
  const Tensor scaled = c.F32({8});
  c.Add("Scale", ScaleCost(scaled), Scale, family, &ElementwiseOps::Scale, scaled, 2.0f);
  const Tensor rows = c.F32({2, 8}), sums = c.F32({2});
  c.Add("RowSums", RowSumsCost(rows, sums), RowSums, family, &ElementwiseOps::RowSums, rows, sums);

  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor searched = c.F32({8}), index = c.Zeros(DType::kI64, {1});
  searched.f32()[5] = nan;
  c.Add("FirstNonFinite", FirstNonFiniteCost(searched, index), FirstNonFinite, family,
        &ElementwiseOps::FirstNonFinite, searched, index);
  const Tensor found = c.Zeros(DType::kI64, {2}), poisoned = c.F32({1});
  c.Add("PoisonIfFound", PoisonIfFoundCost(found, poisoned), PoisonIfFound, family,
        &ElementwiseOps::PoisonIfFound, found, poisoned);
  const Tensor checked = c.F32({8}), guard = c.Zeros(DType::kI32, {1});
  checked.f32()[5] = nan;
  guard.i32()[0] = 1;
  c.Add("ClearUnlessFinite", ClearUnlessFiniteCost(checked, guard), ClearUnlessFinite, family,
        &ElementwiseOps::ClearUnlessFinite, checked, guard);
}

void AddMatMul(Cases& c) {
  const auto family = &OpTable::matmul;
  const Tensor a = c.Bf16({8, 24}), b = c.Bf16({24, 16}), sum = c.Bf16({8, 16});
  const Tensor addend = c.Bf16({8, 16});
  const MatMulOptions options = {.alpha = 0.5f, .beta = 2.0f};
  c.Add(
      "MatMul", MatMulCost(a, b, sum, options), [](auto&... args) { MatMul(args...); }, family,
      &MatMulOps::MatMul, a, b, sum, options, addend);
  const Tensor dy = c.Stream(), x = c.Bf16({kSlots, kTokens, 8}), dw = c.F32({1, kDim, 8});
  c.Add("WeightGrad", WeightGradCost(dy, x, dw), WeightGrad, family, &MatMulOps::WeightGrad, dy, x,
        dw);
  const Dims hidden = {kSlots, kTokens, kHidden};
  const Tensor u = c.Stream(), up = c.Bf16({kHidden, kDim}), raw = c.Bf16(hidden),
               squares = c.Bf16(hidden);
  c.Add("LinearRelu2", LinearRelu2Cost(u, up, raw), LinearRelu2, family, &MatMulOps::LinearRelu2, u,
        up, HiddenDim::kRows, raw, squares);
  const Tensor dout = c.Stream(), down = c.Bf16({kHidden, kDim}), act = c.Bf16(hidden),
               dact = c.Bf16(hidden);
  c.Add("LinearRelu2Grad", LinearRelu2GradCost(dout, down, act), LinearRelu2Grad, family,
        &MatMulOps::LinearRelu2Grad, dout, down, HiddenDim::kRows, act, dact);
  const Tensor matrix = c.Bf16({2, 4, 6}), gram = c.Bf16({2, 4, 4}), plus = c.Bf16({2, 4, 4});
  for (int i = 0; i < 32; ++i) {  // symmetric
    const int row = i / 4 % 4, col = i % 4;
    if (col > row) plus.bf16()[i] = plus.bf16()[i / 16 * 16 + col * 4 + row];
  }
  c.Add("SymmetricProduct", SymmetricProductCost(matrix, 3.0f, gram), SymmetricProduct, family,
        &MatMulOps::SymmetricProduct, matrix, 0.5f, 3.0f, plus, gram);
}

void AddElementwiseUpdates(Cases& c) {
  const auto family = &OpTable::optimizer;
  const AdamArgs adam = {.p = c.F32({10}),
                         .g = c.F32({10}),
                         .m = c.F32({10}),
                         .v = c.PositiveF32({10}),
                         .rates = c.PositiveF32({3}),
                         .beta1 = 0.8f,
                         .beta2 = 0.9f};
  c.Add("AdamUpdate", AdamUpdateCost(adam), AdamUpdate, family, &OptimizerOps::AdamUpdate, adam);
  const AdamFlatArgs flat = {.p = {c.F32({3}), c.F32({7})},
                             .g = c.F32({10}),
                             .m = c.F32({10}),
                             .v = c.PositiveF32({10}),
                             .rates = c.PositiveF32({2, 6})};
  c.Add("AdamFlat", AdamFlatCost(flat), AdamFlat, family, &OptimizerOps::AdamFlat, flat);
  const MomentumArgs momentum = {
      .g = c.F32({10}), .m = c.F32({10}), .mu = c.F32({1}), .u = c.Bf16({10})};
  c.Add("MomentumUpdate", MomentumUpdateCost(momentum), MomentumUpdate, family,
        &OptimizerOps::MomentumUpdate, momentum);
  const TwinRailArgs rails = {.g = c.F32({10}),
                              .fast = c.F32({10}),
                              .slow = c.F32({10}),
                              .rates = c.F32({3}),
                              .u = c.Bf16({10}),
                              .slow_rate = 0.02f};
  c.Add("TwinRailUpdate", TwinRailUpdateCost(rails), TwinRailUpdate, family,
        &OptimizerOps::TwinRailUpdate, rails);
}

void AddMatrixUpdates(Cases& c) {
  const auto family = &OpTable::optimizer;
  const Dims bank = {2, 4, 5};
  const Tensor u = c.Bf16(bank), x = c.Bf16(bank);
  c.Add("NormalizeFrobenius", NormalizeFrobeniusCost(u), NormalizeFrobenius, family,
        &OptimizerOps::NormalizeFrobenius, u, 1.5f, 1e-3f, x);
  const GramNormArgs gram = {
      .u = c.Bf16(bank), .gram = c.Bf16({2, 4, 4}), .x = c.Bf16(bank), .scale = 1.5f, .eps = 1e-3f};
  for (int i = 0; i < 32; i += 5)
    gram.gram.bf16()[i] = gram.gram.bf16()[0] = {0x3F80};  // trace > 0
  c.Add("NormalizeByGram", NormalizeByGramCost(gram), NormalizeByGram, family,
        &OptimizerOps::NormalizeByGram, gram);
  const SecondMomentArgs moment = {
      .o = c.Bf16(bank), .w = c.PositiveF32({2, 5}), .p = c.Bf16(bank), .beta2 = 0.95f};
  c.Add("NormalizeBySecondMoment", NormalizeBySecondMomentCost(moment), NormalizeBySecondMoment,
        family, &OptimizerOps::NormalizeBySecondMoment, moment);
  const MatrixUpdateArgs matrix = {
      .p = c.F32(bank), .o = c.Bf16(bank), .lr = c.F32({2}), .decay = c.F32({2})};
  c.Add("MatrixUpdate", MatrixUpdateCost(matrix), MatrixUpdate, family, &OptimizerOps::MatrixUpdate,
        matrix);
  const SplitMatrixArgs split = {.p = c.Bf16(bank),
                                 .mantissa = c.Zeros(DType::kU16, bank),
                                 .o = c.Bf16(bank),
                                 .gate = c.F32(bank),
                                 .lr = c.F32({2}),
                                 .decay = c.F32({2}),
                                 .cautious = true};
  c.Add("SplitMatrixUpdate", SplitMatrixUpdateCost(split), SplitMatrixUpdate, family,
        &OptimizerOps::SplitMatrixUpdate, split);
}

void AddWeight(Cases& c) {
  const auto family = &OpTable::weight;
  const Tensor w = c.Bf16({8, 4}), scalars = c.Scalars(), y = c.Bf16({8, 4});
  c.Add("ScaleWeight", ScaleWeightCost(w, y), ScaleWeight, family, &WeightOps::ScaleWeight, w,
        scalars, 1, y);
  const Tensor weight = c.Bf16({8, 4}), factors = c.Scalars(), dw = c.F32({8, 4}),
               dfactors = c.Scalars();
  c.Add("ScaleWeightGrad", ScaleWeightGradCost(weight, dw), ScaleWeightGrad, family,
        &WeightOps::ScaleWeightGrad, weight, factors, 1, dw, dfactors);
  const Tensor from = c.Bf16({8, 4}), to = c.Bf16({4, 8});
  c.Add("TransposeCopy", TransposeCopyCost(from, to), TransposeCopy, family,
        &WeightOps::TransposeCopy, from, to);
  const Tensor source = c.F32({8, 4}), sum = c.F32({4, 8});
  c.Add("TransposeAdd", TransposeAddCost(source, sum), TransposeAdd, family,
        &WeightOps::TransposeAdd, source, sum);
}

}  // namespace

void AddOpsOnWeights(Cases& cases) {
  AddElementwise(cases);
  AddMatMul(cases);
  AddElementwiseUpdates(cases);
  AddMatrixUpdates(cases);
  AddWeight(cases);
}

}  // namespace kernels
