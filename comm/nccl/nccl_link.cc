#include "comm/nccl/nccl_link.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "comm/progress_exchange.h"
#include "kernels/cuda/cuda_queue.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace comm {
namespace {

using Clock = std::chrono::steady_clock;

// How often the watching thread looks. An abort comes so much later than it could.
constexpr std::chrono::milliseconds kWatchEvery(20);
// While the host waits for a collective, or NCCL's own thread for its launch.
constexpr std::chrono::microseconds kPollEvery(20);
// For the others to finish with a communicator that this rank has finished with.
constexpr std::chrono::seconds kFinalizePatience(10);

// The user's choice of where NCCL's ranks meet; NCCL reads it itself.
constexpr char kCommId[] = "NCCL_COMM_ID";

std::string HostName() {
  char name[256] = {};
  CHECK_EQ(gethostname(name, sizeof(name) - 1), 0);
  return name;
}

std::string Uuid(int device) {
  cudaDeviceProp properties = {};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  std::string text;
  for (const char byte : properties.uuid.bytes) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(byte));
    text += hex;
  }
  return text;
}

}  // namespace

Event::Event() { CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
Event::~Event() { cudaEventDestroy(event_); }

bool Event::Done() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();  // it would look like the error of the next launch
    return false;
  }
  CUDA_CHECK(state);
  return true;
}

NcclLink::NcclLink(const NcclApi& api, const ProcessRank& where, int device, absl::Duration timeout,
                   FailureListener on_failure)
    : api_(api),
      where_(where),
      device_(device),
      timeout_(absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24 * 365)))),
      on_failure_(std::move(on_failure)),
      record_(where.rank) {
  // First in line for the multiprocessors: other ranks wait for what it sends.
  int lowest = 0, highest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest));
}

absl::StatusOr<std::unique_ptr<NcclLink>> NcclLink::Connect(const NcclApi& api,
                                                            const ProcessRank& where, int device,
                                                            absl::Duration timeout,
                                                            FailureListener on_failure) {
  ProcessRank meeting = where;
  // Rank 0 has let go of the port by the time that NCCL asks for it.
  const char* const comm_id = std::getenv(kCommId);
  if (meeting.rendezvous.empty() && !where.one_host() && comm_id != nullptr) {
    meeting.rendezvous = comm_id;
  }
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<Rendezvous> rendezvous, Rendezvous::Meet(meeting, timeout));
  std::unique_ptr<NcclLink> link(new NcclLink(api, where, device, timeout, std::move(on_failure)));
  link->rendezvous_ = std::move(rendezvous);
  const absl::Status status = link->Init();
  if (!status.ok()) {
    link->Abort(status);
    return status;
  }
  link->watcher_ = std::thread([raw = link.get()] { raw->Watch(); });
  return link;
}

absl::Status NcclLink::CheckDevices() {
  const char* const comm_id = std::getenv(kCommId);
  ABSL_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      rendezvous_->AllGather(absl::StrCat(HostName(), " ", Uuid(device_), " ", device_, " ",
                                          comm_id == nullptr ? "" : comm_id),
                             absl::FromChrono(timeout_)));
  for (size_t a = 0; a < all.size(); ++a) {
    for (size_t b = a + 1; b < all.size(); ++b) {
      const std::vector<std::string> one = absl::StrSplit(all[a], ' ');
      const std::vector<std::string> other = absl::StrSplit(all[b], ' ');
      if (one[3] != other[3]) {
        return absl::InvalidArgumentError(absl::StrCat(kCommId, " is \"", one[3], "\" on rank ", a,
                                                       " and \"", other[3], "\" on rank ", b,
                                                       "; set the same on all ranks, or on none"));
      }
      if (one[0] != other[0] || one[1] != other[1]) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("ranks ", a, " and ", b, " both use GPU ", one[1], " of host ", one[0],
                       " (device ", one[2], " of rank ", a, ", device ", other[2], " of rank ", b,
                       "); start at most one rank for each GPU"));
    }
  }
  return absl::OkStatus();
}

