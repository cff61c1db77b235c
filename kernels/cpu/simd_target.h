// Which instruction set ("target", by Highway's names) the CPU backend computes with.
//
// Kernels are compiled once for each target of this build's compiler and Highway, and the best one
// that the processor and its operating system support is used. The environment variable
// NANOSPEED_CPU_TARGET chooses another, for example NANOSPEED_CPU_TARGET=AVX2; oneDNN then keeps to
// the same instruction set (see OneDnnIsa). Programs of the CPU backend read it once, before the
// first op.
#ifndef KERNELS_CPU_SIMD_TARGET_H_
#define KERNELS_CPU_SIMD_TARGET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kernels {

inline constexpr char kCpuTargetVariable[] = "NANOSPEED_CPU_TARGET";

struct SimdTarget {
  std::string name;        // Highway's: "SSE4", "AVX2", "AVX3", ...
  int64_t bit = 0;         // HWY_AVX2, ...; 0: this build's Highway has no such target
  bool compiled = false;   // this build has its kernels
  bool supported = false;  // by this processor and its operating system
  bool runs() const { return compiled && supported; }
};

// Every target of this architecture that any Highway up to 1.2 has, the slowest first.
std::vector<SimdTarget> SimdTargets();

// The target that `name` means, or the best of `targets` that runs if `name` is null or empty.
// InvalidArgument: no such target, one that this program lacks, or one that the machine lacks; the
// message names the variable, the value and the targets that would work.
absl::StatusOr<SimdTarget> ChooseSimdTarget(const std::vector<SimdTarget>& targets,
                                            const char* name);

// Whether NANOSPEED_CPU_TARGET is right, as ChooseSimdTarget says. Programs call it before their
// first op, whose CHECK would fail with the same message.
absl::Status CheckCpuTarget();

// The target of this process: what the environment says at the first call, which also limits oneDNN
// and so has to come before oneDNN's first product. CHECK-fails where CheckCpuTarget would fail.
const SimdTarget& CpuTarget();

// The value of oneDNN's variable ONEDNN_MAX_CPU_ISA that is nearest to the target's instruction
// set. oneDNN has nothing below SSE41, which therefore stands for all targets below SSE4 as well.
absl::string_view OneDnnIsa(absl::string_view target);

}  // namespace kernels

#endif  // KERNELS_CPU_SIMD_TARGET_H_
