#include "kernels/ops/norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/ops/elementwise.h"

namespace kernels {
namespace {

// The backends differ by some 1e-6 before an output is rounded to bf16, which can tip it to the
// neighbouring value: at most two roundings away.
constexpr double kNeighbour = 2 * kBf16Roundoff;
// Sums of up to 4096 products in f32, and the reciprocal square root.
constexpr double kStatistic = 1e-5;

struct Shape {
  int64_t slots, tokens, dim;
  std::vector<int64_t> dims() const { return {slots, tokens, dim}; }
  std::string Name() const {
    return std::to_string(slots) + " x " + std::to_string(tokens) + " x " + std::to_string(dim);
  }
};

// Every number of vectors a lane holds, one warp or four to a row, whole and in part; blocks whose
// last rows are missing.
const std::vector<Shape> kShapes = {{1, 1, 8},     {2, 16, 64},  {1, 48, 128}, {3, 16, 256},
                                    {1, 33, 384},  {3, 48, 768}, {1, 5, 1024}, {2, 3, 1600},
                                    {1, 16, 3072}, {2, 35, 4096}};

Twin Slot(const Twin& x, int64_t slot) {
  if (x.cuda.empty()) return x;
  return {x.cpu.Slice(slot, 1), x.cuda.Slice(slot, 1)};
}

constexpr int64_t kScalars = 6;

// Which optional inputs a MixNormGrad has, and the columns of du_head.
struct Options {
  bool saved = true, extra = true;
  int64_t head = 12;
  bool backout = false;  // x - lambda x0, without a residual path
  bool mix_only = false;
  bool skip_is_weight = false;
};

// Its tensors. Of inv_rms and the inputs only the shapes matter: all are drawn.
struct Mix {
  Twin dresidual, du, du_head, inv_rms, x, x0, saved, scalars, dx_extra;
  Twin dx0_before, dscalars_before;
  Twin dx, dsaved, dx0, dscalars;
  MixScalars which;
};

class CudaNormTest : public CudaTest {
 protected:
  Mix MakeMix(const Shape& shape, const Options& options, int64_t leaves) {
    const auto draw = [&] { return Normal(DType::kBF16, shape.dims()); };
    const auto output = [&] { return Output(DType::kBF16, shape.dims()); };
    Mix m;
    if (!options.backout) m.dresidual = draw();
    m.x = draw(), m.x0 = draw();
    if (!options.mix_only) {
      m.du = draw();
      m.inv_rms = Uniform(DType::kF32, {shape.slots, shape.tokens}, 0.5, 1.5);
    }
    m.scalars = Of(DType::kF32, {kScalars}, {9.0, 0.3, -0.7, 5.0, 1.1, 7.0});
    m.which = {4, 1, options.saved ? 2 : -1};
    m.which.skip_is_weight = options.skip_is_weight;
    if (options.backout) m.which = {.lambda_x0 = 1, .subtract_x0 = true};
    if (options.head > 0) {
      m.du_head = Normal(DType::kF32, {shape.slots, shape.tokens, options.head});
    }
    if (options.saved) m.saved = draw(), m.dsaved = output();
    if (options.extra) m.dx_extra = draw();
    m.dx0_before = draw();
    m.dscalars_before = Normal(DType::kF32, {leaves, kScalars});
    m.dx = output(), m.dx0 = output(), m.dscalars = Output(DType::kF32, {leaves, kScalars});
    return m;
  }

  // The pass over slots [begin, begin + count), after setting what is added to.
  static void Run(const Mix& m, Side side, int64_t begin, int64_t count, Queue& queue) {
    const auto cut = [&](const Twin& t) {
      return t.on(side) ? t.on(side).Slice(begin, count) : Tensor();
    };
    const bool one_leaf = m.dscalars.on(side).dim(0) == 1;
    const auto leaf = [&](const Twin& t) { return one_leaf ? t.on(side) : cut(t); };
    Copy(cut(m.dx0_before), cut(m.dx0), queue);
    Copy(leaf(m.dscalars_before), leaf(m.dscalars), queue);
    MixNormGradArgs args;
    args.dresidual = cut(m.dresidual);
    args.du = cut(m.du);
    args.du_head = cut(m.du_head);
    args.inv_rms = cut(m.inv_rms);
    args.x = cut(m.x);
    args.x0 = cut(m.x0);
    args.saved = cut(m.saved);
    args.scalars = m.scalars.on(side);
    args.which = m.which;
    args.dx_extra = cut(m.dx_extra);
    args.dx = cut(m.dx);
    args.dsaved = cut(m.dsaved);
    args.dx0 = cut(m.dx0);
    args.dscalars = leaf(m.dscalars);
    MixNormGrad(args, queue);
  }

