#include "kernels/ops/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::ExpectWithinBf16Steps;
using testing::HostTensor;
using testing::RandomTensor;
using testing::RelativeError;
using Doubles = std::vector<double>;

// Before a rounding to bf16: the error of f32 sums and products of values of order 1.
constexpr double kF32 = 1e-5;
// RelativeError counts the largest error in units of the root mean square; elements reach some
// five times that, and a bf16 rounding is at most 2^-8 of an element: 5 * 2^-8 = 0.02. A mix's
// gradients see one more rounding, that of mixed, which the means over a row even out; so does u.
constexpr double kGradient = 0.03;
constexpr double kTwoRoundings = 0.04;

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

void ExpectSameBits(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(SameBits(got[i], want[i])) << i;
}

double InverseRms(const Doubles& row) {
  double squares = 0;
  for (double value : row) squares += value * value;
  return 1 / std::sqrt(squares / row.size() + std::ldexp(1.0, -23));  // f32 machine epsilon
}

Doubles Rms(const Doubles& row) {
  const double inv_rms = InverseRms(row);
  Doubles y = row;
  for (double& value : y) value *= inv_rms;
  return y;
}

double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Doubles RowOf(const Doubles& all, int64_t row, int64_t cols) {
  return {all.begin() + row * cols, all.begin() + (row + 1) * cols};
}

void Append(const Doubles& more, Doubles* all) {
  all->insert(all->end(), more.begin(), more.end());
}

// Central differences of `loss` at `at`, in float64: off by about h^2.
Doubles Differences(const std::function<double(const Doubles&)>& loss, Doubles at) {
  constexpr double kStep = 1e-5;
  Doubles slopes;
  for (double& value : at) {
    const double before = value;
    value = before + kStep;
    const double up = loss(at);
    value = before - kStep;
    slopes.push_back((up - loss(at)) / (2 * kStep));
    value = before;
  }
  return slopes;
}

struct Shape {
  int64_t slots, tokens, dim;
  std::vector<int64_t> dims() const { return {slots, tokens, dim}; }
  int64_t rows() const { return slots * tokens; }
};

const std::vector<Shape> kShapes = {{1, 1, 8},  {2, 1, 768},  {1, 16, 24}, {2, 48, 96},
                                    {3, 48, 8}, {1, 16, 768}, {3, 33, 17}};

struct Norm {
  explicit Norm(const Shape& s, double stddev = 1.7)
      : x(RandomTensor(DType::kBF16, s.dims(), 1, stddev)),
        dy(RandomTensor(DType::kBF16, s.dims(), 2)),
        residual(RandomTensor(DType::kBF16, s.dims(), 3)),
        y(DType::kBF16, s.dims()),
        dx(DType::kBF16, s.dims()),
        inv_rms(DType::kF32, {s.slots, s.tokens}) {}

  void Run(int threads, int64_t begin, int64_t count, bool with_residual) {
    const auto queue = MakeCpuQueue(threads);
    const auto cut = [&](const HostTensor& t) { return t.get().Slice(begin, count); };
    RmsNorm(cut(x), cut(y), cut(inv_rms), *queue);
    RmsNormGrad({.dy = cut(dy),
                 .x = cut(x),
                 .inv_rms = cut(inv_rms),
                 .residual = with_residual ? cut(residual) : Tensor(),
                 .dx = cut(dx)},
                *queue);
  }
  std::vector<Tensor> Outputs() const { return {y, dx, inv_rms}; }

  HostTensor x, dy, residual, y, dx, inv_rms;
};

TEST(RmsNorm, MatchesFloat64AndFiniteDifferences) {
  for (const Shape& shape : kShapes) {
    for (bool with_residual : {false, true}) {
      Norm norm(shape);
      norm.Run(2, 0, shape.slots, with_residual);
      const Doubles x = norm.x.ToDouble(), dy = norm.dy.ToDouble();
      const Doubles residual = norm.residual.ToDouble();
      Doubles y, inv_rms, dx;
      for (int64_t r = 0; r < shape.rows(); ++r) {
        const Doubles row = RowOf(x, r, shape.dim), weight = RowOf(dy, r, shape.dim);
        Append(Rms(row), &y);
        inv_rms.push_back(InverseRms(row));
        Append(Differences([&](const Doubles& at) { return Dot(weight, Rms(at)); }, row), &dx);
      }
      if (with_residual) {
        for (size_t i = 0; i < dx.size(); ++i) dx[i] += residual[i];
      }
      ExpectWithinBf16Steps(norm.y.ToDouble(), y, 0.5, kF32, "y");
      EXPECT_LT(RelativeError(norm.inv_rms.ToDouble(), inv_rms), 1e-5) << shape.dim;
      ExpectWithinBf16Steps(norm.dx.ToDouble(), dx, 0.5, kF32, "dx");
    }
  }
}

