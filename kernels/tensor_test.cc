#include "kernels/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/arena.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/dtype.h"

namespace kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The value of a bf16 code without sign, from the format's definition; the code of infinity
// stands for 2^128, which is where rounding to nearest puts it.
double MagnitudeOf(uint32_t code) {
  const int exponent = static_cast<int>(code >> 7), mantissa = static_cast<int>(code & 0x7F);
  return exponent == 0 ? std::ldexp(mantissa, -133) : std::ldexp(128 + mantissa, exponent - 134);
}

// The nearest code, ties to even, found by bisection over the codes' values.
uint16_t NearestCode(float x) {
  const double magnitude = std::fabs(static_cast<double>(x));
  uint32_t below = 0, above = 0x7F80;
  while (above - below > 1) {
    const uint32_t middle = (below + above) / 2;
    (MagnitudeOf(middle) <= magnitude ? below : above) = middle;
  }
  const double down = magnitude - MagnitudeOf(below), up = MagnitudeOf(above) - magnitude;
  const bool take_above = up < down || (up == down && above % 2 == 0);
  return static_cast<uint16_t>((take_above ? above : below) | (std::signbit(x) ? 0x8000u : 0u));
}

TEST(BF16, AllCodesRoundTrip) {
  for (uint32_t code = 0; code < (1u << 16); ++code) {
    const float value = ToFloat(BF16{static_cast<uint16_t>(code)});
    const uint32_t magnitude = code & 0x7FFF;
    if (magnitude > 0x7F80) {
      EXPECT_TRUE(std::isnan(value)) << code;
      // The quiet bit is set; sign and payload stay.
      EXPECT_EQ(ToBF16(value).bits, code | 0x40) << code;
      continue;
    }
    EXPECT_EQ(ToBF16(value).bits, code);
    if (magnitude == 0x7F80) {
      EXPECT_TRUE(std::isinf(value)) << code;
    } else {
      EXPECT_EQ(std::fabs(value), MagnitudeOf(magnitude)) << code;
    }
  }
}

TEST(BF16, RoundsToNearestEven) {
  std::mt19937 generator(1);
  for (int i = 0; i < 200000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(generator()));
    if (!std::isfinite(x)) continue;
    EXPECT_EQ(ToBF16(x).bits, NearestCode(x)) << x;
  }
}

TEST(BF16, TiesAndTheirNeighbours) {
  for (uint32_t code = 0; code < 0x7F80; ++code) {
    for (uint32_t low : {0x7FFFu, 0x8000u, 0x8001u}) {
      const float x = std::bit_cast<float>((code << 16) | low);
      ASSERT_EQ(ToBF16(x).bits, NearestCode(x)) << x;
      ASSERT_EQ(ToBF16(-x).bits, NearestCode(-x)) << x;
    }
  }
}

TEST(BF16, InfinityAndNaN) {
  EXPECT_EQ(ToBF16(kInf).bits, 0x7F80);
  EXPECT_EQ(ToBF16(-kInf).bits, 0xFF80);
  EXPECT_EQ(ToBF16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(RoundToBF16(kNaN)));
  // A payload in the lower half alone must not turn a NaN into infinity.
  EXPECT_TRUE(std::isnan(RoundToBF16(std::bit_cast<float>(0x7F800001u))));
  EXPECT_TRUE(std::isnan(RoundToBF16(std::bit_cast<float>(0xFFFFFFFFu))));
}

// All finite magnitudes of an fp8 format, ascending, from the formats' definition.
std::vector<float> Fp8Magnitudes(int mantissa_bits, int bias, float largest) {
  std::vector<float> values;
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    const int leading = exponent == 0 ? 0 : 1 << mantissa_bits;
    const float value = static_cast<float>(
        std::ldexp(leading + mantissa, std::max(exponent, 1) - bias - mantissa_bits));
    if (value <= largest) values.push_back(value);
  }
  return values;
}

