#include "kernels/ops/embedding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/norm.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;
using testing::RandomTokens;
using testing::RelativeError;
using Doubles = std::vector<double>;

constexpr int64_t kVocab = 11, kScalars = 4;
constexpr int kLambda = 2;
constexpr float kLambdaValue = 0.7f;

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

void ExpectSameBits(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(SameBits(got[i], want[i])) << i;
}

struct Shape {
  int64_t slots, tokens, dim, features;
  int64_t rows() const { return slots * tokens; }
};

const std::vector<Shape> kShapes = {{1, 1, 8, 8},    {2, 1, 24, 3},   {1, 16, 768, 12},
                                    {3, 33, 24, 12}, {2, 48, 96, 12}, {1, 65, 17, 1}};

struct Problem {
  Problem(const Shape& s, int64_t leaves)
      : shape(s),
        tokens(RandomTokens({s.slots, s.tokens}, kVocab, 1)),
        table(RandomTensor(DType::kBF16, {kVocab, s.dim}, 2)),
        smear_w(RandomTensor(DType::kBF16, {1, s.features}, 3, 0.5)),
        scalars(DType::kF32, {kScalars}),
        dx0(RandomTensor(DType::kBF16, {s.slots, s.tokens, s.dim}, 4)),
        x0(DType::kBF16, {s.slots, s.tokens, s.dim}),
        inv_rms(DType::kF32, {s.slots, s.tokens}),
        de(DType::kBF16, {s.slots, s.tokens, s.dim}),
        dsmear_w(DType::kF32, {leaves, s.features}),
        dscalars(DType::kF32, {leaves, kScalars}) {
    scalars.get().f32()[kLambda] = kLambdaValue;
  }

  EmbedSmearNormArgs Args(int64_t begin, int64_t count) const {
    EmbedSmearNormArgs args;
    args.tokens = tokens.get().Slice(begin, count);
    args.table = table;
    args.smear_w = smear_w;
    args.scalars = scalars;
    args.smear_lambda = kLambda;
    args.x0 = x0.get().Slice(begin, count);
    args.inv_rms = inv_rms.get().Slice(begin, count);
    return args;
  }
  void Run(int threads, int64_t begin, int64_t count, Tensor into_w, Tensor into_scalars) {
    const auto queue = MakeCpuQueue(threads);
    const EmbedSmearNormArgs args = Args(begin, count);
    EmbedSmearNorm(args, *queue);
    EmbedSmearNormGrad(args, dx0.get().Slice(begin, count), de.get().Slice(begin, count), into_w,
                       into_scalars, *queue);
  }
  void Run(int threads = 2) { Run(threads, 0, shape.slots, dsmear_w, dscalars); }
  std::vector<Tensor> Outputs() const { return {x0, inv_rms, de, dsmear_w, dscalars}; }

  Shape shape;
  HostTensor tokens, table, smear_w, scalars, dx0, x0, inv_rms, de, dsmear_w, dscalars;
};

// The definition in float64 for one slot; e holds the slot's own copy of its tokens' rows, so
// that each row's gradient is apart.
struct Oracle {
  Oracle(const Problem& problem, int64_t s) : shape(problem.shape), w(problem.smear_w.ToDouble()) {
    const Doubles table = problem.table.ToDouble(), all = problem.dx0.ToDouble();
    const int64_t size = shape.tokens * shape.dim;
    dx0.assign(all.begin() + s * size, all.begin() + (s + 1) * size);
    for (int64_t t = 0; t < shape.tokens; ++t) {
      const int64_t token = problem.tokens.get().i32()[s * shape.tokens + t];
      e.insert(e.end(), table.begin() + token * shape.dim, table.begin() + (token + 1) * shape.dim);
    }
  }

  // Token t's row of x0.
  Doubles Row(int64_t t, double* inv_rms = nullptr) const {
    Doubles x(e.begin() + t * shape.dim, e.begin() + (t + 1) * shape.dim);
    if (t > 0) {
      double dot = 0;
      for (int64_t i = 0; i < shape.features; ++i) dot += w[i] * x[i];
      const double weight = lambda / (1 + std::exp(-dot));
      for (int64_t i = 0; i < shape.dim; ++i) x[i] += weight * e[(t - 1) * shape.dim + i];
    }
    double squares = 0;
    for (double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / shape.dim + std::ldexp(1.0, -23));
    for (double& value : x) value *= scale;
    if (inv_rms != nullptr) *inv_rms = scale;
    return x;
  }

