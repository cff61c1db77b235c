// One NCCL communicator, its stream, and the thread that watches it. See nccl.h.
#ifndef COMM_NCCL_NCCL_LINK_H_
#define COMM_NCCL_NCCL_LINK_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/nccl/nccl_api.h"
#include "comm/process_rank.h"
#include "comm/rendezvous.h"

namespace comm {

// A CUDA event.
class Event {
 public:
  Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();
  cudaEvent_t get() const { return event_; }
  bool Done() const;

 private:
  cudaEvent_t event_ = nullptr;
};

// A collective on its way. `begin` and `end` lie on the communicator's stream.
struct Operation {
  std::string call;    // "all_reduce(loss, f32 x 1, sum)"
  int64_t number = 0;  // of this rank's collectives
  Event begin, end;
  // When its turn came: inputs there, and all before it done.
  std::optional<std::chrono::steady_clock::time_point> turn;
};

class NcclLink {
 public:
  static absl::StatusOr<std::unique_ptr<NcclLink>> Connect(const NcclApi& api,
                                                           const ProcessRank& where, int device,
                                                           absl::Duration timeout);
  // Waits until all is done, or failed.
  ~NcclLink();

  const NcclApi& api() const { return api_; }
  int rank() const { return where_.rank; }
  int size() const { return where_.size; }

  // Enqueues a collective behind `after`'s work so far. The Status is failure()'s, or the reason
  // why it could not be enqueued, which ends the link.
  using Enqueue = std::function<ncclResult_t(ncclComm_t comm, cudaStream_t stream)>;
  absl::StatusOr<std::shared_ptr<Operation>> Launch(std::string call,
                                                    std::optional<cudaStream_t> after,
                                                    const Enqueue& enqueue);
  // Returns when it has ended.
  absl::Status WaitOnHost(const Operation& operation);
  // Why the link has ended; OK while it has not.
  absl::Status failure();
  void Abort(const absl::Status& reason);

 private:
  NcclLink(const NcclApi& api, const ProcessRank& where, int device, absl::Duration timeout);

  absl::Status Init();
  absl::Status CheckDevices();
  // Enqueues under the lock and waits until NCCL has taken it.
  absl::Status Submit(const std::string& call, const Enqueue& enqueue);
  void Watch();
  // The first thing that is wrong. Takes finished operations off the list.
  absl::Status Inspect();
  // Sets failure_, tells the others the reason, and stops what runs. The lock is free while NCCL
  // stops.
  void Fail(std::unique_lock<std::mutex>& lock, const absl::Status& status,
            const absl::Status& reason);
  absl::Status NcclError(absl::string_view what, ncclResult_t result) const;

  const NcclApi& api_;
  const ProcessRank where_;
  const int device_;
  const std::chrono::nanoseconds timeout_;
  std::unique_ptr<Rendezvous> rendezvous_;
  cudaStream_t stream_ = nullptr;
  Event inputs_;  // the caller's work before a collective
  int64_t launched_ = 0;

  // NCCL is called with the lock held only, but for ncclCommAbort: it comes after comm_ was
  // cleared, so that no other call can be under way. No call that may wait for the GPU is made
  // with the lock held, since the thread that ends such a wait needs it.
  std::mutex mutex_;
  std::condition_variable changed_;
  ncclComm_t comm_ = nullptr;  // null once failed
  absl::Status failure_;
  std::deque<std::shared_ptr<Operation>> pending_;
  bool stop_ = false;
  std::thread watcher_;
};

}  // namespace comm

#endif  // COMM_NCCL_NCCL_LINK_H_
