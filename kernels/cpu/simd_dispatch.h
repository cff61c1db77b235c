// Calls of functions that foreach_target.h compiled once per target, by a table of ours.
//
//   #if HWY_ONCE
//   KERNELS_EXPORT(AddRow);                        // at namespace scope, once per function
//   ... KERNELS_DISPATCH(AddRow)(a, b, size);      // the one of CpuTarget()
//   #endif
//
// Highway's HWY_EXPORT and HWY_DYNAMIC_DISPATCH choose by functions of its shared library. A
// program would then not start where libhwy is missing, and could not be told which target to use.
#ifndef KERNELS_CPU_SIMD_DISPATCH_H_
#define KERNELS_CPU_SIMD_DISPATCH_H_

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

namespace kernels {

// Highway's bit of CpuTarget() (simd_target.h), which says what it may fail for.
int64_t CpuTargetBit();

// Where HWY_CHOOSE_TARGET_LIST has the function of the target `bit`; the emulation, or what stands
// in its place, is behind the list.
constexpr size_t SimdTableIndex(int64_t bit) {
  if (bit == HWY_SCALAR || bit == HWY_EMU128) return HWY_MAX_DYNAMIC_TARGETS;
  size_t index = 0;
  while ((bit >> (HWY_HIGHEST_TARGET_BIT + 1 - HWY_MAX_DYNAMIC_TARGETS + index)) > 1) ++index;
  return index;
}

inline size_t CpuTargetIndex() {
  static const size_t index = SimdTableIndex(CpuTargetBit());
  return index;
}

}  // namespace kernels

#define KERNELS_SIMD_TABLE(FUNCTION) FUNCTION##SimdTable

#define KERNELS_EXPORT(FUNCTION)                                                          \
  [[maybe_unused]] constexpr decltype(&HWY_STATIC_DISPATCH(FUNCTION)) KERNELS_SIMD_TABLE( \
      FUNCTION)[] = {HWY_CHOOSE_TARGET_LIST(FUNCTION), HWY_CHOOSE_FALLBACK(FUNCTION)}

#define KERNELS_DISPATCH(FUNCTION) (*KERNELS_SIMD_TABLE(FUNCTION)[::kernels::CpuTargetIndex()])

// The function compiled for the target BIT, which has to be one of HWY_TARGETS. For tests.
#define KERNELS_DISPATCH_TO(BIT, FUNCTION) \
  (*KERNELS_SIMD_TABLE(FUNCTION)[::kernels::SimdTableIndex(BIT)])

#endif  // KERNELS_CPU_SIMD_DISPATCH_H_
