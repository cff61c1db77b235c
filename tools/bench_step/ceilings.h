// What the device can do at best, measured through the public ops in the same process as the
// steps that are held against it.
#ifndef TOOLS_BENCH_STEP_CEILINGS_H_
#define TOOLS_BENCH_STEP_CEILINGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"

namespace tools {

struct Ceilings {
  double bf16_flops_per_s = 0;
  // No public op is a bare fp8 product: taken as twice the bf16 rate on a GPU, whose fp8 units are
  // twice as wide, and as the bf16 rate on a CPU, which emulates fp8.
  double fp8_flops_per_s = 0;
  double copy_bytes_per_s = 0;  // read and written bytes together
  std::string how;              // what was measured, in words

  // The least time of an op: of its products or of its bytes, whichever takes longer.
  double FloorSeconds(const kernels::OpCost& cost) const;
};

// A large bf16 product of random normal values, and a copy of bf16 far larger than any cache:
// each the median of 10 calls after 3 calls and a spell of load. Sizes by the kind of device; on a
// GPU it takes 8.6 GB, given back before it returns. ResourceExhausted without that much memory.
absl::StatusOr<Ceilings> MeasureCeilings(kernels::Backend& backend, kernels::Queue& queue);

}  // namespace tools

#endif  // TOOLS_BENCH_STEP_CEILINGS_H_