// The gradient in float64 of one row, from x itself.
Doubles NormGrad(const Doubles& x, const Doubles& dy) {
  const double inv_rms = InverseRms(x), mean = inv_rms * inv_rms * Dot(x, dy) / x.size();
  Doubles dx(x.size());
  for (size_t i = 0; i < x.size(); ++i) dx[i] = inv_rms * (dy[i] - x[i] * mean);
  return dx;
}

// A gradient along x is taken away but for what epsilon leaves of it, 1.2e-7 inv_rms^2, and f32
// rounding. From the rounded y some 2^-9 of it would be left.
TEST(RmsNorm, GradientAlongXVanishes) {
  for (const Shape& shape : kShapes) {
    Norm norm(shape);
    norm.dy.Set(norm.x.ToDouble());
    norm.Run(2, 0, shape.slots, false);
    const Doubles x = norm.x.ToDouble(), dx = norm.dx.ToDouble();
    for (int64_t r = 0; r < shape.rows(); ++r) {
      const Doubles row = RowOf(x, r, shape.dim), got = RowOf(dx, r, shape.dim);
      const Doubles want = NormGrad(row, row);
      for (int64_t i = 0; i < shape.dim; ++i) {
        EXPECT_NEAR(got[i], want[i], 1e-6 * InverseRms(row) * std::abs(row[i])) << r << " " << i;
      }
    }
  }
}

// Where dy is x and a sixteenth of another direction, what is left is that direction, to one
// rounding of it. y's roundings would add up to a tenth of it.
TEST(RmsNorm, GradientNextToXIsExact) {
  const Shape shape = {1, 16, 768};
  Norm norm(shape, 1.0);
  const Doubles x = norm.x.ToDouble(), other = norm.dy.ToDouble();
  Doubles dy = x;
  for (size_t i = 0; i < dy.size(); ++i) dy[i] += std::ldexp(other[i], -4);
  norm.dy.Set(dy);
  dy = norm.dy.ToDouble();
  norm.Run(1, 0, 1, false);
  Doubles want;
  for (int64_t r = 0; r < 16; ++r) Append(NormGrad(RowOf(x, r, 768), RowOf(dy, r, 768)), &want);
  ExpectWithinBf16Steps(norm.dx.ToDouble(), want, 0.5, kF32, "dx");
}

// Where epsilon counts: rows of root mean square 3e-4 are scaled by less than its inverse.
TEST(RmsNorm, SmallRowsSeeEpsilon) {
  Norm norm({1, 16, 96}, 3e-4);
  norm.Run(1, 0, 1, false);
  const Doubles x = norm.x.ToDouble();
  Doubles y;
  for (int64_t r = 0; r < 16; ++r) Append(Rms(RowOf(x, r, 96)), &y);
  ExpectWithinBf16Steps(norm.y.ToDouble(), y, 0.5, kF32, "y");
  EXPECT_LT(std::sqrt(Dot(y, y) / y.size()), 0.8);
}

// As T1-36 asks of the optimizers' norms: zero in, zero out, no NaN.
TEST(RmsNorm, ZeroStaysZero) {
  Norm norm({1, 2, 24}, 0.0);
  norm.Run(1, 0, 1, false);
  EXPECT_EQ(norm.y.ToDouble(), Doubles(48, 0.0));
  for (double value : norm.inv_rms.ToDouble()) EXPECT_NEAR(value, 2896.309, 0.01);  // 2^(23/2)
}