absl::Status NcclLink::Init() {
  const auto deadline = Clock::now() + timeout_;
  ABSL_RETURN_IF_ERROR(CheckDevices());
  ncclUniqueId id = {};
  std::string mine;
  if (rank() == 0) {
    const ncclResult_t result = api_.GetUniqueId(&id);
    if (result != ncclSuccess) return NcclError("start", result);
    mine.assign(id.internal, sizeof(id.internal));
  }
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                        rendezvous_->AllGather(mine, absl::FromChrono(timeout_)));
  CHECK_EQ(all[0].size(), sizeof(id.internal));
  std::memcpy(id.internal, all[0].data(), sizeof(id.internal));

  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // so that a lost rank cannot hold us inside of NCCL
  ncclResult_t result = api_.CommInitRankConfig(&comm_, size(), id, rank(), &config);
  while (result == ncclInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ABSL_RETURN_IF_ERROR(rendezvous_->Poll());
    if (Clock::now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "rank ", rank(), " of ", size(), ": NCCL did not connect the ranks within ",
          absl::FormatDuration(absl::FromChrono(timeout_)), "; NCCL_DEBUG=INFO tells more"));
    }
    const ncclResult_t asked = api_.CommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  return result == ncclSuccess ? absl::OkStatus() : NcclError("connecting the ranks", result);
}

NcclLink::~NcclLink() {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    // The watching thread bounds it.
    changed_.wait(lock, [&] { return pending_.empty() || !failure_.ok(); });
    // One that is about to fail is let finish: it uses what goes away here.
    if (failed_) Settled(lock).IgnoreError();
    stop_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  if (comm_ != nullptr) {
    const auto deadline = Clock::now() + kFinalizePatience;
    ncclResult_t result = api_.CommFinalize(comm_);
    while (result == ncclInProgress && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (api_.CommGetAsyncError(comm_, &result) != ncclSuccess) break;
    }
    result == ncclSuccess ? api_.CommDestroy(comm_) : api_.CommAbort(comm_);
  }
  cudaStreamDestroy(stream_);
}

absl::StatusOr<std::shared_ptr<Operation>> NcclLink::Launch(std::string call, int64_t bytes,
                                                            std::optional<cudaStream_t> after,
                                                            const Enqueue& enqueue) {
  ABSL_RETURN_IF_ERROR(failure());
  const auto operation = std::make_shared<Operation>();
  operation->call = std::move(call);
  operation->number = record_.Start(operation->call, bytes);
  if (after.has_value()) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    CUDA_CHECK(cudaStreamIsCapturing(*after, &capture));
    CHECK(capture == cudaStreamCaptureStatusNone) << operation->call << " in a graph";
    CUDA_CHECK(cudaEventRecord(inputs_.get(), *after));
    CUDA_CHECK(cudaStreamWaitEvent(stream_, inputs_.get(), 0));
  }
  CUDA_CHECK(cudaEventRecord(operation->begin.get(), stream_));
  ABSL_RETURN_IF_ERROR(Submit(operation->call, enqueue));
  CUDA_CHECK(cudaEventRecord(operation->end.get(), stream_));
  std::lock_guard<std::mutex> lock(mutex_);
  pending_.push_back(operation);
  return operation;
}

absl::Status NcclLink::Submit(const std::string& call, const Enqueue& enqueue) {
  const auto deadline = Clock::now() + timeout_;
  std::unique_lock<std::mutex> lock(mutex_);
  if (failed_) return Settled(lock);
  ncclResult_t result = enqueue(comm_, stream_);
  // A thread of NCCL's launches it; the first of a kind connects the ranks before.
  while (result == ncclInProgress) {
    const ncclResult_t asked = api_.CommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) result = asked;
    if (result != ncclInProgress) break;
    lock.unlock();
    std::this_thread::sleep_for(kPollEvery);
    lock.lock();
    if (failed_) return Settled(lock);
    if (Clock::now() > deadline) {
      const absl::Status status = absl::DeadlineExceededError(
          absl::StrCat("rank ", rank(), " of ", size(), ": NCCL did not start ", call, " within ",
                       absl::FormatDuration(absl::FromChrono(timeout_)),
                       "; another rank is stuck or has not called it"));
      Fail(lock, status, status, kReportPatience);
      return Settled(lock);
    }
  }
  if (result != ncclSuccess) {
    const absl::Status status = NcclError(call, result);
    Fail(lock, status, status, kReportPatience);
  }
  return Settled(lock);
}

