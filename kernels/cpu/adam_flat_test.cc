// One update of many parameters, against float64 and, bit for bit, against an update of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/optimizer.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;
using testing::WithinBf16Steps;

// Shorter and longer than a vector, a prime, more than one task of a thread.
const std::vector<int64_t> kSizes = {7, 1, 1003, 16, 20011};
constexpr size_t kInactive = 2;

HostTensor Filled(DType dtype, std::vector<int64_t> dims, const std::vector<double>& values) {
  HostTensor tensor(dtype, std::move(dims));
  tensor.Set(values);
  return tensor;
}

int64_t Total() {
  int64_t total = 0;
  for (int64_t size : kSizes) total += size;
  return total;
}

// step_size, decay, eps, beta1, beta2 and active, of each its own.
std::vector<double> RatesOf(size_t i, bool cautious) {
  const double k = static_cast<double>(i);
  return {0.01 * (k + 1),  cautious ? 0.002 * k : 1 - 0.001 * k,
          1e-8 * (k + 1),  0.9 - 0.05 * k,
          0.99 - 0.01 * k, i == kInactive ? 0.0 : 1.0};
}

HostTensor Rates(bool cautious) {
  std::vector<double> table;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    const std::vector<double> row = RatesOf(i, cautious);
    table.insert(table.end(), row.begin(), row.end());
  }
  return Filled(DType::kF32, {static_cast<int64_t>(kSizes.size()), 6}, table);
}

struct Problem {
  Problem(DType weights, DType moments)
      : g(RandomTensor(DType::kF32, {Total()}, 1)),
        m(RandomTensor(moments, {Total()}, 2, 0.1)),
        v(RandomTensor(moments, {Total()}, 3)) {
    std::vector<double> squares = v.ToDouble();
    for (double& x : squares) x = std::fabs(x);
    v.Set(squares);
    for (size_t i = 0; i < kSizes.size(); ++i) {
      p.push_back(RandomTensor(weights, {kSizes[i]}, static_cast<uint32_t>(10 + i)));
    }
  }
  AdamFlatArgs Args(const HostTensor& rates, bool cautious, Tensor guard = {}) const {
    AdamFlatArgs args{
        .p = {}, .g = g, .m = m, .v = v, .rates = rates, .guard = guard, .cautious = cautious};
    for (const HostTensor& one : p) args.p.push_back(one);
    return args;
  }
  // All values that an update changes.
  std::vector<std::vector<double>> Values() const {
    std::vector<std::vector<double>> values = {m.ToDouble(), v.ToDouble()};
    for (const HostTensor& one : p) values.push_back(one.ToDouble());
    return values;
  }

  HostTensor g, m, v;
  std::vector<HostTensor> p;
};

struct Kinds {
  DType weights, moments;
  bool cautious;
};

std::vector<Kinds> AllKinds() {
  std::vector<Kinds> kinds;
  for (DType weights : {DType::kF32, DType::kBF16}) {
    for (DType moments : {DType::kF32, DType::kBF16}) {
      for (bool cautious : {false, true}) kinds.push_back({weights, moments, cautious});
    }
  }
  return kinds;
}

TEST(AdamFlat, IsAdamUpdateOfEachBitForBit) {
  for (const Kinds& kind : AllKinds()) {
    const Problem flat(kind.weights, kind.moments), each(kind.weights, kind.moments);
    const HostTensor rates = Rates(kind.cautious);
    for (int step = 0; step < 3; ++step) {
      AdamFlat(flat.Args(rates, kind.cautious), *MakeCpuQueue(2));
      int64_t begin = 0;
      for (size_t i = 0; i < kSizes.size(); ++i) {
        const float* row = rates.get().f32() + 6 * i;
        AdamArgs args{.p = each.p[i],
                      .g = each.g.get().Slice(begin, kSizes[i]),
                      .m = each.m.get().Slice(begin, kSizes[i]),
                      .v = each.v.get().Slice(begin, kSizes[i]),
                      .rates = rates.get().At(static_cast<int64_t>(i)).Slice(0, 3),
                      .beta1 = row[3],
                      .beta2 = row[4],
                      .cautious = kind.cautious};
        if (i != kInactive) AdamUpdate(args, *MakeCpuQueue(1));
        begin += kSizes[i];
      }
      ASSERT_EQ(flat.Values(), each.Values()) << step;
    }
  }
}