TEST(RmsNorm, ThreadsAndSlotsChangeNoBit) {
  const Shape shape = {3, 47, 100};
  Norm want(shape);
  want.Run(1, 0, 3, true);
  for (int threads : {2, 3}) {
    Norm got(shape);
    got.Run(threads, 0, 3, true);
    ExpectSameBits(got.Outputs(), want.Outputs());
  }
  Norm alone(shape);
  for (int64_t slot = 0; slot < 3; ++slot) alone.Run(2, slot, 1, true);
  ExpectSameBits(alone.Outputs(), want.Outputs());
}

TEST(RmsNorm, InPlace) {
  const Shape shape = {2, 5, 24};
  Norm want(shape), got(shape);
  want.Run(1, 0, 2, true);
  const auto queue = MakeCpuQueue(2);
  RmsNorm(got.x, got.x, got.inv_rms, *queue);
  EXPECT_TRUE(SameBits(got.x, want.y));
  Norm other(shape);
  RmsNormGradArgs args = {.dy = got.dy, .x = want.x, .inv_rms = want.inv_rms, .dx = got.residual};
  args.residual = got.residual;
  RmsNormGrad(args, *queue);
  EXPECT_TRUE(SameBits(got.residual, want.dx));
  args.residual = other.residual;
  args.dx = got.dy;
  RmsNormGrad(args, *queue);
  EXPECT_TRUE(SameBits(got.dy, want.dx));
}

constexpr int64_t kScalars = 6, kHead = 5;
constexpr int kLambdaX = 4, kLambdaX0 = 1, kSkip = 2;

// Which optional inputs a mix has.
struct Options {
  bool saved = true, extra = true, head = true;
  bool backout = false;  // x - lambda x0, without a residual path
  bool mix_only = false;
  bool skip_is_weight = false;
};

struct Mix {
  Mix(const Shape& s, Options o, int64_t leaves)
      : shape(s),
        options(o),
        x(RandomTensor(DType::kBF16, s.dims(), 1)),
        x0(RandomTensor(DType::kBF16, s.dims(), 2)),
        saved(RandomTensor(DType::kBF16, s.dims(), 3)),
        scalars(RandomTensor(DType::kF32, {kScalars}, 4)),
        dresidual(RandomTensor(DType::kBF16, s.dims(), 5)),
        du(RandomTensor(DType::kBF16, s.dims(), 6)),
        du_head(RandomTensor(DType::kF32, {s.slots, s.tokens, kHead}, 7)),
        dx_extra(RandomTensor(DType::kBF16, s.dims(), 8)),
        mixed(DType::kBF16, s.dims()),
        u(DType::kBF16, s.dims()),
        inv_rms(DType::kF32, {s.slots, s.tokens}),
        dx(DType::kBF16, s.dims()),
        dsaved(DType::kBF16, s.dims()),
        dx0(RandomTensor(DType::kBF16, s.dims(), 9)),
        dscalars(DType::kF32, {leaves, kScalars}) {}

  MixScalars Which() const {
    if (options.backout) return {.lambda_x0 = kLambdaX0, .subtract_x0 = true};
    return {.lambda_x = kLambdaX,
            .lambda_x0 = kLambdaX0,
            .skip = options.saved ? kSkip : -1,
            .skip_is_weight = options.skip_is_weight};
  }

  void Run(int threads, int64_t begin, int64_t count, Tensor into) {
    const auto queue = MakeCpuQueue(threads);
    const auto cut = [&](const HostTensor& t) { return t.get().Slice(begin, count); };
    const auto maybe = [&](bool present, const HostTensor& t) {
      return present ? cut(t) : Tensor();
    };
    const bool normed = !options.mix_only;
    MixNorm({.x = cut(x),
             .x0 = cut(x0),
             .saved = maybe(options.saved, saved),
             .scalars = scalars,
             .which = Which(),
             .mixed = cut(mixed),
             .u = maybe(normed, u),
             .inv_rms = maybe(normed, inv_rms)},
            *queue);
    MixNormGradArgs args;
    args.dresidual = maybe(!options.backout, dresidual);
    args.du = maybe(normed, du);
    args.du_head = maybe(options.head, du_head);
    args.inv_rms = maybe(normed, inv_rms);
    args.x = cut(x);
    args.x0 = cut(x0);
    args.saved = maybe(options.saved, saved);
    args.scalars = scalars;
    args.which = Which();
    args.dx_extra = maybe(options.extra, dx_extra);
    args.dx = cut(dx);
    args.dsaved = maybe(options.saved, dsaved);
    args.dx0 = cut(dx0);
    args.dscalars = into;
    MixNormGrad(args, *queue);
  }
  void Run(int threads = 2) { Run(threads, 0, shape.slots, dscalars); }