absl::Status NcclLink::WaitOnHost(const Operation& operation) {
  while (!operation.end.Done()) {
    ABSL_RETURN_IF_ERROR(failure());
    std::this_thread::sleep_for(kPollEvery);
  }
  // An abort ends the operation too. Else it is done, whatever has happened to another rank since.
  return aborted_ ? failure() : absl::OkStatus();
}

absl::Status NcclLink::failure() {
  std::unique_lock<std::mutex> lock(mutex_);
  return Settled(lock);
}

absl::Status NcclLink::Settled(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return !failed_ || !failure_.ok(); });
  return failure_;
}

void NcclLink::Abort(const absl::Status& reason) {
  std::unique_lock<std::mutex> lock(mutex_);
  // This rank knows why. Rank 0 has to stay for what the others want to know.
  Fail(lock, absl::UnavailableError(absl::StrCat("rank ", rank(), " gave up: ", reason.ToString())),
       reason, rank() == 0 ? kReportPatience : absl::ZeroDuration());
}

void NcclLink::Fail(std::unique_lock<std::mutex>& lock, const absl::Status& status,
                    const absl::Status& reason, absl::Duration patience) {
  if (std::exchange(failed_, true)) return;
  ncclComm_t comm = std::exchange(comm_, nullptr);
  lock.unlock();
  if (on_failure_) on_failure_(status);
  rendezvous_->GiveUp(reason);
  std::string report = CollectReport(*rendezvous_, record_, patience);
  report.pop_back();  // the last line's end
  const absl::Status full(status.code(), absl::StrCat(status.message(), "\n", report));
  if (on_failure_) on_failure_(full);
  // Before the others' threads of this process learn it: they may end the process.
  aborted_ = true;
  if (comm != nullptr) api_.CommAbort(comm);
  lock.lock();
  failure_ = full;
  changed_.notify_all();
}

void NcclLink::Watch() {
  CUDA_CHECK(cudaSetDevice(device_));
  // Else to query an event here would spoil a capture that another thread has begun.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  while (true) {
    const absl::Status status = Inspect();
    std::unique_lock<std::mutex> lock(mutex_);
    if (stop_ || failed_) return;
    if (!status.ok()) {
      Fail(lock, status, status, kReportPatience);
      return;
    }
    changed_.wait_for(lock, kWatchEvery, [&] { return stop_ || failed_; });
  }
}

absl::Status NcclLink::Inspect() {
  if (const absl::Status others = rendezvous_->Poll(); !others.ok()) {
    std::lock_guard<std::mutex> lock(mutex_);
    return absl::UnavailableError(
        absl::StrCat("rank ", rank(), " of ", size(), ": ", others.message(),
                     pending_.empty() ? ""
                                      : absl::StrCat(", in collective ", pending_.front()->number,
                                                     ", ", pending_.front()->call)));
  }
  std::shared_ptr<Operation> oldest;
  while (true) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (failed_) return absl::OkStatus();
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = api_.CommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) result = asked;
    if (result != ncclSuccess && result != ncclInProgress) {
      return NcclError(pending_.empty() ? "between collectives" : pending_.front()->call, result);
    }
    if (pending_.empty()) {
      changed_.notify_all();
      return absl::OkStatus();
    }
    oldest = pending_.front();
    lock.unlock();
    if (!oldest->end.Done()) break;
    record_.Finish(oldest->number);
    lock.lock();
    pending_.pop_front();
  }
  if (!oldest->turn.has_value() && oldest->begin.Done()) oldest->turn = Clock::now();
  if (!oldest->turn.has_value() || Clock::now() - *oldest->turn < timeout_) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      "rank ", rank(), " of ", size(), ": collective ", oldest->number, ", ", oldest->call,
      ", has not ended after ", absl::FormatDuration(absl::FromChrono(timeout_)),
      "; another rank is stuck, has not called it, or is slower than --comm_timeout"));
}

absl::Status NcclLink::NcclError(absl::string_view what, ncclResult_t result) const {
  const char* detail = api_.GetLastError(nullptr);
  return absl::UnavailableError(
      absl::StrCat("rank ", rank(), " of ", size(), ": NCCL failed on ", HostName(), " in ", what,
                   ": ", api_.GetErrorString(result),
                   detail && *detail ? absl::StrCat(" (", detail, ")") : std::string()));
}

}  // namespace comm
