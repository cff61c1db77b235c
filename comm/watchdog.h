// The last resort after a failure of the collectives: a rank that does not come back, because it
// is stuck somewhere else, must not keep its process alive.
#ifndef COMM_WATCHDOG_H_
#define COMM_WATCHDOG_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace comm {

// What a communicator calls when its collectives have failed, from any thread and possibly under a
// lock of its own; more than once if more becomes known. It does not call the communicator.
using FailureListener = std::function<void(const absl::Status& status)>;

// How long ranks have to come back by themselves. Ends a process within 10 s of the failure.
constexpr absl::Duration kComeBackWithin = absl::Seconds(8);

class Watchdog {
 public:
  using End = std::function<void(const std::string& message)>;

  // Prints "PROGRAM: MESSAGE" on stderr and ends the process with code 2, without destructors: they
  // would wait for the rank that is stuck.
  static void EndProcess(const std::string& message);

  // `end` is called from a thread of its own if the watchdog still exists `grace` after the first
  // Failed(), with the latest status' message and a line that says why.
  explicit Watchdog(absl::Duration grace = kComeBackWithin, End end = EndProcess);
  ~Watchdog();  // all ranks are back

  void Failed(const absl::Status& status);

 private:
  void Wait();

  const absl::Duration grace_;
  const End end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace comm

#endif  // COMM_WATCHDOG_H_
