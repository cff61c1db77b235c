// What the processor and its operating system support, as far as SIMD targets depend on it.
#ifndef KERNELS_CPU_CPU_FEATURES_H_
#define KERNELS_CPU_CPU_FEATURES_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace kernels {

// The registers that CPUID (Intel SDM volume 2A) and XGETBV answer with.
struct CpuFeatures {
  uint32_t leaf1_ecx = 0;    // SSE3 to AVX, FMA, F16C, OSXSAVE
  uint32_t leaf7_ebx = 0;    // AVX2, BMI, AVX-512 F, DQ, CD, BW, VL
  uint32_t leaf7_ecx = 0;    // further parts of AVX-512
  uint32_t leaf7_edx = 0;    // AVX-512 FP16
  uint32_t leaf7_1_eax = 0;  // AVX-512 BF16
  uint64_t xcr0 = 0;         // which registers the operating system saves; 0 without OSXSAVE
};

// Those of this machine; all zero where the architecture is not x86.
CpuFeatures ReadCpuFeatures();

// The name of the best x86 target of Highway whose instructions all exist: "SSE2" (which all x86-64
// processors have), "SSSE3", "SSE4", "AVX2", "AVX3", "AVX3_DL", "AVX3_ZEN4" or "AVX3_SPR". Each
// needs all before it. From AVX2 on the operating system has to save the wider registers.
absl::string_view BestX86Target(const CpuFeatures& features);

}  // namespace kernels

#endif  // KERNELS_CPU_CPU_FEATURES_H_
