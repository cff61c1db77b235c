// Collectives over Open MPI: one rank per process, started by its mpirun; tensors and queues are
// the CPU's.
//
//   ABSL_ASSIGN_OR_RETURN(const ProcessRank where, GetProcessRank());
//   ABSL_ASSIGN_OR_RETURN(auto comm, MakeMpi(where, absl::Minutes(10)));
//
// The data moves by Open MPI's nonblocking collectives, driven by a thread that makes all of the
// process's calls of MPI (MPI_THREAD_FUNNELED), so it moves while the ranks compute and no caller
// is ever inside of MPI. Sums are not MPI's, which adds along trees of its own and would round bf16
// at each node: the parts are exchanged (MPI_Ialltoall) and added in rank order in f32, rounded
// once, the same bits as comm/local. An all-reduce scatters sums so and gathers them.
//
// How a fault ends. The processes are also connected as rendezvous.h says, and a second thread
// watches these connections and the oldest unfinished collective. When a rank is lost or gave up
// (Unavailable), MPI fails (Unavailable), or a collective has not ended `timeout` after its turn
// came (DeadlineExceeded), MPI is not called again, and all unfinished and later calls fail with
// that Status, whose further lines say how far each rank is (flight_record.h). Nothing touches the
// callers' tensors then. The process cannot use MPI again and should end: MPI_Finalize would wait
// for the lost rank. mpirun's own way with a lost rank is to end the others one second later (Open
// MPI 5: a quarter of a second), so they have that long for their last words; README.md has the
// options with which it leaves them alone.
//
// A wrong order or size of calls shows as an error of MPI, as a timeout, or not at all:
// comm/checking.h names it.
#ifndef COMM_MPI_MPI_H_
#define COMM_MPI_MPI_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/process_rank.h"
#include "comm/watchdog.h"

namespace comm {

// What one call of MPI moves of each rank at most; larger tensors take several. Rows that go to all
// ranks go in one call, of at most 2^31 rows.
inline constexpr int64_t kMpiPieceBytes = int64_t{1} << 30;

// Returns when all ranks are connected. At most one communicator of several ranks in the life of a
// process; it is destroyed before main() ends, which waits for the other ranks to do the same.
// No Future may outlive it. With one rank MPI is not started (see comm/alone.h), and a queue of any
// device will do; with several, a collective on a GPU's queue fails with FailedPrecondition.
//
// Fails like Rendezvous::Meet(), with FailedPrecondition if MPI was started before or knows other
// ranks than `where` (a launcher that is not Open MPI's), and with DeadlineExceeded if MPI does not
// connect the ranks within `timeout`. `on_failure`, which may be empty, is told a failure at once
// and again with its report. `piece_bytes` is for tests.
absl::StatusOr<std::unique_ptr<Communicator>> MakeMpi(const ProcessRank& where,
                                                      absl::Duration timeout,
                                                      FailureListener on_failure = {},
                                                      int64_t piece_bytes = kMpiPieceBytes);

}  // namespace comm

#endif  // COMM_MPI_MPI_H_
