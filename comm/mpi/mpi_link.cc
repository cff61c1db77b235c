#include "comm/mpi/mpi_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/progress_exchange.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace comm {
namespace {

// How often the watching thread looks. An end comes so much later than it could.
constexpr std::chrono::milliseconds kWatchEvery(20);
// While MPI has something to do its thread asks again and again, first giving way to threads that
// compute, then asleep in between.
constexpr int kEagerTries = 200;
constexpr std::chrono::microseconds kTryEvery(50);
// For a call of MPI that is under way when the link fails. They return at once, but for those
// that wait for all ranks when MPI starts and ends.
constexpr std::chrono::seconds kCallPatience(2);

}  // namespace

MpiLink::MpiLink(const ProcessRank& where, absl::Duration timeout, FailureListener on_failure,
                 std::unique_ptr<Rendezvous> rendezvous)
    : where_(where),
      timeout_(absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24 * 365)))),
      on_failure_(std::move(on_failure)),
      rendezvous_(std::move(rendezvous)),
      record_(where.rank) {}

absl::StatusOr<std::shared_ptr<MpiLink>> MpiLink::Connect(const ProcessRank& where,
                                                          absl::Duration timeout,
                                                          FailureListener on_failure) {
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<Rendezvous> rendezvous, Rendezvous::Meet(where, timeout));
  std::shared_ptr<MpiLink> link(
      new MpiLink(where, timeout, std::move(on_failure), std::move(rendezvous)));
  const absl::Status started = link->Start(link);
  if (!started.ok()) {
    link->Close();
    return started;
  }
  return link;
}

absl::Status MpiLink::Start(const std::shared_ptr<MpiLink>& self) {
  mpi_thread_ = std::thread([self] { self->RunMpi(); });
  watcher_ = std::thread([this] { Watch(); });
  std::unique_lock<std::mutex> lock(mutex_);
  const auto settled = [&] { return connected_ || !failure_.ok(); };
  if (!changed_.wait_for(lock, timeout_, settled)) {
    if (cause_.ok()) {
      cause_ = absl::DeadlineExceededError(
          absl::StrCat("rank ", rank(), " of ", size(), ": MPI did not connect the ranks within ",
                       absl::FormatDuration(absl::FromChrono(timeout_))));
    }
    changed_.notify_all();
    changed_.wait(lock, settled);
  }
  return failure_;
}

void MpiLink::Close() {
  std::unique_lock<std::mutex> lock(mutex_);
  leaving_ = true;
  launched_.notify_all();
  changed_.wait(lock, [&] { return mpi_ended_ || !failure_.ok(); });
  // While MPI starts its thread may wait for a rank that is lost.
  const bool ended =
      connected_ ? changed_.wait_for(lock, kCallPatience, [&] { return mpi_ended_; }) : mpi_ended_;
  lock.unlock();
  watcher_.join();
  ended ? mpi_thread_.join() : mpi_thread_.detach();
}

std::unique_ptr<std::vector<char>> MpiLink::Scratch(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto best = free_scratch_.end();
  for (auto it = free_scratch_.begin(); it != free_scratch_.end(); ++it) {
    const bool fits = static_cast<int64_t>((*it)->size()) >= bytes;
    if (fits && (best == free_scratch_.end() || (*it)->size() < (*best)->size())) best = it;
  }
  if (best == free_scratch_.end()) return std::make_unique<std::vector<char>>(bytes);
  std::unique_ptr<std::vector<char>> scratch = std::move(*best);
  free_scratch_.erase(best);
  return scratch;
}

void MpiLink::Launch(std::shared_ptr<MpiOperation> operation, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  operation->number = record_.Start(operation->call, bytes);
  pending_.push_back({.operation = operation, .since = Clock::now()});
  to_start_.push_back(std::move(operation));
  launched_.notify_all();
}

absl::Status MpiLink::Wait(const MpiOperation& operation) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto ended = [&] {
    return std::none_of(pending_.begin(), pending_.end(), [&](const Waiting& waiting) {
      return waiting.operation.get() == &operation;
    });
  };
  changed_.wait(lock, [&] { return ended() || !failure_.ok(); });
  if (ended()) return absl::OkStatus();
  changed_.wait_for(lock, kCallPatience, [&] { return mpi_ended_; });
  return failure_;
}

void MpiLink::Abort(const absl::Status& reason) {
  CHECK(!reason.ok());
  std::unique_lock<std::mutex> lock(mutex_);
  if (cause_.ok()) {
    aborted_ = true;
    cause_ = reason;
  }
  changed_.notify_all();
  launched_.notify_all();
  changed_.wait(lock, [&] { return !failure_.ok(); });
}

void MpiLink::RunMpi() {
  absl::Status status = engine_.Init(where_);
  if (status.ok()) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      connected_ = true;
      changed_.notify_all();
    }
    status = ServeOperations();
    if (status.ok()) status = Depart();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (cause_.ok()) cause_ = status;
  mpi_ended_ = true;
  changed_.notify_all();
}