  void ExpectMixGradsAgree(const Shape& shape, const Options& options, int64_t leaves) {
    const std::string what = shape.Name() + ", leaves " + std::to_string(leaves);
    const Mix m = MakeMix(shape, options, leaves);
    const auto all = [&](Side side, Queue& queue) { Run(m, side, 0, shape.slots, queue); };
    Both(all);
    ExpectClose(m.dx, kNeighbour, 0, "dx, " + what);
    ExpectClose(m.dx0, kNeighbour, 0, "dx0, " + what);
    if (options.saved) ExpectClose(m.dsaved, kNeighbour, 0, "dsaved, " + what);
    // n products of size 2 have a sum of size 2 sqrt(n), of which the orders differ by some
    // sqrt(n) 2^-24 at worst, also where the sum itself happens to be small.
    const double n = static_cast<double>(shape.slots * shape.tokens * shape.dim);
    ExpectClose(m.dscalars, 1e-4, 2e-5 * std::sqrt(n), "dscalars, " + what);
    std::vector<Tensor> outputs = {m.dx.cuda, m.dx0.cuda, m.dscalars.cuda};
    if (options.saved) outputs.push_back(m.dsaved.cuda);
    ExpectRepeats([&](Queue& queue) { all(Side::kCuda, queue); }, outputs);
    if (leaves == shape.slots) ExpectMixSlots(m, shape, what);
  }

  // Slot after slot alone, into the same tensors: no bit changes.
  void ExpectMixSlots(const Mix& m, const Shape& shape, const std::string& what) {
    std::vector<Tensor> outputs = {m.dx.cuda, m.dx0.cuda, m.dscalars.cuda};
    if (m.dsaved.cuda) outputs.push_back(m.dsaved.cuda);
    std::vector<std::vector<uint8_t>> want;
    for (const Tensor& output : outputs) want.push_back(Bytes(output));
    for (const Tensor& output : outputs) FillZero(output, cuda());
    for (int64_t slot = 0; slot < shape.slots; ++slot) Run(m, Side::kCuda, slot, 1, cuda());
    for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(Bytes(outputs[i]), want[i]) << what;
  }

  // Slot after slot, `alone` (of passes of one slot) holds what `whole` holds.
  void ExpectSlots(const Twin& whole, const Twin& alone, const std::string& what) {
    EXPECT_EQ(Bytes(whole.cuda), Bytes(alone.cuda)) << what;
  }

  void ExpectNormsAgree(const Shape& shape) {
    const Twin x = Normal(DType::kBF16, shape.dims(), 1.7), y = Output(DType::kBF16, shape.dims());
    const Twin inv_rms = Output(DType::kF32, {shape.slots, shape.tokens});
    const auto run = [&](Side side, Queue& queue) {
      RmsNorm(x.on(side), y.on(side), inv_rms.on(side), queue);
    };
    Both(run);
    ExpectClose(y, kNeighbour, 0, shape.Name());
    ExpectClose(inv_rms, kStatistic, 0, shape.Name());
    ExpectRepeats([&](Queue& queue) { run(Side::kCuda, queue); }, {y.cuda, inv_rms.cuda});
    const Twin y_alone = Output(DType::kBF16, shape.dims());
    const Twin rms_alone = Output(DType::kF32, {shape.slots, shape.tokens});
    for (int64_t slot = 0; slot < shape.slots; ++slot) {
      RmsNorm(Slot(x, slot).cuda, Slot(y_alone, slot).cuda, Slot(rms_alone, slot).cuda, cuda());
    }
    ExpectSlots(y, y_alone, shape.Name());
    ExpectSlots(inv_rms, rms_alone, shape.Name());
  }

