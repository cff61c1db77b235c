#include "comm/progress_exchange.h"

#include <vector>

namespace comm {
namespace {

RankState StateOf(const LastWords& words) {
  switch (words.kind) {
    case LastWords::kHere:
      break;
    case LastWords::kLeft:
      return {.kind = RankState::kLeft, .progress = {}};
    case LastWords::kLost:
      return {.kind = RankState::kLost, .progress = {}};
    case LastWords::kSilent:
      return {.kind = RankState::kSilent, .progress = {}};
    case LastWords::kUnknown:
      return {.kind = RankState::kUnknown, .progress = {}};
  }
  const absl::StatusOr<Progress> progress = ParseProgress(words.text);
  // A rank of another version of the program.
  if (!progress.ok()) return {.kind = RankState::kUnknown, .progress = {}};
  return {.kind = RankState::kHere, .progress = *progress};
}

}  // namespace

std::string CollectReport(Rendezvous& rendezvous, const FlightRecord& record,
                          absl::Duration patience) {
  std::vector<RankState> states;
  for (const LastWords& words : rendezvous.SayLastWords(Serialize(record.Now()), patience)) {
    states.push_back(StateOf(words));
  }
  return ReportText(states);
}

}  // namespace comm
