// What one rank's collectives have come to, for the day when they do not end.
//
//   FlightRecord record(rank);                              // one for each rank, for its life
//   const int64_t number = record.Start(DescribeCall("all_reduce", label, x, "sum"), x.bytes());
//   ...                                                     // when the data has moved:
//   record.Finish(number);
//
// After a failure the ranks' Progress is brought together (progress_exchange.h between processes,
// by reading the records between threads), and ReportText() says which rank differs.
#ifndef COMM_FLIGHT_RECORD_H_
#define COMM_FLIGHT_RECORD_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/tensor.h"

namespace comm {

// "all_reduce(loss, f32 x 3, sum)": what all ranks have to agree on. `x` is the input; `detail`,
// which may be empty, is the reduce op or the root.
std::string DescribeCall(absl::string_view name, absl::string_view label, const kernels::Tensor& x,
                         absl::string_view detail);
// "all_to_all_rows(embed, rows of f32 x 768)": the counts are each rank's own.
std::string DescribeRows(absl::string_view label, const kernels::Tensor& x);

// Aborted unless the rows that `from` sends to `to` in collective `number`, `call`, are as many as
// `to` expects.
absl::Status CompareCounts(int64_t number, absl::string_view call, int from, int64_t sent, int to,
                           int64_t expected);

struct RecordedCall {
  int64_t number = 0;  // of this rank's collectives, from 0
  int64_t bytes = 0;
  std::string call;             // cut to 160 bytes
  absl::Duration started_ago;   // at the time of the Progress
  absl::Duration finished_ago;  // only if finished
  bool finished = false;
};

// A rank's collectives at one time.
struct Progress {
  int rank = 0;
  int64_t started = 0;  // how many were ever started
  // Ascending by number: the latest ones, and the oldest that is unfinished.
  std::vector<RecordedCall> calls;

  // Null: there is none.
  const RecordedCall* LastStarted() const;
  const RecordedCall* LastFinished() const;  // the highest number
  const RecordedCall* OldestUnfinished() const;
  const RecordedCall* Find(int64_t number) const;
};

// Safe from any thread.
class FlightRecord {
 public:
  explicit FlightRecord(int rank) : rank_(rank) {}

  // Called in the order of the rank's collectives. Returns the number, which counts from 0.
  int64_t Start(std::string call, int64_t bytes);
  // Once for each number, in any order (CHECK). Of a collective that failed: not at all.
  void Finish(int64_t number);

  int rank() const { return rank_; }
  Progress Now() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::string call;
    int64_t bytes = 0;
    Clock::time_point started;
    std::optional<Clock::time_point> finished;
  };

  const int rank_;
  mutable std::mutex mutex_;
  int64_t first_ = 0;           // number of the first entry
  int64_t last_finished_ = -1;  // the highest number
  std::deque<Entry> entries_;   // all unfinished, the one that finished last, and the latest
};

// At most 7 KiB of text, of all bytes but NUL.
std::string Serialize(const Progress& progress);
// InvalidArgument if it is no such text.
absl::StatusOr<Progress> ParseProgress(absl::string_view text);

// What is known of a rank after a failure.
struct RankState {
  enum Kind : uint8_t {
    kHere,     // `progress` is its own
    kLeft,     // ended in good order
    kLost,     // its process ended without a word
    kSilent,   // connected, but did not answer in time: its process is stopped
    kUnknown,  // nobody could be asked
  };
  Kind kind = kUnknown;
  Progress progress;
};

// By rank. Several lines, each indented by two blanks and ended: of each rank the collective that
// it started last and the one that it finished last; then what differs: ranks that are lost or do
// not answer, a collective for which ranks made different calls, ranks that are behind.
std::string ReportText(const std::vector<RankState>& ranks);

}  // namespace comm

#endif  // COMM_FLIGHT_RECORD_H_
