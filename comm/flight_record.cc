#include "comm/flight_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "third_party/absl_compat/check.h"

namespace comm {
namespace {

constexpr size_t kLongestCall = 160;
constexpr size_t kKept = 32;                  // finished calls that a record remembers
constexpr size_t kLongestProgress = 7 << 10;  // fits into a message of comm/socket.h
constexpr char kProgress[] = "progress-1";

}  // namespace

std::string DescribeCall(absl::string_view name, absl::string_view label, const kernels::Tensor& x,
                         absl::string_view detail) {
  return absl::StrCat(name, "(", label, ", ", kernels::Name(x.dtype()), " x ", x.size(),
                      detail.empty() ? "" : ", ", detail, ")");
}

std::string DescribeRows(absl::string_view label, const kernels::Tensor& x) {
  return absl::StrCat("all_to_all_rows(", label, ", rows of ", kernels::Name(x.dtype()), " x ",
                      x.size() / x.dim(0), ")");
}

absl::Status CompareCounts(int64_t number, absl::string_view call, int from, int64_t sent, int to,
                           int64_t expected) {
  if (sent == expected) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("ranks disagree in collective ", number, ", ", call,
                                         ": rank ", from, " sends ", sent, " rows to rank ", to,
                                         ", which expects ", expected));
}

const RecordedCall* Progress::LastStarted() const {
  return calls.empty() ? nullptr : &calls.back();
}

const RecordedCall* Progress::LastFinished() const {
  const auto last = std::find_if(calls.rbegin(), calls.rend(),
                                 [](const RecordedCall& call) { return call.finished; });
  return last == calls.rend() ? nullptr : &*last;
}

const RecordedCall* Progress::OldestUnfinished() const {
  const auto oldest = std::find_if(calls.begin(), calls.end(),
                                   [](const RecordedCall& call) { return !call.finished; });
  return oldest == calls.end() ? nullptr : &*oldest;
}

const RecordedCall* Progress::Find(int64_t number) const {
  const auto found = std::find_if(calls.begin(), calls.end(),
                                  [&](const RecordedCall& call) { return call.number == number; });
  return found == calls.end() ? nullptr : &*found;
}

int64_t FlightRecord::Start(std::string call, int64_t bytes) {
  // Lines part the calls of a serialised Progress.
  std::replace(call.begin(), call.end(), '\n', ' ');
  call.resize(std::min(call.size(), kLongestCall));
  std::lock_guard<std::mutex> lock(mutex_);
  while (entries_.size() >= kKept && entries_.front().finished.has_value() &&
         first_ < last_finished_) {
    entries_.pop_front();
    ++first_;
  }
  entries_.push_back(
      {.call = std::move(call), .bytes = bytes, .started = Clock::now(), .finished = {}});
  return first_ + static_cast<int64_t>(entries_.size()) - 1;
}

void FlightRecord::Finish(int64_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t index = number - first_;
  CHECK(index >= 0 && index < static_cast<int64_t>(entries_.size()))
      << "collective " << number << " was not started, or has finished long ago";
  CHECK(!entries_[index].finished.has_value()) << "collective " << number << " finished twice";
  entries_[index].finished = Clock::now();
  last_finished_ = std::max(last_finished_, number);
}

Progress FlightRecord::Now() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Clock::time_point now = Clock::now();
  Progress progress{.rank = rank_, .started = first_, .calls = {}};
  for (const Entry& entry : entries_) {
    progress.calls.push_back({.number = progress.started++,
                              .bytes = entry.bytes,
                              .call = entry.call,
                              .started_ago = absl::FromChrono(now - entry.started),
                              .finished_ago = absl::FromChrono(now - entry.finished.value_or(now)),
                              .finished = entry.finished.has_value()});
  }
  return progress;
}

std::string Serialize(const Progress& progress) {
  std::vector<std::string> lines;
  size_t bytes = 64;  // the first line
  const auto add = [&](const RecordedCall& call) {
    lines.push_back(absl::StrCat(
        call.number, " ", call.bytes, " ", absl::ToInt64Microseconds(call.started_ago), " ",
        call.finished ? absl::ToInt64Microseconds(call.finished_ago) : -1, " ", call.call, "\n"));
    bytes += lines.back().size();
  };
  // The oldest one that hangs says most, and then the latest ones.
  const RecordedCall* oldest = progress.OldestUnfinished();
  if (oldest != nullptr) add(*oldest);
  const RecordedCall* last_finished = progress.LastFinished();
  if (last_finished != nullptr) add(*last_finished);
  for (auto call = progress.calls.rbegin(); call != progress.calls.rend(); ++call) {
    if (bytes + kLongestCall + 64 > kLongestProgress) break;
    if (&*call != oldest && &*call != last_finished) add(*call);
  }
  std::string text = absl::StrCat(kProgress, " ", progress.rank, " ", progress.started, "\n");
  for (const std::string& line : lines) text += line;
  return text;
}

absl::StatusOr<Progress> ParseProgress(absl::string_view text) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(absl::StrCat("not a rank's progress: ", text.substr(0, 80)));
  };
  Progress progress;
  bool first = true;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (std::exchange(first, false)) {
      const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
      if (words.size() != 3 || words[0] != kProgress ||
          !absl::SimpleAtoi(words[1], &progress.rank) || progress.rank < 0 ||
          !absl::SimpleAtoi(words[2], &progress.started) || progress.started < 0) {
        return bad();
      }
      continue;
    }
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 4));
    RecordedCall call;
    int64_t started = 0, finished = 0;
    if (words.size() != 5 || !absl::SimpleAtoi(words[0], &call.number) ||
        !absl::SimpleAtoi(words[1], &call.bytes) || !absl::SimpleAtoi(words[2], &started) ||
        !absl::SimpleAtoi(words[3], &finished) || call.number < 0 ||
        call.number >= progress.started || call.bytes < 0 || started < 0 || finished < -1) {
      return bad();
    }
    call.call = std::string(words[4]);
    call.started_ago = absl::Microseconds(started);
    call.finished = finished >= 0;
    if (call.finished) call.finished_ago = absl::Microseconds(finished);
    progress.calls.push_back(std::move(call));
  }
  if (first) return bad();
  std::sort(progress.calls.begin(), progress.calls.end(),
            [](const RecordedCall& a, const RecordedCall& b) { return a.number < b.number; });
  const auto twice =
      std::adjacent_find(progress.calls.begin(), progress.calls.end(),
                         [](const auto& a, const auto& b) { return a.number == b.number; });
  if (twice != progress.calls.end()) return bad();
  return progress;
}

}  // namespace comm