// Until the caller leaves and all is done, or the link fails.
absl::Status MpiLink::ServeOperations() {
  int tries = 0;
  while (true) {
    ABSL_ASSIGN_OR_RETURN(const bool happened, Step());
    std::unique_lock<std::mutex> lock(mutex_);
    if (!cause_.ok()) return absl::OkStatus();
    if (!to_start_.empty()) continue;
    if (engine_.idle()) {
      if (leaving_) return absl::OkStatus();
      launched_.wait(lock, [&] { return !to_start_.empty() || leaving_ || !cause_.ok(); });
      tries = 0;
      continue;
    }
    tries = happened ? 0 : tries + 1;
    if (tries > kEagerTries) {
      launched_.wait_for(lock, kTryEvery, [&] { return !to_start_.empty() || !cause_.ok(); });
    } else {
      lock.unlock();
      std::this_thread::yield();
    }
  }
}

absl::StatusOr<bool> MpiLink::Step() {
  std::deque<std::shared_ptr<MpiOperation>> starting;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    starting.swap(to_start_);
  }
  for (std::shared_ptr<MpiOperation>& operation : starting) {
    ABSL_RETURN_IF_ERROR(engine_.Start(std::move(operation)));
  }
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<MpiOperation>> ended, engine_.Progress());
  if (!ended.empty()) Retire(ended);
  return !starting.empty() || !ended.empty();
}

void MpiLink::Retire(const std::vector<std::shared_ptr<MpiOperation>>& ended) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const std::shared_ptr<MpiOperation>& operation : ended) {
    record_.Finish(operation->number);
    const auto it = std::find_if(pending_.begin(), pending_.end(), [&](const Waiting& waiting) {
      return waiting.operation == operation;
    });
    CHECK(it != pending_.end()) << operation->call;
    // Its turn has come only now if those before it have just ended.
    if (it == pending_.begin() && pending_.size() > 1) pending_[1].since = Clock::now();
    pending_.erase(it);
    for (std::unique_ptr<std::vector<char>>& scratch : operation->scratch) {
      free_scratch_.push_back(std::move(scratch));
    }
    operation->scratch.clear();
  }
  changed_.notify_all();
}

// MPI_Finalize waits for all ranks, and for ever if one has died. So they meet before, in a way
// that can be watched.
absl::Status MpiLink::Depart() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!cause_.ok()) return absl::OkStatus();
  }
  const auto farewell = std::make_shared<MpiOperation>();
  farewell->call = "the end of all ranks";
  farewell->first = Barrier();
  Launch(farewell, 0);
  ABSL_RETURN_IF_ERROR(ServeOperations());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!cause_.ok()) return absl::OkStatus();
  }
  return engine_.Finalize();
}

void MpiLink::Watch() {
  while (true) {
    const absl::Status status = Inspect();
    std::unique_lock<std::mutex> lock(mutex_);
    if (cause_.ok()) cause_ = status;
    if (!cause_.ok()) break;
    if (mpi_ended_) return;
    changed_.wait_for(lock, kWatchEvery, [&] { return mpi_ended_ || !cause_.ok(); });
  }
  launched_.notify_all();
  Report(cause_);  // nobody changes it any more
}

absl::Status MpiLink::Inspect() {
  if (const absl::Status others = rendezvous_->Poll(); !others.ok()) {
    return absl::UnavailableError(
        absl::StrCat("rank ", rank(), " of ", size(), ": ", others.message()));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (pending_.empty() || Clock::now() - pending_.front().since < timeout_) {
    return absl::OkStatus();
  }
  return TimeoutOf(pending_.front());
}

absl::Status MpiLink::TimeoutOf(const Waiting& waiting) const {
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", rank(), " of ", size(), ": collective ", waiting.operation->number,
                   ", ", waiting.operation->call, ", has not ended after ",
                   absl::FormatDuration(absl::FromChrono(timeout_)),
                   "; another rank is stuck, has not called it, or is slower than --comm_timeout"));
}

// Tells the others, and learns from them how far each is.
void MpiLink::Report(const absl::Status& reason) {
  absl::Status failure = reason;
  bool aborted = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    aborted = aborted_;
  }
  if (aborted) {
    failure =
        absl::UnavailableError(absl::StrCat("rank ", rank(), " gave up: ", reason.ToString()));
  }
  if (on_failure_) on_failure_(failure);
  rendezvous_->GiveUp(reason);
  // Who gives up has its own reason, and is not to wait; rank 0 collects for all.
  std::string report = CollectReport(
      *rendezvous_, record_, aborted && rank() != 0 ? absl::ZeroDuration() : kReportPatience);
  report.pop_back();  // the last line's end
  if (!aborted) {
    failure = absl::Status(failure.code(), absl::StrCat(failure.message(), "\n", report));
    if (on_failure_) on_failure_(failure);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  failure_ = failure;
  changed_.notify_all();
}

}  // namespace comm
