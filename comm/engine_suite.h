// What each communication engine has to do, as tests that all ranks call together: threads of a
// process or processes, on CPUs or GPUs.
//
//   for (const EngineCase& test : CollectiveCases()) test.run({*comm, *queue, *backend});
//
// A rank that finds something wrong says so by gtest's EXPECT. The communicator is whole
// afterwards.
#ifndef COMM_ENGINE_SUITE_H_
#define COMM_ENGINE_SUITE_H_

#include <vector>

#include "comm/communicator.h"
#include "kernels/queue.h"

namespace comm {

struct EngineRank {
  Communicator& comm;
  kernels::Queue& queue;
  kernels::Backend& backend;  // of the queue's device
};

struct EngineCase {
  const char* name;
  void (*run)(const EngineRank& rank);
};

// For all engines.
const std::vector<EngineCase>& CollectiveCases();
// For engines that do not compare the ranks' calls themselves: MakeChecking() over them does, and
// the engine goes on to work. (The local one compares, and ends at the first difference.)
const std::vector<EngineCase>& CheckingCases();
// For engines that add in rank order, in f32, and round once: every bit is given.
const std::vector<EngineCase>& RankOrderCases();

}  // namespace comm

#endif  // COMM_ENGINE_SUITE_H_
