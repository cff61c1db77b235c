// ReportText(): what the ranks' progress says about the one that holds up the others.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "comm/flight_record.h"

namespace comm {
namespace {

std::string Ago(absl::Duration duration) {
  return absl::StrFormat("%.1f s ago", absl::ToDoubleSeconds(duration));
}

std::string Named(const RecordedCall& call) {
  return absl::StrCat("collective ", call.number, ", ", call.call);
}

// "rank 3", "ranks 0, 1 and 7"
std::string Ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks[0]);
  return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.end() - 1, ", "), " and ",
                      ranks.back());
}

std::string StateText(const RankState& state) {
  switch (state.kind) {
    case RankState::kHere:
      break;
    case RankState::kLeft: {
      const RecordedCall* last = state.progress.LastStarted();
      return last == nullptr ? "has left in good order"
                             : absl::StrCat("has left in good order, after ", Named(*last));
    }
    case RankState::kLost:
      return "is lost: its process ended without a word";
    case RankState::kSilent:
      return "is silent: its process is stopped or its host is cut off";
    case RankState::kUnknown:
      return "is not known of, since rank 0 could not be asked";
  }
  const RecordedCall* started = state.progress.LastStarted();
  if (started == nullptr) return "has started no collective yet";
  std::string text = absl::StrCat("started ", started->number, " ", started->call, ", ",
                                  started->bytes, " bytes, ", Ago(started->started_ago));
  const RecordedCall* finished = state.progress.LastFinished();
  if (finished == started) {
    absl::StrAppend(&text, ", and finished it ", Ago(finished->finished_ago));
  } else if (finished != nullptr) {
    absl::StrAppend(&text, "; finished ", finished->number, " ", finished->call, ", ",
                    Ago(finished->finished_ago));
  } else {
    absl::StrAppend(&text, "; finished none");
  }
  const RecordedCall* oldest = state.progress.OldestUnfinished();
  if (oldest != nullptr && oldest != started) {
    absl::StrAppend(&text, "; still in ", oldest->number, " ", oldest->call);
  }
  return text;
}

class Differences {
 public:
  explicit Differences(const std::vector<RankState>& ranks) : ranks_(ranks) {
    for (const RankState& state : ranks) {
      if (state.kind == RankState::kHere) here_.push_back(&state.progress);
    }
  }

  std::vector<std::string> Find() {
    Absent();
    // What follows from different calls says nothing more.
    if (!OtherCall() && !NotCalled()) NotFinished();
    if (lines_.empty()) {
      lines_.push_back(InNone() ? "nothing between the ranks: none is in a collective"
                                : "nothing between the ranks: all are in the same call; see the "
                                  "network or the devices");
    }
    return std::move(lines_);
  }

 private:
  void Absent() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankState::Kind kind = ranks_[rank].kind;
      if (kind != RankState::kHere && kind != RankState::kUnknown) {
        lines_.push_back(absl::StrCat("rank ", rank, " ", StateText(ranks_[rank])));
      }
    }
  }

  bool InNone() const {
    return std::all_of(here_.begin(), here_.end(), [](const Progress* progress) {
      return progress->OldestUnfinished() == nullptr;
    });
  }

  // The first collective of which two ranks remember different calls.
  bool OtherCall() {
    std::set<int64_t> numbers;
    for (const Progress* progress : here_) {
      for (const RecordedCall& call : progress->calls) numbers.insert(call.number);
    }
    for (const int64_t number : numbers) {
      const RecordedCall* first = nullptr;
      int first_rank = 0;
      for (const Progress* progress : here_) {
        const RecordedCall* call = progress->Find(number);
        if (call == nullptr) continue;
        if (first == nullptr) {
          first = call;
          first_rank = progress->rank;
        } else if (call->call != first->call) {
          lines_.push_back(absl::StrCat("collective ", number, ": rank ", first_rank, " calls ",
                                        first->call, ", rank ", progress->rank, " calls ",
                                        call->call));
          return true;
        }
      }
    }
    return false;
  }

  // Ranks that have not called what others have.
  bool NotCalled() {
    int64_t most = 0;
    for (const Progress* progress : here_) most = std::max(most, progress->started);
    bool found = false;
    for (const Progress* progress : here_) {
      if (progress->started == most) continue;
      found = true;
      std::vector<int> others;
      const RecordedCall* call = nullptr;
      for (const Progress* other : here_) {
        if (other->started <= progress->started) continue;
        others.push_back(other->rank);
        if (call == nullptr) call = other->Find(progress->started);
      }
      lines_.push_back(absl::StrCat(
          "rank ", progress->rank, " is behind: it has not called ",
          call != nullptr ? Named(*call) : absl::StrCat("collective ", progress->started), ", as ",
          Ranks(others), others.size() == 1 ? " has" : " have"));
    }
    return found;
  }

  // All have called the same: ranks for which it has ended, and ranks for which it has not.
  void NotFinished() {
    const RecordedCall* oldest = nullptr;
    for (const Progress* progress : here_) {
      const RecordedCall* call = progress->OldestUnfinished();
      if (call != nullptr && (oldest == nullptr || call->number < oldest->number)) oldest = call;
    }
    if (oldest == nullptr) return;
    std::vector<int> in, past;
    for (const Progress* progress : here_) {
      const RecordedCall* call = progress->OldestUnfinished();
      (call != nullptr && call->number == oldest->number ? in : past).push_back(progress->rank);
    }
    if (past.empty()) return;
    lines_.push_back(
        absl::StrCat(Named(*oldest), " has ended for ", Ranks(past), ", not for ", Ranks(in)));
  }

  const std::vector<RankState>& ranks_;
  std::vector<const Progress*> here_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string ReportText(const std::vector<RankState>& ranks) {
  std::string text;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    absl::StrAppend(&text, "  rank ", rank, " ", StateText(ranks[rank]), "\n");
  }
  for (const std::string& line : Differences(ranks).Find()) {
    absl::StrAppend(&text, "  differs: ", line, "\n");
  }
  return text;
}

}  // namespace comm
