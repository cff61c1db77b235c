// Ranks as threads of this process. Reductions add the ranks in rank order, in f32, so the
// same inputs give the same bits every time.
//
// Queues are the CPU's. With one rank a queue of any device will do (see alone.h); with several,
// a collective on such a queue fails with FailedPrecondition.
//
//   auto group = comm::LocalGroup::Create(4, absl::Seconds(60));
//   std::thread([&] { auto comm = group->Join(2); ... });   // one Join per rank and thread
#ifndef COMM_LOCAL_LOCAL_H_
#define COMM_LOCAL_LOCAL_H_

#include <memory>

#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/watchdog.h"

namespace comm {

class LocalGroup {
 public:
  // `timeout`: how long a rank waits in Wait() or Barrier() for the others before the call
  // fails with DeadlineExceeded, naming the collective and the ranks that have not called it.
  // A failure of that kind, or of a lost rank, says in several lines how far each rank is (see
  // flight_record.h); all ranks get the same. `on_failure` is told each failure; it may be empty.
  static std::shared_ptr<LocalGroup> Create(int size, absl::Duration timeout,
                                            FailureListener on_failure = {});
  virtual ~LocalGroup() = default;
  // The end of one rank. A Communicator that is destroyed while others still wait for it counts
  // as a lost rank (Unavailable).
  virtual std::unique_ptr<Communicator> Join(int rank) = 0;
};

}  // namespace comm

#endif  // COMM_LOCAL_LOCAL_H_
