#include "comm/watchdog.h"

#include <errno.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

namespace comm {

void Watchdog::EndProcess(const std::string& message) {
  const std::string text = absl::StrCat(program_invocation_short_name, ": ", message, "\n");
  // Not through stdio, whose lock the rank that is stuck may hold.
  for (size_t written = 0; written < text.size();) {
    const ssize_t n = write(STDERR_FILENO, text.data() + written, text.size() - written);
    if (n <= 0 && errno != EINTR) break;
    if (n > 0) written += static_cast<size_t>(n);
  }
  _exit(2);
}

Watchdog::Watchdog(absl::Duration grace, End end)
    : grace_(grace), end_(std::move(end)), thread_([this] { Wait(); }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::Failed(const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failure_ = status;
  }
  changed_.notify_all();
}

void Watchdog::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return stop_ || !failure_.ok(); });
  if (changed_.wait_for(lock, absl::ToChronoNanoseconds(grace_), [&] { return stop_; })) return;
  const std::string message =
      absl::StrCat(failure_.message(), "\n  a rank of this process did not come back within ",
                   absl::FormatDuration(grace_), ": it is stuck outside of the collectives; ended");
  lock.unlock();
  end_(message);
}

}  // namespace comm
