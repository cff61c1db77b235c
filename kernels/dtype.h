// Element types, and the exact scalar conversions that the CPU ops and the tests share.
#ifndef KERNELS_DTYPE_H_
#define KERNELS_DTYPE_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <ostream>

namespace kernels {

enum class DType : uint8_t { kF32, kBF16, kF8E4M3, kF8E5M2, kU16, kI32, kI64 };

constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return 1;
    case DType::kBF16:
    case DType::kU16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kI64:
      return 8;
  }
  return 0;
}

constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF8E4M3:
      return "f8e4m3";
    case DType::kF8E5M2:
      return "f8e5m2";
    case DType::kU16:
      return "u16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
  }
  return "?";
}

inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << Name(dtype); }

// The upper half of a binary32. A type of its own, so that no arithmetic happens on its bits.
struct BF16 {
  uint16_t bits;
  friend bool operator==(BF16, BF16) = default;
};

inline float ToFloat(BF16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Round to nearest, ties to even; a NaN stays a (quiet) NaN, overflow becomes infinity.
inline BF16 ToBF16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return BF16{static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return BF16{static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

inline float RoundToBF16(float x) { return ToFloat(ToBF16(x)); }

// The nearest value of an fp8 format as a float: ties to even, saturating at the largest
// finite value (448 and 57344), NaN kept. OCP 8-bit floating point, 2023.
inline float RoundToFp8(float x, int mantissa_bits, int min_exponent, float max_finite) {
  if (std::isnan(x)) return x;
  const float magnitude = std::fabs(x);
  if (magnitude >= max_finite) return std::copysign(max_finite, x);
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = m * 2^exponent, m in [0.5, 1)
  const int leading = std::max(exponent - 1, min_exponent);
  const float quantum = std::ldexp(1.0f, leading - mantissa_bits);
  const float rounded = std::nearbyint(magnitude / quantum) * quantum;
  return std::copysign(std::fmin(rounded, max_finite), x);
}
inline float RoundToE4M3(float x) { return RoundToFp8(x, 3, -6, 448.0f); }
inline float RoundToE5M2(float x) { return RoundToFp8(x, 2, -14, 57344.0f); }

}  // namespace kernels

#endif  // KERNELS_DTYPE_H_
