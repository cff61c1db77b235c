// Collectives over NCCL: one rank, that is one GPU, per process.
//
//   ABSL_ASSIGN_OR_RETURN(const ProcessRank where, GetProcessRank());
//   ABSL_ASSIGN_OR_RETURN(const int device, DeviceOfRank(where));
//   ABSL_ASSIGN_OR_RETURN(auto comm, MakeNccl(where, device, absl::Minutes(10)));
//
// A collective runs on the communicator's own stream, which waits for the caller's; Wait() makes
// the queue's stream wait for its end. The host waits in Barrier() only, and for host tensors.
//
// How a fault ends. A thread watches the oldest unfinished collective, NCCL's own errors, and the
// connections among the processes. When a rank is lost or gave up (Unavailable), or a collective
// has not ended `timeout` after its turn came (DeadlineExceeded), it stops NCCL, so that what
// waits on the stream goes on, with undefined data; all Wait(), Barrier() and later collectives
// of this rank then fail with that Status, whose message goes on with a report of how far each
// rank is (flight_record.h). A wrong order or size of calls shows as a timeout or as an error of
// NCCL; the report names both sides, and comm/checking.h finds it before the call.
//
// NCCL reads its own variables (NCCL_NVLS_ENABLE, NCCL_DEBUG, NCCL_SOCKET_IFNAME, ...): nothing
// here sets or overrides one. NCCL_COMM_ID=host:port, which has to be the same on all ranks, is
// where NCCL's own start meets, and ours too if ranks are on several hosts and MASTER_ADDR is not
// set.
//
// Sums of bf16 are NCCL's: with more than two ranks they may be rounded at each step, where other
// backends round once. kAvg is for f32 (CHECK): NCCL would round 1 / size to bf16 first. Not for
// stream capture (CHECK): the watching thread would not see what a graph runs.
#ifndef COMM_NCCL_NCCL_H_
#define COMM_NCCL_NCCL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/process_rank.h"
#include "comm/watchdog.h"

namespace comm {

// The device on which this rank runs: the one of its local rank, or the only one that the
// process sees. FailedPrecondition if there is none of that number, with both numbers. Device 0,
// unseen, if it is the only rank: it may want none.
absl::StatusOr<int> DeviceOfRank(const ProcessRank& where);

// Returns when all ranks are connected; the calling thread's device is `device` then. Queues have
// to be on it (FailedPrecondition on a CPU's), and no Future may outlive the communicator. With one
// rank neither NCCL nor other processes are asked (see comm/alone.h).
//
// Fails like LoadNccl() and Rendezvous::Meet(), with FailedPrecondition if two ranks have the same
// GPU (naming both), and with what NCCL says, within about `timeout`.
//
// `on_failure`, which may be empty, is told a failure at once, and again with its report. A warning
// on stderr, of one rank of a host that has several, says when /dev/shm is small.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNccl(const ProcessRank& where, int device,
                                                       absl::Duration timeout,
                                                       FailureListener on_failure = {});

}  // namespace comm

#endif  // COMM_NCCL_NCCL_H_