  // What the tokens [begin, end) add to sum(dx0 * x0).
  double Loss(int64_t begin, int64_t end) const {
    double loss = 0;
    for (int64_t t = begin; t < end; ++t) {
      const Doubles row = Row(t);
      for (int64_t i = 0; i < shape.dim; ++i) loss += dx0[t * shape.dim + i] * row[i];
    }
    return loss;
  }

  // Central difference of the tokens' loss by `value`, one of this oracle's members.
  double Difference(double* value, int64_t begin, int64_t end) {
    constexpr double kStep = 1e-5;
    const double before = *value;
    *value = before + kStep;
    const double up = Loss(begin, end);
    *value = before - kStep;
    const double slope = (up - Loss(begin, end)) / (2 * kStep);
    *value = before;
    return slope;
  }

  Shape shape;
  Doubles w, e, dx0;
  double lambda = kLambdaValue;
};

// RelativeError counts the largest error in units of the root mean square; elements reach some
// five times that, and a bf16 rounding is at most 2^-8 of an element. x0 is rounded twice (x and
// x0 itself), de once after the rounded x entered it.
constexpr double kForward = 0.03;
constexpr double kGradient = 0.03;

void CheckShape(const Shape& shape) {
  Problem problem(shape, 1);
  problem.Run();
  Doubles x0, inv_rms, de, dw(shape.features);
  double dlambda = 0;
  for (int64_t slot = 0; slot < shape.slots; ++slot) {
    Oracle oracle(problem, slot);
    for (int64_t t = 0; t < shape.tokens; ++t) {
      inv_rms.emplace_back();
      const Doubles row = oracle.Row(t, &inv_rms.back());
      x0.insert(x0.end(), row.begin(), row.end());
      // e_t reaches x_t and x_{t+1} only.
      for (int64_t i = 0; i < shape.dim; ++i) {
        de.push_back(
            oracle.Difference(&oracle.e[t * shape.dim + i], t, std::min(t + 2, shape.tokens)));
      }
    }
    for (int64_t i = 0; i < shape.features; ++i) {
      dw[i] += oracle.Difference(&oracle.w[i], 0, shape.tokens);
    }
    dlambda += oracle.Difference(&oracle.lambda, 0, shape.tokens);
  }
  EXPECT_LT(RelativeError(problem.x0.ToDouble(), x0), kForward) << shape.dim;
  EXPECT_LT(RelativeError(problem.inv_rms.ToDouble(), inv_rms), 2e-3) << shape.dim;
  EXPECT_LT(RelativeError(problem.de.ToDouble(), de), kGradient) << shape.dim;
  // Sums over rows and dims of terms of order 1, each off by some 2^-8 at random.
  const double tolerance = 0.02 * std::sqrt(shape.rows() * shape.dim);
  for (int64_t i = 0; i < shape.features; ++i) {
    EXPECT_NEAR(problem.dsmear_w.get().f32()[i], dw[i], tolerance) << shape.dim << " " << i;
  }
  for (int64_t i = 0; i < kScalars; ++i) {
    EXPECT_NEAR(problem.dscalars.get().f32()[i], i == kLambda ? dlambda : 0.0,
                i == kLambda ? tolerance : 0.0);
  }
}

TEST(EmbedSmearNorm, MatchesFloat64AndFiniteDifferences) {
  for (const Shape& shape : kShapes) CheckShape(shape);
}

// lambda starts at 0: then x0 is the norm of the row alone.
TEST(EmbedSmearNorm, WithoutLambdaThereIsNoSmear) {
  Problem problem({1, 16, 24, 12}, 1);
  problem.scalars.get().f32()[kLambda] = 0;
  problem.Run();
  Oracle oracle(problem, 0);
  oracle.lambda = 0;
  Doubles want;
  for (int64_t t = 0; t < 16; ++t) {
    const Doubles row = oracle.Row(t);
    want.insert(want.end(), row.begin(), row.end());
  }
  EXPECT_LT(RelativeError(problem.x0.ToDouble(), want), kForward / 2);
  EXPECT_NE(problem.dscalars.get().f32()[kLambda], 0.0f);
}

