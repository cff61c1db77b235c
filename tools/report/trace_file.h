// The traced steps of a file that track1, track2 or bench_step wrote with --trace.
#ifndef TOOLS_REPORT_TRACE_FILE_H_
#define TOOLS_REPORT_TRACE_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

// Times in ms since the first rank began the step.
struct TimeSpan {
  double begin_ms = 0;
  double end_ms = 0;
  double length_ms() const { return end_ms - begin_ms; }
};

// A part of the step as the host sees it: "forward+backward".
struct HostPhase {
  std::string name;
  TimeSpan span;
};

// Ops of one kind after each other on the device: "gemm".
struct OpRun {
  std::string kind;
  TimeSpan span;
  int64_t ops = 0;
};

struct CollectiveTimeline {
  std::string name;   // "reduce_scatter"
  std::string label;  // what the data is
  double bytes = 0;
  TimeSpan span;
  double exposed_ms = 0;                // the queue stood still for it
  std::map<std::string, double> under;  // ms in which ops of that kind ran meanwhile
};

struct RankTimeline {
  int rank = 0;
  TimeSpan span;
  std::vector<HostPhase> host;
  std::vector<OpRun> ops;
  std::vector<CollectiveTimeline> collectives;  // by begin
  std::map<std::string, double> op_ms;          // of all ops of a kind
};

struct StepTimeline {
  int64_t step = 0;
  std::vector<RankTimeline> ranks;
};

struct TraceFile {
  std::string name;
  std::string path;
  std::string about;                // record, preset, device and ranks, as far as the file says
  std::vector<StepTimeline> steps;  // ascending
  std::vector<std::string> notes;
};

// Mean over the file's steps of one rank.
struct RankPhases {
  int rank = 0;
  double step_ms = 0;
  std::map<std::string, double> op_ms;
  double exposed_ms = 0;  // of collectives
  double idle_ms = 0;     // the rest of the step: the device had nothing to do
};

// DataLoss, with `path`, for a file that is cut off or without traced steps; InvalidArgument for
// events that lack a field.
absl::StatusOr<TraceFile> ParseTrace(absl::string_view path, absl::string_view text);

std::vector<RankPhases> MeanPhases(const TraceFile& trace);

}  // namespace tools

#endif  // TOOLS_REPORT_TRACE_FILE_H_
