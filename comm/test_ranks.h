// Runs one function per rank, each on its own thread with its own CPU queue.
#ifndef COMM_TEST_RANKS_H_
#define COMM_TEST_RANKS_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/local/local.h"
#include "kernels/cpu/cpu_backend.h"

namespace comm {

inline void RunRanks(int size, const std::function<void(Communicator&, kernels::Queue&)>& body,
                     absl::Duration timeout = absl::Seconds(30)) {
  const std::shared_ptr<LocalGroup> group = LocalGroup::Create(size, timeout);
  // All join first: a rank that ends early must count as gone, not as not yet there.
  std::vector<std::unique_ptr<Communicator>> ends;
  for (int rank = 0; rank < size; ++rank) ends.push_back(group->Join(rank));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Communicator> comm = std::move(ends[rank]);
      const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
      body(*comm, *queue);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace comm

#endif  // COMM_TEST_RANKS_H_