// Without a smear the op is the norm of the gathered rows, and so is its gradient, bit for bit.
TEST(EmbedSmearNorm, WithoutASmearItIsTheNorm) {
  for (const Shape& shape : {Shape{1, 1, 8, 1}, {2, 33, 24, 1}, {1, 5, 1024, 1}}) {
    const Problem problem(shape, 1);
    EmbedSmearNormArgs args = problem.Args(0, shape.slots);
    args.smear_w = args.scalars = Tensor();
    args.smear_lambda = -1;
    const auto queue = MakeCpuQueue(2);
    EmbedSmearNorm(args, *queue);
    EmbedSmearNormGrad(args, problem.dx0, problem.de, Tensor(), Tensor(), *queue);

    const std::vector<int64_t> dims = problem.x0.get().dims();
    const HostTensor e(DType::kBF16, dims), x0(DType::kBF16, dims), de(DType::kBF16, dims);
    const HostTensor inv_rms(DType::kF32, {shape.slots, shape.tokens});
    for (int64_t r = 0; r < shape.rows(); ++r) {
      std::copy_n(problem.table.get().bf16() + problem.tokens.get().i32()[r] * shape.dim, shape.dim,
                  e.get().bf16() + r * shape.dim);
    }
    RmsNorm(e, x0, inv_rms, *queue);
    RmsNormGrad({.dy = problem.dx0, .x = e, .inv_rms = inv_rms, .dx = de}, *queue);
    ExpectSameBits({problem.x0, problem.inv_rms, problem.de}, {x0, inv_rms, de});
  }
}

// A gradient along x, of which the gate of 1/2 times lambda 2 makes e_t + e_{t-1}, is taken away.
TEST(EmbedSmearNorm, GradientAlongXVanishes) {
  const Shape shape = {2, 40, 96, 12};
  Problem problem(shape, 1);
  problem.smear_w.Set(Doubles(shape.features));
  problem.scalars.get().f32()[kLambda] = 2;
  const Doubles table = problem.table.ToDouble();
  const auto element = [&](int64_t row, int64_t i) {
    return table[problem.tokens.get().i32()[row] * shape.dim + i];
  };
  Doubles x;
  for (int64_t row = 0; row < shape.rows(); ++row) {
    const bool first = row % shape.tokens == 0;
    for (int64_t i = 0; i < shape.dim; ++i) {
      x.push_back(element(row, i) + (first ? 0.0 : element(row - 1, i)));
    }
  }
  problem.dx0.Set(x);
  problem.Run();
  for (double value : problem.de.ToDouble()) EXPECT_LT(std::abs(value), 2e-5);
  for (double value : problem.dsmear_w.ToDouble()) EXPECT_LT(std::abs(value), 1e-2);
}

TEST(EmbedSmearNorm, ThreadsChangeNoBit) {
  Problem want({3, 70, 100, 12}, 3);
  want.Run(1);
  for (int threads : {2, 3}) {
    Problem got({3, 70, 100, 12}, 3);
    got.Run(threads);
    ExpectSameBits(got.Outputs(), want.Outputs());
  }
}

TEST(EmbedSmearNorm, SlotsAreIndependentAndLeavesAddUpInOrder) {
  const Shape shape = {3, 70, 100, 12};
  Problem all(shape, 3), alone(shape, 3), sum(shape, 1);
  all.Run();
  sum.Run();
  for (int64_t slot = 0; slot < 3; ++slot) {
    alone.Run(2, slot, 1, alone.dsmear_w.get().Slice(slot, 1), alone.dscalars.get().Slice(slot, 1));
  }
  ExpectSameBits(alone.Outputs(), all.Outputs());
  for (const auto& [leaves, total] : {std::pair{all.dsmear_w.get(), sum.dsmear_w.get()},
                                      std::pair{all.dscalars.get(), sum.dscalars.get()}}) {
    for (int64_t i = 0; i < total.cols(); ++i) {
      float added = 0;
      for (int64_t slot = 0; slot < 3; ++slot) added += leaves.f32()[slot * total.cols() + i];
      EXPECT_EQ(total.f32()[i], added) << i;
    }
  }
}

