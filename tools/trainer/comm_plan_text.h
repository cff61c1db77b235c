// --plan --ranks=N: what communication would cost on other ranks and links.
#ifndef TOOLS_TRAINER_COMM_PLAN_TEXT_H_
#define TOOLS_TRAINER_COMM_PLAN_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tools/trainer/train_config.h"

namespace tools {

// One field per flag, under its name.
struct CommPlanFlags {
  int64_t ranks = 0;
  double link_gbps = 0;  // 10^9 bits a second of a rank's link, in one direction
  double latency_us = 0;
  std::string link_shape = "ring";  // or "tree"; see comm_plan.h
  std::string phases;               // a file that --trace wrote: what is computed, measured
  double tflops = 0;                // else: at this rate, from the FLOPs
};

// A table of the collectives of a step, mean over one period of the rules' `every` (where it
// changes, of the last one), and the share
// of exposed time in a step of each batch size. Where there are more ranks than slots, as if
// --slots had been raised to the next multiple of the recipe's; the text says so.
//
// InvalidArgument names the flag: out of range, neither or both of phases and tflops, phases of
// another record or preset or without a buffer that the step has, a deterministic run (whose
// collectives are not the schedule's), slots that the batch does not divide into.
absl::StatusOr<std::string> CommPlanText(const TrainConfig& config, const CommPlanFlags& flags);

}  // namespace tools

#endif  // TOOLS_TRAINER_COMM_PLAN_TEXT_H_