  std::vector<Tensor> Outputs() const { return {mixed, u, inv_rms, dx, dsaved, dx0, dscalars}; }

  Shape shape;
  Options options;
  HostTensor x, x0, saved, scalars, dresidual, du, du_head, dx_extra;
  HostTensor mixed, u, inv_rms, dx, dsaved, dx0, dscalars;
};

// One row's inputs side by side: x, x0, saved, scalars; and what the loss weighs.
struct MixOracle {
  MixOracle(const Mix& mix, int64_t row)
      : dim(mix.shape.dim),
        saved(mix.options.saved),
        backout(mix.options.backout),
        skip_is_weight(mix.options.skip_is_weight),
        du(mix.options.mix_only ? Doubles(dim) : RowOf(mix.du.ToDouble(), row, dim)),
        dresidual(backout ? Doubles(dim) : RowOf(mix.dresidual.ToDouble(), row, dim)),
        extra(mix.options.extra ? RowOf(mix.dx_extra.ToDouble(), row, dim) : Doubles(dim)) {
    for (const HostTensor* t : {&mix.x, &mix.x0, &mix.saved}) {
      Append(RowOf(t->ToDouble(), row, dim), &inputs);
    }
    Append(mix.scalars.ToDouble(), &inputs);
    if (mix.options.head) {
      for (int64_t i = 0; i < kHead; ++i) du[i] += mix.du_head.get().f32()[row * kHead + i];
    }
  }

  Doubles Mixed(const Doubles& in) const {
    const double* scalars = in.data() + 3 * dim;
    const double sigmoid = 1 / (1 + std::exp(-scalars[kSkip]));
    const double s = !saved ? 0 : skip_is_weight ? scalars[kSkip] : sigmoid;
    Doubles mixed(dim);
    for (int64_t i = 0; backout && i < dim; ++i)
      mixed[i] = in[i] - scalars[kLambdaX0] * in[dim + i];
    for (int64_t i = 0; !backout && i < dim; ++i) {
      mixed[i] =
          scalars[kLambdaX] * (in[i] + s * in[2 * dim + i]) + scalars[kLambdaX0] * in[dim + i];
    }
    return mixed;
  }
  double Loss(const Doubles& in) const {
    const Doubles mixed = Mixed(in);
    return Dot(dresidual, mixed) + Dot(du, Rms(mixed)) + Dot(extra, RowOf(in, 0, dim));
  }

  int64_t dim;
  bool saved, backout, skip_is_weight;
  Doubles du, dresidual, extra, inputs;
};

void CheckMix(const Shape& shape, Options options) {
  Mix mix(shape, options, 1);
  const Doubles dx0_before = mix.dx0.ToDouble();
  mix.Run();
  Doubles mixed, u, dx, dx0, dsaved, dscalars(kScalars);
  for (int64_t r = 0; r < shape.rows(); ++r) {
    const MixOracle oracle(mix, r);
    Append(oracle.Mixed(oracle.inputs), &mixed);
    Append(Rms(oracle.Mixed(oracle.inputs)), &u);
    const Doubles slopes =
        Differences([&](const Doubles& in) { return oracle.Loss(in); }, oracle.inputs);
    Append(RowOf(slopes, 0, shape.dim), &dx);
    Append(RowOf(slopes, 1, shape.dim), &dx0);
    Append(RowOf(slopes, 2, shape.dim), &dsaved);
    for (int64_t i = 0; i < kScalars; ++i) dscalars[i] += slopes[3 * shape.dim + i];
  }
  for (size_t i = 0; i < dx0.size(); ++i) dx0[i] += dx0_before[i];
  ExpectWithinBf16Steps(mix.mixed.ToDouble(), mixed, 0.5, kF32, "mixed");
  if (!options.mix_only) {
    EXPECT_LT(RelativeError(mix.u.ToDouble(), u), kTwoRoundings) << shape.dim;
  }
  EXPECT_LT(RelativeError(mix.dx.ToDouble(), dx), kGradient) << shape.dim;
  EXPECT_LT(RelativeError(mix.dx0.ToDouble(), dx0), kGradient) << shape.dim;
  if (options.saved) {
    EXPECT_LT(RelativeError(mix.dsaved.ToDouble(), dsaved), kGradient) << shape.dim;
  }
  // Sums of rows * dim terms of order 1, each off by some 2^-8 at random.
  const double tolerance = 0.02 * std::sqrt(shape.rows() * shape.dim);
  for (int64_t i = 0; i < kScalars; ++i) {
    EXPECT_NEAR(mix.dscalars.get().f32()[i], dscalars[i], tolerance) << i;
  }
}

