// What the ranks of a run did and when, and its form as a trace for Perfetto or Chrome.
//
//   RunTrace trace({.steps = 3});
//   ... Train(config, log, when_done, &trace) ...
//   ABSL_RETURN_IF_ERROR(trace.Write("trace.json"));
#ifndef TOOLS_TRAINER_RUN_TRACE_H_
#define TOOLS_TRAINER_RUN_TRACE_H_

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/trainer/traced_step.h"

namespace tools {

struct TraceWindow {
  int64_t skip = 1;   // steps that a process trains before the first traced one
  int64_t steps = 3;  // that are traced
};

// Thread-safe.
class RunTrace {
 public:
  explicit RunTrace(const TraceWindow& window) : window_(window) {}

  // `done`: steps that this process has trained so far.
  bool Covers(int64_t done) const {
    return done >= window_.skip && done < window_.skip + window_.steps;
  }
  double Now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  void SetFacts(RunFacts facts);
  void Add(int rank, HostSpan span);
  void Add(TracedStep step);

  std::vector<TracedStep> steps() const;  // in the order of their ends
  RunFacts facts() const;
  // The JSON object format of Chrome's trace viewer. Each rank is a process with two threads, its
  // host's phases and its device's ops, and its collectives as asynchronous spans beside them.
  // Under "otherData" what comm_times.h and step_phases.h make of it.
  std::string ToJson() const;
  absl::Status Write(const std::string& path) const;

 private:
  struct RankSpan {
    int rank;
    HostSpan span;
  };

  const TraceWindow window_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::vector<RankSpan> host_;     // guarded by mutex_
  std::vector<TracedStep> steps_;  // guarded by mutex_
  RunFacts facts_;                 // guarded by mutex_
};

}  // namespace tools

#endif  // TOOLS_TRAINER_RUN_TRACE_H_
