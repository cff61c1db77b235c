// The cases of engine_suite.h about rows of differing numbers.
#ifndef COMM_ENGINE_ROWS_H_
#define COMM_ENGINE_ROWS_H_

#include "comm/engine_suite.h"

namespace comm {

// All pairs: no rows, one, many.
void RowsOfDifferingNumbers(const EngineRank& rank);
// A rank that sends more than the other expects, below MakeChecking().
void DifferentCountsAreNamed(const EngineRank& rank);

}  // namespace comm

#endif  // COMM_ENGINE_ROWS_H_