TEST(MixNorm, MatchesFloat64AndFiniteDifferences) {
  for (const Shape& shape : kShapes) {
    if (shape.dim < 768) CheckMix(shape, {.saved = true, .extra = false, .head = true});
    CheckMix(shape, {.saved = false, .extra = true, .head = false});
  }
  CheckMix({1, 2, 768}, {});
}

// The layers of the track-2 record of 2025-04-16: no norm, and skips with raw weights.
TEST(MixNorm, MixesWithoutANorm) {
  for (const Shape& shape : kShapes) {
    CheckMix(shape, {.saved = false, .head = false, .mix_only = true});
    if (shape.dim == 768) continue;
    CheckMix(shape, {.extra = false, .head = false, .mix_only = true, .skip_is_weight = true});
    CheckMix(shape, {.extra = false, .head = false, .skip_is_weight = true});
  }
  const Options options = {.head = false, .mix_only = true, .skip_is_weight = true};
  CheckMix({1, 2, 1024}, options);
  Mix want({2, 40, 24}, options, 2), got({2, 40, 24}, options, 2);
  want.Run(1);
  got.Run(3);
  ExpectSameBits(got.Outputs(), want.Outputs());
}

// With the weights of the start, 1, 0 and a skip of 1: the sum of stream and saved output; and the
// skip's gradient is the sum of gradient times saved output, without a sigmoid's slope.
TEST(MixNorm, T2_20_RawSkipWeight) {
  Mix mix({1, 3, 8}, {.extra = false, .head = false, .mix_only = true, .skip_is_weight = true}, 1);
  Doubles scalars(kScalars, 0.0);
  scalars[kLambdaX] = scalars[kSkip] = 1;
  mix.scalars.Set(scalars);
  mix.Run();
  const Doubles x = mix.x.ToDouble(), saved = mix.saved.ToDouble(), mixed = mix.mixed.ToDouble();
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(mixed[i], RoundToBF16(x[i] + saved[i])) << i;
  EXPECT_EQ(mix.dsaved.ToDouble(), mix.dresidual.ToDouble());
  EXPECT_NEAR(mix.dscalars.ToDouble()[kSkip], Dot(mix.dresidual.ToDouble(), saved), 1e-5);
}

TEST(MixNorm, SubtractsWithWeight1OfTheStream) {
  const Options options = {.saved = false, .extra = false, .head = false, .backout = true};
  for (const Shape& shape : kShapes) CheckMix(shape, options);
  Mix want({2, 16, 24}, options, 2), got({2, 16, 24}, options, 2);
  want.Run(1);
  got.Run(3);
  ExpectSameBits(got.Outputs(), want.Outputs());
  for (int i : {0, kSkip, 3, kLambdaX, 5}) EXPECT_EQ(got.dscalars.get().f32()[i], 0.0f) << i;
}

// A gradient along the mix does not reach stream, x0, skip and scalars. From the rounded u some
// 2^-9 of it would, and the scalars' sums would be of one sign: those of (1 - n . u / D) x . mixed.
TEST(MixNorm, GradientAlongTheMixVanishes) {
  for (const Shape& shape : kShapes) {
    Mix mix(shape, {.extra = false, .head = false}, 1);
    const auto queue = MakeCpuQueue(2);
    MixNorm({.x = mix.x,
             .x0 = mix.x0,
             .saved = mix.saved,
             .scalars = mix.scalars,
             .which = mix.Which(),
             .mixed = mix.mixed,
             .u = mix.u,
             .inv_rms = mix.inv_rms},
            *queue);
    mix.dx0.Set(Doubles(shape.rows() * shape.dim));
    MixNormGradArgs args;
    args.du = mix.mixed;
    args.inv_rms = mix.inv_rms;
    args.x = mix.x;
    args.x0 = mix.x0;
    args.saved = mix.saved;
    args.scalars = mix.scalars;
    args.which = mix.Which();
    args.dx = mix.dx;
    args.dsaved = mix.dsaved;
    args.dx0 = mix.dx0;
    args.dscalars = mix.dscalars;
    MixNormGrad(args, *queue);
    // dmixed is at most 1e-6 of inv_rms * mixed, whose rms is 1.
    for (const HostTensor* t : {&mix.dx, &mix.dsaved, &mix.dx0}) {
      for (double value : t->ToDouble()) EXPECT_LT(std::abs(value), 2e-5) << shape.dim;
    }
    for (double value : mix.dscalars.ToDouble()) {
      EXPECT_LT(std::abs(value), 2e-6 * shape.rows() * shape.dim) << shape.dim;
    }
  }
}

