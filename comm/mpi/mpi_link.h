// This process among the ranks of the mpi backend: the thread that owns MPI, the one that watches
// it, and what they and the caller tell one another. See mpi.h.
#ifndef COMM_MPI_MPI_LINK_H_
#define COMM_MPI_MPI_LINK_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/flight_record.h"
#include "comm/mpi/mpi_engine.h"
#include "comm/process_rank.h"
#include "comm/rendezvous.h"
#include "comm/watchdog.h"

namespace comm {

// Shared by its owner and the thread of MPI, which may hang there when another rank dies while
// MPI starts or ends.
class MpiLink {
 public:
  static absl::StatusOr<std::shared_ptr<MpiLink>> Connect(const ProcessRank& where,
                                                          absl::Duration timeout,
                                                          FailureListener on_failure);
  // The last call, once: waits until all ranks are here, and ends MPI. After a failure MPI is left
  // as it is.
  void Close();

  int rank() const { return where_.rank; }
  int size() const { return where_.size; }

  // The operation's `number` is set here.
  void Launch(std::shared_ptr<MpiOperation> operation, int64_t bytes);
  // Returns when it has ended. After an error nothing touches its memory any more.
  absl::Status Wait(const MpiOperation& operation);
  // Tells the others, and returns when that is done.
  void Abort(const absl::Status& reason);

  // At least `bytes`, of an operation that has ended if there is a fitting one.
  std::unique_ptr<std::vector<char>> Scratch(int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    std::shared_ptr<MpiOperation> operation;
    Clock::time_point since;
  };

  MpiLink(const ProcessRank& where, absl::Duration timeout, FailureListener on_failure,
          std::unique_ptr<Rendezvous> rendezvous);

  absl::Status Start(const std::shared_ptr<MpiLink>& self);
  // The thread of MPI.
  void RunMpi();
  absl::Status ServeOperations();
  absl::Status Depart();
  // Starts what was launched; lets MPI work. Whether anything happened.
  absl::StatusOr<bool> Step();
  void Retire(const std::vector<std::shared_ptr<MpiOperation>>& ended);
  // The thread that watches.
  void Watch();
  absl::Status Inspect();
  absl::Status TimeoutOf(const Waiting& waiting) const;
  void Report(const absl::Status& reason);

  const ProcessRank where_;
  const std::chrono::nanoseconds timeout_;
  const FailureListener on_failure_;  // may be empty
  const std::unique_ptr<Rendezvous> rendezvous_;
  FlightRecord record_;
  MpiEngine engine_;  // of the thread of MPI

  std::mutex mutex_;
  std::condition_variable changed_;   // something for the caller or the watching thread
  std::condition_variable launched_;  // something for the thread of MPI
  std::deque<std::shared_ptr<MpiOperation>> to_start_;
  std::deque<Waiting> pending_;  // launched and not ended
  std::vector<std::unique_ptr<std::vector<char>>> free_scratch_;
  bool connected_ = false;
  bool leaving_ = false;    // the caller has no more collectives
  bool mpi_ended_ = false;  // its thread makes no more calls
  bool aborted_ = false;    // by this rank's own caller
  absl::Status cause_;      // why the collectives end; MPI is not called again once it is set
  absl::Status failure_;    // cause_ for the caller, with all ranks' progress
  std::thread mpi_thread_;
  std::thread watcher_;
};

}  // namespace comm

#endif  // COMM_MPI_MPI_LINK_H_