HostTensor TableGradient(const Problem& p, int threads, int64_t begin, int64_t count,
                         int64_t leaves) {
  const auto queue = MakeCpuQueue(threads);
  HostTensor dtable = RandomTensor(DType::kF32, {leaves, kVocab, p.shape.dim}, 9);
  const int64_t bytes =
      EmbeddingGradWorkspaceBytes(count, p.shape.tokens, kVocab, p.shape.dim, *queue);
  const HostTensor workspace(DType::kF32, {bytes / 4 + 1});
  EmbeddingGrad(p.tokens.get().Slice(begin, count), p.dx0.get().Slice(begin, count), dtable,
                workspace, *queue);
  return dtable;
}

// f32 additions in token order, bit for bit.
TEST(EmbeddingGrad, AddsInTokenOrder) {
  for (const Shape& shape : kShapes) {
    const Problem p(shape, 1);
    for (int64_t leaves : {int64_t{1}, shape.slots}) {
      HostTensor want = RandomTensor(DType::kF32, {leaves, kVocab, shape.dim}, 9);
      for (int64_t r = 0; r < shape.rows(); ++r) {
        const int64_t leaf = leaves == 1 ? 0 : r / shape.tokens;
        float* row = want.get().At(leaf).f32() + p.tokens.get().i32()[r] * shape.dim;
        for (int64_t i = 0; i < shape.dim; ++i) {
          row[i] += ToFloat(p.dx0.get().bf16()[r * shape.dim + i]);
        }
      }
      for (int threads : {1, 2, 3}) {
        EXPECT_TRUE(SameBits(TableGradient(p, threads, 0, shape.slots, leaves).get(), want.get()))
            << shape.dim << " " << threads;
      }
    }
  }
}

TEST(EmbeddingGrad, LeavesAreTheSlotsAlone) {
  const Problem p({3, 48, 96, 12}, 1);
  HostTensor leaves(DType::kF32, {3, kVocab, 96});
  EmbeddingGrad(p.tokens, p.dx0, leaves, Tensor(), *MakeCpuQueue(2));
  for (int64_t slot = 0; slot < 3; ++slot) {
    HostTensor alone(DType::kF32, {1, kVocab, 96});
    EmbeddingGrad(p.tokens.get().Slice(slot, 1), p.dx0.get().Slice(slot, 1), alone, Tensor(),
                  *MakeCpuQueue(2));
    EXPECT_TRUE(SameBits(alone.get(), leaves.get().Slice(slot, 1))) << slot;
  }
}

TEST(EmbeddingDeathTest, IndicesAndShapesInTheMessage) {
  Problem p({1, 4, 8, 3}, 1);
  const auto queue = MakeCpuQueue(1);
  EmbedSmearNormArgs args = p.Args(0, 1);
  args.smear_lambda = kScalars;
  EXPECT_DEATH(EmbedSmearNorm(args, *queue), "EmbedSmearNorm: scalar 4 of f32 \\[4\\]");
  args.smear_lambda = -1;
  EXPECT_DEATH(EmbedSmearNorm(args, *queue), "no smear, but smear_w bf16 \\[1, 3\\]");
  const HostTensor narrow(DType::kF32, {1, kVocab, 7}), dtable(DType::kF32, {1, kVocab, 8});
  EXPECT_DEATH(EmbeddingGrad(p.tokens, p.dx0, narrow, Tensor(), *queue),
               "EmbeddingGrad: dtable f32 \\[1, 11, 7\\]");
  p.tokens.get().i32()[2] = kVocab;
  EXPECT_DEATH(EmbedSmearNorm(p.Args(0, 1), *queue), "token 11 at 2");
  EXPECT_DEATH(EmbeddingGrad(p.tokens, p.dx0, dtable, Tensor(), *queue), "token 11 at 2");
}

}  // namespace
}  // namespace kernels
