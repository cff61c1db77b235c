// Prints a line for each target of kernels/cpu/simd_target.h: its name, and "runs" or why it does
// not run here. For tools/ci/cpu_targets.sh.
#include <cstdio>

#include "kernels/cpu/simd_target.h"

int main() {
  for (const kernels::SimdTarget& target : kernels::SimdTargets()) {
    std::printf("%s %s\n", target.name.c_str(),
                target.runs()      ? "runs"
                : target.supported ? "not compiled in"
                : target.compiled  ? "not on this processor"
                                   : "neither compiled in nor on this processor");
  }
}