// Only the scalars that take part get a gradient.
TEST(MixNorm, LeavesOtherScalarsAlone) {
  Mix mix({1, 16, 24}, {.saved = false}, 1);
  mix.Run();
  for (int i : {0, kSkip, 3, 5}) EXPECT_EQ(mix.dscalars.get().f32()[i], 0.0f) << i;
  for (int i : {kLambdaX, kLambdaX0}) EXPECT_NE(mix.dscalars.get().f32()[i], 0.0f) << i;
}

TEST(MixNorm, ThreadsChangeNoBit) {
  Mix want({3, 47, 100}, {}, 3);
  want.Run(1);
  for (int threads : {2, 3}) {
    Mix got({3, 47, 100}, {}, 3);
    got.Run(threads);
    ExpectSameBits(got.Outputs(), want.Outputs());
  }
}

TEST(MixNorm, SlotsAreIndependentAndLeavesAddUpInOrder) {
  const Shape shape = {3, 47, 100};
  Mix all(shape, {}, 3), alone(shape, {}, 3), sum(shape, {}, 1);
  all.Run();
  sum.Run();
  for (int64_t slot = 0; slot < 3; ++slot) {
    alone.Run(2, slot, 1, alone.dscalars.get().Slice(slot, 1));
  }
  ExpectSameBits(alone.Outputs(), all.Outputs());
  for (int64_t i = 0; i < kScalars; ++i) {
    float added = 0;
    for (int64_t slot = 0; slot < 3; ++slot) added += all.dscalars.get().f32()[slot * kScalars + i];
    EXPECT_EQ(sum.dscalars.get().f32()[i], added) << i;
  }
}

TEST(NormDeathTest, ShapesInTheMessage) {
  const HostTensor x(DType::kBF16, {1, 4, 8}), y(DType::kBF16, {1, 4, 9});
  const HostTensor inv_rms(DType::kF32, {1, 4}), scalars(DType::kF32, {2});
  HostTensor mixed(DType::kBF16, {1, 4, 8});
  const auto queue = MakeCpuQueue(1);
  EXPECT_DEATH(RmsNorm(x, y, inv_rms, *queue),
               "RmsNorm: y bf16 \\[1, 4, 9\\], x bf16 \\[1, 4, 8\\]");
  EXPECT_DEATH(RmsNorm(inv_rms, y, inv_rms, *queue), "RmsNorm: x f32");
  const MixNormArgs good = {.x = x,
                            .x0 = x,
                            .scalars = scalars,
                            .which = {0, 1, -1},
                            .mixed = mixed,
                            .u = x,
                            .inv_rms = inv_rms};
  MixNormArgs bad = good;
  bad.which = {0, 2, -1};
  EXPECT_DEATH(MixNorm(bad, *queue), "lambdas 0, 2 of f32 \\[2\\]");
  bad.which = {0, 1, 1};
  EXPECT_DEATH(MixNorm(bad, *queue), "saved");
  bad = good;
  bad.mixed = x;
  EXPECT_DEATH(MixNorm(bad, *queue), "mixed may not be x");
  bad = good;
  bad.inv_rms = Tensor();
  EXPECT_DEATH(MixNorm(bad, *queue), "u and inv_rms go together");
  MixNormGradArgs grad;
  grad.x = grad.x0 = x;
  EXPECT_DEATH(MixNormGrad(grad, *queue), "without du there is no norm");
}

}  // namespace
}  // namespace kernels