  // inv_rms is drawn, not computed, so that both backends start from the same bits.
  void ExpectGradsAgree(const Shape& shape, bool with_residual) {
    const Twin dy = Normal(DType::kBF16, shape.dims()), x = Normal(DType::kBF16, shape.dims());
    const Twin inv_rms = Uniform(DType::kF32, {shape.slots, shape.tokens}, 0.5, 1.5);
    const Twin residual = with_residual ? Normal(DType::kBF16, shape.dims()) : Twin();
    const Twin dx = Output(DType::kBF16, shape.dims());
    const auto run = [&](Side side, Queue& queue) {
      RmsNormGrad({.dy = dy.on(side),
                   .x = x.on(side),
                   .inv_rms = inv_rms.on(side),
                   .residual = residual.on(side),
                   .dx = dx.on(side)},
                  queue);
    };
    Both(run);
    ExpectClose(dx, kNeighbour, 0, shape.Name());
    ExpectRepeats([&](Queue& queue) { run(Side::kCuda, queue); }, {dx.cuda});
    const Twin alone = Output(DType::kBF16, shape.dims());
    for (int64_t slot = 0; slot < shape.slots; ++slot) {
      RmsNormGrad({.dy = Slot(dy, slot).cuda,
                   .x = Slot(x, slot).cuda,
                   .inv_rms = Slot(inv_rms, slot).cuda,
                   .residual = Slot(residual, slot).cuda,
                   .dx = Slot(alone, slot).cuda},
                  cuda());
    }
    ExpectSlots(dx, alone, shape.Name());
  }

  // Without a norm, with a raw skip weight.
  void ExpectPlainMixesAgree(const Shape& shape, bool with_saved) {
    const Twin x = Normal(DType::kBF16, shape.dims()), x0 = Normal(DType::kBF16, shape.dims());
    const Twin saved = with_saved ? Normal(DType::kBF16, shape.dims()) : Twin();
    const Twin scalars = Of(DType::kF32, {4}, {9.0, 0.3, 1.1, -1.5});
    const MixScalars which = {
        .lambda_x = 2, .lambda_x0 = 1, .skip = with_saved ? 3 : -1, .skip_is_weight = true};
    const Twin mixed = Output(DType::kBF16, shape.dims());
    const auto run = [&](Side side, Queue& queue) {
      MixNorm({.x = x.on(side),
               .x0 = x0.on(side),
               .saved = saved.on(side),
               .scalars = scalars.on(side),
               .which = which,
               .mixed = mixed.on(side)},
              queue);
    };
    Both(run);
    ExpectClose(mixed, kNeighbour, 0, shape.Name());
    ExpectRepeats([&](Queue& queue) { run(Side::kCuda, queue); }, {mixed.cuda});
  }