// One step. m and v: two products and a sum in f32, then perhaps bf16. The weight moves by up to
// 0.05 * |m| / sqrt(v), a few f32 roundings of it, and is rounded once.
TEST(AdamFlat, MatchesFloat64) {
  for (const Kinds& kind : AllKinds()) {
    const Problem got(kind.weights, kind.moments), start(kind.weights, kind.moments);
    AdamFlat(got.Args(Rates(kind.cautious), kind.cautious), *MakeCpuQueue(1));
    const std::vector<double> m = start.m.ToDouble(), v = start.v.ToDouble();
    const std::vector<double> new_m = got.m.ToDouble(), new_v = got.v.ToDouble();
    const double moment = kind.moments == DType::kF32 ? 0 : 0.5;  // bf16 steps
    const double weight = kind.weights == DType::kF32 ? 0 : 0.5;
    for (int64_t i = 0, at = 0; i < static_cast<int64_t>(kSizes.size()); ++i) {
      const std::vector<double> row = RatesOf(i, kind.cautious);
      const std::vector<double> p = start.p[i].ToDouble(), new_p = got.p[i].ToDouble();
      for (int64_t j = 0; j < kSizes[i]; ++j, ++at) {
        if (i == kInactive) continue;
        const float exact = start.g.get().f32()[at];
        const double g = kind.weights == DType::kF32 ? exact : RoundToBF16(exact);
        const double want_m = row[3] * m[at] + (1 - row[3]) * g;
        const double want_v = row[4] * v[at] + (1 - row[4]) * g * g;
        const double u = row[0] * want_m / (std::sqrt(want_v) + row[2]);
        const double want = !kind.cautious ? p[j] * row[1] - u
                            : u * p[j] > 0 ? p[j] - u - p[j] * row[1]
                                           : p[j] - u;
        const auto f32 = [](double value) { return 1e-6 * (1 + std::fabs(value)); };
        ASSERT_TRUE(WithinBf16Steps(new_m[at], want_m, moment, f32(want_m))) << i << ", " << j;
        ASSERT_TRUE(WithinBf16Steps(new_v[at], want_v, moment, f32(want_v))) << i << ", " << j;
        ASSERT_TRUE(WithinBf16Steps(new_p[j], want, weight, f32(want) + 1e-5 * std::fabs(u)))
            << i << ", " << j;
      }
    }
  }
}

TEST(AdamFlat, AN_19_AnInactiveParameterKeepsWeightAndMoments) {
  for (const Kinds& kind : AllKinds()) {
    const Problem got(kind.weights, kind.moments), start(kind.weights, kind.moments);
    int64_t begin = 0;
    for (size_t i = 0; i < kInactive; ++i) begin += kSizes[i];
    // Whatever its gradient is.
    std::fill_n(got.g.get().f32() + begin, kSizes[kInactive], NAN);
    AdamFlat(got.Args(Rates(kind.cautious), kind.cautious), *MakeCpuQueue(1));
    for (size_t i = 0; i < kSizes.size(); ++i) {
      EXPECT_EQ(got.p[i].ToDouble() == start.p[i].ToDouble(), i == kInactive) << i;
    }
    const std::vector<double> m = got.m.ToDouble(), v = got.v.ToDouble();
    const std::vector<double> old_m = start.m.ToDouble(), old_v = start.v.ToDouble();
    for (int64_t j = begin; j < begin + kSizes[kInactive]; ++j) {
      ASSERT_EQ(m[j], old_m[j]);
      ASSERT_EQ(v[j], old_v[j]);
    }
    EXPECT_NE(m[begin - 1], old_m[begin - 1]);
    EXPECT_NE(m[begin + kSizes[kInactive]], old_m[begin + kSizes[kInactive]]);
  }
}

TEST(AdamFlat, ZeroGuardChangesNothingAndThreadsNoBits) {
  const HostTensor rates = Rates(true), off(DType::kI32, {1});
  const auto run = [&](int threads, Tensor guard) {
    const Problem problem(DType::kBF16, DType::kF32);
    AdamFlat(problem.Args(rates, true, guard), *MakeCpuQueue(threads));
    return problem.Values();
  };
  EXPECT_EQ(run(1, off), Problem(DType::kBF16, DType::kF32).Values());
  EXPECT_NE(run(1, {}), run(1, off));
  for (int threads : {2, 3}) EXPECT_EQ(run(threads, {}), run(1, {})) << threads;
}

TEST(AdamFlatDeathTest, WhatDoesNotFitIsNamed) {
  const HostTensor rates = Rates(false);
  Problem problem(DType::kF32, DType::kF32);
  AdamFlatArgs args = problem.Args(rates, false);
  args.p.pop_back();
  EXPECT_DEATH(AdamFlat(args, *MakeCpuQueue(1)), "AdamFlat: 4 parameters with 1027 elements");
  args = problem.Args(rates, false);
  args.rates = rates.get().Slice(0, 4);
  EXPECT_DEATH(AdamFlat(args, *MakeCpuQueue(1)), "AdamFlat: rates f32 \\[4, 6\\]");
  args = problem.Args(rates, false);
  const HostTensor other(DType::kBF16, {1});
  args.p[1] = other;
  EXPECT_DEATH(AdamFlat(args, *MakeCpuQueue(1)), "AdamFlat: p bf16 \\[1\\] beside f32");
}

}  // namespace
}  // namespace kernels
