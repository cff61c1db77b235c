#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fp8_test.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/fp8-inl.h"
#include "kernels/cpu/simd_dispatch.h"
#include "kernels/cpu/simd_target.h"
#include "kernels/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {

void RoundAll(bool e4m3, const std::vector<float>& from, std::vector<float>& to) {
  const DF d;
  ForEachVec(d, from.size(), [&](int64_t i, int64_t n) {
    const VF v = LoadAny(d, from.data() + i, n);
    StoreAny(d, e4m3 ? RoundVecToE4M3(d, v) : RoundVecToE5M2(d, v), to.data() + i, n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(RoundAll);

// Every bf16 value (subnormals, infinities and NaNs among them), any f32 bits, and f32 values
// near the formats' ties.
std::vector<float> Inputs() {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    values.push_back(std::bit_cast<float>(bits << 16));
  }
  std::mt19937 generator(1);
  for (int i = 0; i < 200001; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(generator())));
  }
  std::uniform_int_distribution<int> exponent(-20, 17);
  for (int i = 0; i < 100000; ++i) {
    const float tie = std::ldexp(static_cast<float>(generator() % 64), exponent(generator));
    values.push_back(tie);
    values.push_back(std::nextafter(tie, 0.0f));
    values.push_back(std::nextafter(-tie, -1e9f));
  }
  return values;
}

void ExpectEqualBits(const std::vector<float>& in, const std::vector<float>& got,
                     float (*round)(float)) {
  for (size_t i = 0; i < in.size(); ++i) {
    const float want = round(in[i]);
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want))
        << in[i] << ": " << got[i] << ", not " << want;
  }
}

TEST(Fp8, VectorRoundingEqualsScalarOnEachTarget) {
  const std::vector<float> in = Inputs();
  std::vector<float> got(in.size());
  for (const SimdTarget& target : SimdTargets()) {
    if (!target.runs()) continue;
    SCOPED_TRACE(target.name);
    KERNELS_DISPATCH_TO(target.bit, RoundAll)(true, in, got);
    ExpectEqualBits(in, got, RoundToE4M3);
    KERNELS_DISPATCH_TO(target.bit, RoundAll)(false, in, got);
    ExpectEqualBits(in, got, RoundToE5M2);
  }
}

TEST(Fp8, T1_25_GoldenQuantisations) {
  const float x_scale = static_cast<float>(std::sqrt(768.0) / 448.0);
  const float w_scale = 1.0f / 512.0f;
  const std::vector<float> in = {1 / x_scale,     0.5f / x_scale,   -2.3f / x_scale,
                                 0.01f / x_scale, 0.008f / w_scale, 1 / w_scale};
  const std::vector<float> want = {16, 8, -36, 0.15625f, 4, 448};
  std::vector<float> got(in.size());
  KERNELS_DISPATCH(RoundAll)(true, in, got);
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace kernels
#endif  // HWY_ONCE