  void ExpectMixesAgree(const Shape& shape, bool with_saved, bool backout = false) {
    const Twin x = Normal(DType::kBF16, shape.dims()), x0 = Normal(DType::kBF16, shape.dims());
    const Twin saved = with_saved ? Normal(DType::kBF16, shape.dims()) : Twin();
    const Twin scalars = Of(DType::kF32, {4}, {9.0, 0.3, 1.1, -1.5});
    const MixScalars which = backout ? MixScalars{.lambda_x0 = 1, .subtract_x0 = true}
                                     : MixScalars{2, 1, with_saved ? 3 : -1};
    const Twin mixed = Output(DType::kBF16, shape.dims()), u = Output(DType::kBF16, shape.dims());
    const Twin inv_rms = Output(DType::kF32, {shape.slots, shape.tokens});
    const auto run = [&](Side side, Queue& queue) {
      MixNorm({.x = x.on(side),
               .x0 = x0.on(side),
               .saved = saved.on(side),
               .scalars = scalars.on(side),
               .which = which,
               .mixed = mixed.on(side),
               .u = u.on(side),
               .inv_rms = inv_rms.on(side)},
              queue);
    };
    Both(run);
    ExpectClose(mixed, kNeighbour, 0, shape.Name());
    // A neighbour in mixed passes on to u, which then is rounded; in inv_rms it is one of D.
    ExpectClose(u, 2 * kNeighbour, 0, shape.Name());
    ExpectClose(inv_rms, 1e-3, 0, shape.Name());
    ExpectRepeats([&](Queue& queue) { run(Side::kCuda, queue); },
                  {mixed.cuda, u.cuda, inv_rms.cuda});
    const Twin mixed_alone = Output(DType::kBF16, shape.dims());
    const Twin u_alone = Output(DType::kBF16, shape.dims());
    for (int64_t slot = 0; slot < shape.slots; ++slot) {
      MixNorm({.x = Slot(x, slot).cuda,
               .x0 = Slot(x0, slot).cuda,
               .saved = Slot(saved, slot).cuda,
               .scalars = scalars.cuda,
               .which = which,
               .mixed = Slot(mixed_alone, slot).cuda,
               .u = Slot(u_alone, slot).cuda,
               .inv_rms = Slot(inv_rms, slot).cuda},
              cuda());
    }
    ExpectSlots(mixed, mixed_alone, shape.Name());
    ExpectSlots(u, u_alone, shape.Name());
  }
};

TEST_F(CudaNormTest, RmsNorm) {
  for (const Shape& shape : kShapes) ExpectNormsAgree(shape);
}

TEST_F(CudaNormTest, RmsNormGrad) {
  for (const Shape& shape : kShapes) {
    for (bool with_residual : {false, true}) ExpectGradsAgree(shape, with_residual);
  }
}

// A gradient along x, or along the mix, is taken away but for epsilon and f32 rounding; from a
// rounded y some 2^-9 of it would be left.
TEST_F(CudaNormTest, GradientAlongXVanishes) {
  for (const Shape& shape : kShapes) {
    const Twin x = Normal(DType::kBF16, shape.dims()), y = Output(DType::kBF16, shape.dims());
    const Twin inv_rms = Output(DType::kF32, {shape.slots, shape.tokens});
    const Twin dx = Output(DType::kBF16, shape.dims());
    RmsNorm(x.cuda, y.cuda, inv_rms.cuda, cuda());
    RmsNormGrad({.dy = x.cuda, .x = x.cuda, .inv_rms = inv_rms.cuda, .dx = dx.cuda}, cuda());
    for (double value : OnHost(dx.cuda)) ASSERT_LT(std::fabs(value), 2e-5) << shape.Name();

    Mix m = MakeMix(shape, {.extra = false, .head = 0}, 1);
    MixNorm({.x = m.x.cuda,
             .x0 = m.x0.cuda,
             .saved = m.saved.cuda,
             .scalars = m.scalars.cuda,
             .which = m.which,
             .mixed = m.du.cuda,
             .u = y.cuda,
             .inv_rms = m.inv_rms.cuda},
            cuda());
    m.dresidual = Twin();
    m.dx0_before = Zeros(DType::kBF16, shape.dims());
    m.dscalars_before = Zeros(DType::kF32, {1, kScalars});
    Run(m, Side::kCuda, 0, shape.slots, cuda());
    for (const Twin* t : {&m.dx, &m.dsaved, &m.dx0}) {
      for (double value : OnHost(t->cuda)) ASSERT_LT(std::fabs(value), 2e-5) << shape.Name();
    }
    const double n = static_cast<double>(shape.slots * shape.tokens * shape.dim);
    for (double value : OnHost(m.dscalars.cuda)) EXPECT_LT(std::fabs(value), 2e-6 * n);
  }
}

TEST_F(CudaNormTest, MixNorm) {
  for (const Shape& shape : kShapes) {
    for (bool with_saved : {false, true}) ExpectMixesAgree(shape, with_saved);
    ExpectMixesAgree(shape, false, /*backout=*/true);
    for (bool with_saved : {false, true}) ExpectPlainMixesAgree(shape, with_saved);
  }
}

TEST_F(CudaNormTest, MixNormGrad) {
  for (const Shape& shape : kShapes) {
    ExpectMixGradsAgree(shape, {.head = std::min<int64_t>(12, shape.dim)}, shape.slots);
    ExpectMixGradsAgree(shape, {.saved = false, .extra = false, .head = 0}, shape.slots);
    if (shape.slots > 1) ExpectMixGradsAgree(shape, {.head = 3}, 1);
    const Options backout = {.saved = false, .extra = false, .head = 0, .backout = true};
    ExpectMixGradsAgree(shape, backout, shape.slots);
    if (shape.slots > 1) ExpectMixGradsAgree(shape, backout, 1);
    const Options plain = {.head = 0, .mix_only = true, .skip_is_weight = true};
    ExpectMixGradsAgree(shape, plain, shape.slots);
    if (shape.slots > 1) ExpectMixGradsAgree(shape, plain, 1);
    ExpectMixGradsAgree(shape, {.saved = false, .extra = false, .head = 0, .mix_only = true}, 1);
  }
}

TEST_F(CudaNormTest, MixNormGradOptionsOneByOne) {
  const Shape shape = {3, 48, 768};
  for (bool saved : {false, true}) {
    for (bool extra : {false, true}) {
      for (int64_t head : {0, 12, 300, 768}) {
        ExpectMixGradsAgree(shape, {saved, extra, head}, 3);
      }
    }
  }
}

// The slots' sums are added in slot order.
TEST_F(CudaNormTest, MixNormGradLeavesAddUpInOrder) {
  const Shape shape = {3, 80, 768};
  Mix m = MakeMix(shape, {}, 3);
  m.dscalars_before = Zeros(DType::kF32, {3, kScalars});
  Run(m, Side::kCuda, 0, 3, cuda());
  const std::vector<double> leaves = OnHost(m.dscalars.cuda);
  m.dscalars_before = Zeros(DType::kF32, {1, kScalars});
  m.dscalars = Output(DType::kF32, {1, kScalars});
  Run(m, Side::kCuda, 0, 3, cuda());
  const std::vector<double> sum = OnHost(m.dscalars.cuda);
  for (int64_t i = 0; i < kScalars; ++i) {
    float want = 0;
    for (int64_t slot = 0; slot < 3; ++slot)
      want += static_cast<float>(leaves[slot * kScalars + i]);
    EXPECT_EQ(sum[i], want) << i;
  }
}

TEST_F(CudaNormTest, MixNormGradInPlace) {
  Mix m = MakeMix({2, 19, 768}, {}, 2);
  Run(m, Side::kCuda, 0, 2, cuda());
  const std::vector<uint8_t> want = Bytes(m.dx.cuda);
  m.dx = m.dresidual;
  Run(m, Side::kCuda, 0, 2, cuda());
  EXPECT_EQ(Bytes(m.dx.cuda), want);
  m = MakeMix({2, 19, 768}, {.saved = false, .extra = false, .head = 0, .backout = true}, 2);
  Run(m, Side::kCuda, 0, 2, cuda());
  const std::vector<uint8_t> backout = Bytes(m.dx.cuda);
  m.dx = m.du;
  Run(m, Side::kCuda, 0, 2, cuda());
  EXPECT_EQ(Bytes(m.dx.cuda), backout);
}

TEST_F(CudaNormTest, LargeMixNormGrad) { ExpectMixGradsAgree({1, 2048, 768}, {}, 1); }
TEST_F(CudaNormTest, LargePlainMixes) {
  const Shape shape = {2, 2048, 1024};
  ExpectPlainMixesAgree(shape, true);
  ExpectMixGradsAgree(shape, {.head = 0, .mix_only = true, .skip_is_weight = true}, 1);
}
TEST_F(CudaNormTest, LargeRmsNorm) { ExpectNormsAgree({1, 2048, 768}); }
TEST_F(CudaNormTest, LargeRmsNormGrad) { ExpectGradsAgree({1, 2048, 768}, true); }
TEST_F(CudaNormTest, LargeMixNorm) { ExpectMixesAgree({1, 2048, 768}, true); }

// Where epsilon counts, and zero in, zero out.
TEST_F(CudaNormTest, SmallRows) {
  for (double stddev : {3e-4, 0.0}) {
    const Twin x = Normal(DType::kBF16, {1, 16, 768}, stddev);
    const Twin y = Output(DType::kBF16, {1, 16, 768}), inv_rms = Output(DType::kF32, {1, 16});
    Both(
        [&](Side side, Queue& queue) { RmsNorm(x.on(side), y.on(side), inv_rms.on(side), queue); });
    ExpectClose(y, kNeighbour);
    ExpectClose(inv_rms, kStatistic);
  }
}

TEST_F(CudaNormTest, InPlace) {
  const std::vector<int64_t> dims = {2, 19, 768};
  const Twin x = Normal(DType::kBF16, dims), y = Output(DType::kBF16, dims);
  const Twin inv_rms = Output(DType::kF32, {2, 19}), dy = Normal(DType::kBF16, dims);
  const Twin residual = Normal(DType::kBF16, dims), dx = Output(DType::kBF16, dims);
  RmsNorm(x.cuda, y.cuda, inv_rms.cuda, cuda());
  RmsNorm(x.cuda, x.cuda, inv_rms.cuda, cuda());
  EXPECT_EQ(Bytes(x.cuda), Bytes(y.cuda));
  const Twin copy = Output(DType::kBF16, dims);
  Set(copy.cuda, OnHost(residual.cuda));
  const auto grad = [&](const Tensor& from, const Tensor& into) {
    RmsNormGrad({.dy = dy.cuda, .x = y.cuda, .inv_rms = inv_rms.cuda, .residual = from, .dx = into},
                cuda());
  };
  grad(residual.cuda, dx.cuda);
  grad(copy.cuda, copy.cuda);
  EXPECT_EQ(Bytes(copy.cuda), Bytes(dx.cuda));
  grad(residual.cuda, dy.cuda);
  EXPECT_EQ(Bytes(dy.cuda), Bytes(dx.cuda));
}

TEST_F(CudaNormTest, WhatCudaAloneCannotDo) {
  for (int64_t dim : {12, 4104}) {
    const Twin x = Zeros(DType::kBF16, {1, 2, dim}), inv_rms = Zeros(DType::kF32, {1, 2});
    EXPECT_DEATH(RmsNorm(x.cuda, x.cuda, inv_rms.cuda, cuda()), "multiple of 8 up to 4096");
  }
}

}  // namespace
}  // namespace kernels