// Codes are fixed points, midpoints go to the even code, and what lies beside them to the nearer.
void CheckFormat(const std::vector<float>& values, float (*round)(float)) {
  for (size_t code = 0; code < values.size(); ++code) {
    EXPECT_EQ(round(values[code]), values[code]);
    EXPECT_EQ(round(-values[code]), -values[code]);
    if (code + 1 == values.size()) break;
    const float middle = (values[code] + values[code + 1]) / 2;  // exact in f32
    EXPECT_EQ(round(middle), values[code + code % 2]) << middle;
    EXPECT_EQ(round(std::nextafter(middle, 0.0f)), values[code]) << middle;
    EXPECT_EQ(round(std::nextafter(middle, kInf)), values[code + 1]) << middle;
  }
  EXPECT_TRUE(std::signbit(round(-0.0f)));
  EXPECT_TRUE(std::isnan(round(kNaN)));
  for (float large : {values.back() * 1.01f, values.back() * 100, kInf}) {
    EXPECT_EQ(round(large), values.back());
    EXPECT_EQ(round(-large), -values.back());
  }
}

TEST(Fp8, E4M3RoundsToNearestEvenAndSaturates) {
  const std::vector<float> values = Fp8Magnitudes(3, 7, 448.0f);
  ASSERT_EQ(values.size(), 127u);  // one code is NaN
  CheckFormat(values, RoundToE4M3);
}

TEST(Fp8, E5M2RoundsToNearestEvenAndSaturates) {
  const std::vector<float> values = Fp8Magnitudes(2, 15, 57344.0f);
  ASSERT_EQ(values.size(), 124u);  // four codes are infinity and NaNs
  CheckFormat(values, RoundToE5M2);
}

// The head's scales and golden quantisations.
TEST(Fp8, T1_25_GoldenQuantisations) {
  const float x_scale = static_cast<float>(std::sqrt(768.0) / 448.0), w_scale = 1.0f / 512.0f;
  EXPECT_NEAR(x_scale, 0.0618589574, 2e-9);  // half an f32 unit there
  const auto x8 = [&](float x) { return RoundToE4M3(x / x_scale); };
  const auto w8 = [&](float w) { return RoundToE4M3(w / w_scale); };
  EXPECT_EQ(x8(1.0f), 16.0f);
  EXPECT_NEAR(x8(1.0f) * x_scale, 0.989743, 1e-6);
  EXPECT_EQ(x8(0.5f), 8.0f);
  EXPECT_NEAR(x8(0.5f) * x_scale, 0.494872, 1e-6);
  EXPECT_EQ(x8(-2.3f), -36.0f);
  EXPECT_NEAR(x8(-2.3f) * x_scale, -2.226922, 1e-6);
  EXPECT_EQ(x8(0.01f), 0.15625f);
  EXPECT_NEAR(x8(0.01f) * x_scale, 0.00966546, 1e-8);
  EXPECT_EQ(w8(0.008f) * w_scale, 0.0078125f);
  EXPECT_EQ(w8(1.0f) * w_scale, 0.875f);
  const float smallest = std::ldexp(1.0f, -9);
  EXPECT_EQ(RoundToE4M3(smallest), smallest);
  EXPECT_NEAR(smallest * x_scale, 1.208e-4, 1e-7);
  EXPECT_NEAR(smallest * w_scale, 3.815e-6, 1e-9);
}

