// The latency and rate of a link, from how long collectives took on it.
#ifndef TOOLS_BENCH_COMM_LINK_FIT_H_
#define TOOLS_BENCH_COMM_LINK_FIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/trainer/comm_plan.h"

namespace tools {

struct TimedCollective {
  std::string collective;  // as CollectiveSeconds takes it
  int64_t bytes = 0;       // of the whole buffer
  double seconds = 0;      // > 0
};

struct LinkFit {
  LinkModel link;
  double worst_ratio = 0;  // of predicted to measured or the other way round, whichever is over 1
};

// The link with which CollectiveSeconds comes closest to `timed`: the least sum of squares of
// (predicted - measured) / measured, so that small collectives count as much as large ones. Where
// that would make the latency negative, it is 0, and where the rate, it is infinite. CHECKs at
// least two ranks and two times of different bytes.
LinkFit FitLink(const std::vector<TimedCollective>& timed, int ranks, LinkShape shape);

}  // namespace tools

#endif  // TOOLS_BENCH_COMM_LINK_FIT_H_
