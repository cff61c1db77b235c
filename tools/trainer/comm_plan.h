// What a step's collectives would cost on any number of ranks and any link, without running them:
// the step's own schedule (optim/step_schedule.h) played on two clocks, the queue's and the link's.
#ifndef TOOLS_TRAINER_COMM_PLAN_H_
#define TOOLS_TRAINER_COMM_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "optim/step_layout.h"

namespace tools {

// How n bytes get from rank to rank.
//
// With W ranks, alpha the latency of a message and beta the rate of a rank's link in one direction,
// a reduce-scatter or an all-gather of n bytes (the whole buffer) takes
//   kRing  (W - 1) alpha + (W - 1) / W n / beta
//   kTree  ceil(log2 W) alpha + (W - 1) / W n / beta
// and an all-reduce, being one after the other, twice that. Both move the least that a rank can do
// with; a ring in W - 1 steps to its neighbour (Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms", 2009), a tree in log W steps by halving and doubling the distance (Thakur,
// Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005).
// The additions of a reduction cost nothing here.
enum class LinkShape : uint8_t { kRing, kTree };

struct LinkModel {
  LinkShape shape = LinkShape::kRing;
  double gbps = 0;        // 10^9 bits a second, of a rank in one direction, > 0; may be infinite
  double latency_us = 0;  // >= 0
};

// `collective`: "reduce_scatter", "all_gather" or "all_reduce". 0 with one rank.
double CollectiveSeconds(absl::string_view collective, int64_t bytes, int ranks,
                         const LinkModel& link);

// What the busiest rank computes for one buffer.
struct BufferWork {
  double pack_s = 0;    // before its reduction is launched
  double update_s = 0;  // between reduction and gather
  double unpack_s = 0;  // after the gather
};

struct PredictedCollective {
  std::string collective;
  std::string label;
  int64_t bytes = 0;
  double link_s = 0;     // the link works on it
  double total_s = 0;    // from its launch until the result could be used
  double exposed_s = 0;  // of that, the queue waits
};

struct PredictedStep {
  std::vector<PredictedCollective> collectives;  // in the order of launches
  double compute_s = 0;                          // of the schedule's entries
  double end_s = 0;                              // compute_s and all that is exposed
  double exposed_s() const { return end_s - compute_s; }
};

// Plays one step of `kind`, from the losses' gather on, which the queue waits for at once.
// `work[i]` is of the layout's buffer i, `loss_bytes` all ranks' losses. The link does one
// collective at a time, in the order of their launches, and begins when the queue has got there;
// computing and communicating do not slow each other down. Gradients travel as f32.
//
// No exposed time is negative, more bandwidth or less latency never makes a step longer, and with
// an infinite rate and no latency nothing is exposed.
PredictedStep PredictStep(const optim::StepLayout& layout, const optim::StepKind& kind, int ranks,
                          const std::vector<BufferWork>& work, int64_t loss_bytes,
                          const LinkModel& link);

}  // namespace tools

#endif  // TOOLS_TRAINER_COMM_PLAN_H_