TEST(Tensor, ShapesAndViews) {
  std::vector<float> memory(2 * 3 * 4);
  const Tensor x(memory.data(), DType::kF32, {2, 3, 4});
  EXPECT_EQ(x.rank(), 3);
  EXPECT_EQ(x.dim(-1), 4);
  EXPECT_EQ(x.size(), 24);
  EXPECT_EQ(x.bytes(), 96);
  EXPECT_EQ(x.rows(), 6);
  EXPECT_EQ(x.cols(), 4);
  EXPECT_EQ(x.Reshape({-1, 4}).dims(), (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(x.Reshape({4, 6}).data(), x.data());
  const Tensor second = x.Slice(1, 1);
  EXPECT_EQ(second.dims(), (std::vector<int64_t>{1, 3, 4}));
  EXPECT_EQ(second.f32(), memory.data() + 12);
  EXPECT_EQ(x.At(1).dims(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(x.At(1).At(2).f32(), memory.data() + 20);
  EXPECT_EQ(x.Slice(2, 0).size(), 0);
  EXPECT_TRUE(SameShape(x.At(0), x.At(1)));
  EXPECT_FALSE(SameShape(x, second));
}

TEST(Tensor, Prints) {
  std::vector<BF16> memory(8 * 512);
  std::ostringstream out;
  out << Tensor(memory.data(), DType::kBF16, {8, 512}) << "; " << Tensor();
  EXPECT_EQ(out.str(), "bf16 [8, 512]; (no tensor)");
}

TEST(Tensor, EmptyIsFalse) {
  EXPECT_FALSE(Tensor());
  EXPECT_TRUE(Tensor().empty());
  EXPECT_EQ(Tensor().size(), 0);
}

TEST(TensorDeathTest, RejectsMisuse) {
  std::vector<float> memory(6);
  const Tensor x(memory.data(), DType::kF32, {2, 3});
  EXPECT_DEATH(x.Reshape({4, -1}), "reshape of f32 \\[2, 3\\]");
  EXPECT_DEATH(x.Reshape({7}), "reshape of f32 \\[2, 3\\]");
  EXPECT_DEATH(x.Reshape({-1, -1}), "two open dims");
  EXPECT_DEATH(x.Slice(1, 2), "slice \\[1, 3\\) of f32 \\[2, 3\\]");
  EXPECT_DEATH(x.dim(2), "dim 2 of f32 \\[2, 3\\]");
  EXPECT_DEATH(x.bf16(), "bf16");
  EXPECT_DEATH(Tensor(memory.data(), DType::kF32, {1, 1, 1, 1, 6}), "rank 5");
}

TEST(Arena, LaysOutAlignedWithoutOverlap) {
  ArenaPlan plan;
  const TensorId a = plan.Add("a", DType::kBF16, {3, 5});
  const TensorId empty = plan.Add("empty", DType::kF32, {0, 5});
  const TensorId b = plan.Add("b", DType::kF32, {64});
  const TensorId c = plan.Add("c", DType::kI64, {33});
  EXPECT_EQ(plan.entries()[b.index].offset, 256);
  EXPECT_EQ(plan.entries()[c.index].offset, 512);
  EXPECT_EQ(plan.bytes(), 512 + 512);
  EXPECT_EQ(plan.entries()[c.index].name, "c");
  absl::StatusOr<Arena> created = Arena::Create(plan, CpuBackend());
  ASSERT_TRUE(created.ok()) << created.status();
  const Arena arena = *std::move(created);
  EXPECT_EQ(arena.Get(empty).size(), 0);
  for (TensorId id : {a, b, c}) {
    const Tensor t = arena.Get(id);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data()) % 256, 0u);
    EXPECT_EQ(t.device(), DeviceKind::kCpu);
    for (int64_t i = 0; i < t.bytes(); ++i) ASSERT_EQ(static_cast<char*>(t.data())[i], 0);
  }
  EXPECT_EQ(arena.Get(a).dims(), (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(arena.Get(c).dtype(), DType::kI64);
}

TEST(Arena, MovesItsMemory) {
  ArenaPlan plan;
  const TensorId id = plan.Add("x", DType::kF32, {4});
  Arena first = *Arena::Create(plan, CpuBackend());
  void* const data = first.Get(id).data();
  Arena second(std::move(first));
  EXPECT_EQ(second.Get(id).data(), data);
  Arena third;
  third = std::move(second);
  EXPECT_EQ(third.Get(id).data(), data);
}

TEST(ArenaDeathTest, RejectsForeignIds) {
  const Arena arena = *Arena::Create(ArenaPlan(), CpuBackend());
  EXPECT_DEATH(arena.Get(TensorId{}), "id.index");
  EXPECT_DEATH(arena.Get(TensorId{0}), "id.index");
}

// A device without memory.
class FullBackend : public Backend {
 public:
  absl::string_view name() const override { return "full"; }
  DeviceKind device() const override { return DeviceKind::kCpu; }
  void* Allocate(int64_t) override { return nullptr; }
  void Free(void*) override {}
};

TEST(Arena, SaysHowMuchMemoryIsMissing) {
  ArenaPlan plan;
  plan.Add("x", DType::kF32, {1000});
  FullBackend backend;
  const absl::StatusOr<Arena> arena = Arena::Create(plan, backend);
  EXPECT_EQ(arena.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(arena.status().message()).find("4096 bytes on full"), std::string::npos)
      << arena.status();
}

}  // namespace
}  // namespace kernels
