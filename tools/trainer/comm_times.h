// How long a step's collectives were under way, and how much of that the queue stood still for.
#ifndef TOOLS_TRAINER_COMM_TIMES_H_
#define TOOLS_TRAINER_COMM_TIMES_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/trainer/traced_step.h"

namespace tools {

// All collectives of one kind with one label: what a rank has of them in a step, on average over
// the traced steps of all ranks that were traced.
struct CollectiveTimes {
  std::string collective;  // "reduce_scatter"
  std::string label;
  double calls = 0;
  double bytes = 0;       // of the larger of input and output
  double total_ms = 0;    // from the call until the result could be used
  double exposed_ms = 0;  // of that, the queue waited: for the link, or for slower ranks
  double late_ms = 0;     // of that, before the last of the traced ranks had made the call
  double hidden_ms() const { return total_ms - exposed_ms; }
};

struct CommTimes {
  std::vector<CollectiveTimes> collectives;  // in the order of their first call
  double step_ms = 0;                        // of a traced step, op by op
  int ranks = 0;                             // that were traced
  int steps = 0;                             // of each
  CollectiveTimes Total() const;             // without names
};

// The row of that collective and label, a new one at the end if there was none.
CollectiveTimes& RowFor(const std::string& collective, const std::string& label, CommTimes* times);

// Late is known only of ranks that were traced together, the threads of one process, whose clock is
// one: of the others' lateness nothing is known, and it counts as the link's.
CommTimes SumCollectives(const std::vector<TracedStep>& steps);

// A table for people, one row for each of the collectives and one for all:
//   collective  label  calls  bytes  total ms  exposed ms  late ms  hidden ms
std::string CollectivesTable(const CommTimes& times);
// The table between what it is about and what the exposed time is a part of.
std::string CommTimesText(const CommTimes& times);
nlohmann::ordered_json CommTimesJson(const CommTimes& times);

}  // namespace tools

#endif  // TOOLS_TRAINER_COMM_TIMES_H_
