#include "kernels/cpu/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace kernels {

#if defined(__x86_64__)
namespace {

// Register sets of XCR0 (Intel SDM volume 1, 13.1): SSE and AVX; and the masks and upper halves of
// AVX-512.
constexpr uint64_t kAvxState = 0x6;
constexpr uint64_t kAvx512State = 0xE6;

template <typename T>
bool HasAll(T bits, T wanted) {
  return (bits & wanted) == wanted;
}

// The extended control register 0, which XGETBV reads where OSXSAVE is set.
uint64_t ReadXcr0() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

}  // namespace

CpuFeatures ReadCpuFeatures() {
  CpuFeatures features;
  uint32_t eax, ebx, ecx, edx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) features.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
    features.leaf7_ebx = ebx;
    features.leaf7_ecx = ecx;
    features.leaf7_edx = edx;
    const uint32_t subleaves = eax;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) {
      features.leaf7_1_eax = eax;
    }
  }
  if (HasAll<uint32_t>(features.leaf1_ecx, bit_OSXSAVE)) features.xcr0 = ReadXcr0();
  return features;
}

absl::string_view BestX86Target(const CpuFeatures& f) {
  if (!HasAll<uint32_t>(f.leaf1_ecx, bit_SSE3 | bit_SSSE3)) return "SSE2";
  if (!HasAll<uint32_t>(f.leaf1_ecx, bit_SSE4_1 | bit_SSE4_2 | bit_PCLMUL | bit_AES)) {
    return "SSSE3";
  }
  if (!HasAll<uint32_t>(f.leaf1_ecx, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C) ||
      !HasAll<uint32_t>(f.leaf7_ebx, bit_AVX2 | bit_BMI | bit_BMI2) || !HasAll(f.xcr0, kAvxState)) {
    return "SSE4";
  }
  if (!HasAll<uint32_t>(f.leaf7_ebx,
                        bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL) ||
      !HasAll(f.xcr0, kAvx512State)) {
    return "AVX2";
  }
  if (!HasAll<uint32_t>(f.leaf7_ecx, bit_AVX512VBMI | bit_AVX512VBMI2 | bit_GFNI | bit_VAES |
                                         bit_VPCLMULQDQ | bit_AVX512VNNI | bit_AVX512BITALG |
                                         bit_AVX512VPOPCNTDQ)) {
    return "AVX3";
  }
  if (!HasAll<uint32_t>(f.leaf7_1_eax, bit_AVX512BF16)) return "AVX3_DL";
  return HasAll<uint32_t>(f.leaf7_edx, bit_AVX512FP16) ? "AVX3_SPR" : "AVX3_ZEN4";
}

#else

CpuFeatures ReadCpuFeatures() { return {}; }
absl::string_view BestX86Target(const CpuFeatures&) { return "SSE2"; }

#endif

}  // namespace kernels
