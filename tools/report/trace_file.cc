#include "tools/report/trace_file.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/status_macros.h"
#include "tools/json_integer.h"

namespace tools {
namespace {

using Json = nlohmann::json;

// Ops closer than this part of a step are drawn as one: less than half a pixel.
constexpr double kDrawnAsOne = 1.0 / 4000;

// An event as the file has it, in ms of the file's clock.
struct Event {
  std::string name, category, phase;  // phase: "X", "b" or "e"
  int rank = 0;
  TimeSpan span;
  int64_t id = 0;  // of a collective
  std::string label;
  double bytes = 0, exposed_ms = 0;
};

double NumberOr(const Json& json, const char* key, double otherwise) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::string TextOr(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

bool HasNumbers(const Json& json, std::initializer_list<const char*> keys) {
  return std::all_of(keys.begin(), keys.end(), [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number();
  });
}

// False if a field is missing, or a rank or id no whole number.
bool ReadEvent(const Json& json, Event* event) {
  if (!HasNumbers(json, {"ts", "pid"}) || !ReadInteger(json["pid"], &event->rank)) return false;
  event->name = TextOr(json, "name");
  event->category = TextOr(json, "cat");
  event->span.begin_ms = json["ts"].get<double>() / 1e3;
  event->span.end_ms = event->span.begin_ms;
  if (event->phase == "X") {
    if (!HasNumbers(json, {"dur", "tid"})) return false;
    event->span.end_ms += json["dur"].get<double>() / 1e3;
    return true;
  }
  if (!HasNumbers(json, {"id"}) || !ReadInteger(json["id"], &event->id)) return false;
  if (event->phase == "e") return true;
  const auto args = json.find("args");
  if (args == json.end() || !HasNumbers(*args, {"bytes", "exposed_ms"})) return false;
  event->label = TextOr(*args, "label");
  event->bytes = NumberOr(*args, "bytes", 0);
  event->exposed_ms = NumberOr(*args, "exposed_ms", 0);
  return true;
}

struct Events {
  std::vector<Event> host, ops, collectives;
};

absl::StatusOr<Events> ReadEvents(absl::string_view path, const Json& list) {
  Events events;
  std::map<std::pair<int, int64_t>, size_t> open;  // by rank and id, among the collectives
  for (size_t i = 0; i < list.size(); ++i) {
    Event event;
    event.phase = list[i].is_object() ? TextOr(list[i], "ph") : "";
    if (event.phase == "M") continue;  // names of threads
    const bool known = event.phase == "X" || event.phase == "b" || event.phase == "e";
    if (!known || !ReadEvent(list[i], &event)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": traceEvents[", i,
          "] is none that --trace of a trainer writes: ", list[i].dump().substr(0, 120)));
    }
    if (event.phase == "X") {
      (event.category.empty() ? events.host : events.ops).push_back(std::move(event));
    } else if (event.phase == "b") {
      open[{event.rank, event.id}] = events.collectives.size();
      events.collectives.push_back(std::move(event));
    } else if (const auto begun = open.find({event.rank, event.id}); begun != open.end()) {
      events.collectives[begun->second].span.end_ms = event.span.end_ms;
    }
  }
  return events;
}

// Filled step by step: which step and rank something belongs to is known by its time.
class Steps {
 public:
  explicit Steps(TraceFile* file) : file_(file) {}

  void AddSpans(const std::vector<Event>& host) {
    for (const Event& event : host) {
      absl::string_view number = event.name;
      int64_t step = 0;
      if (!absl::ConsumePrefix(&number, "step ") || !absl::SimpleAtoi(number, &step)) continue;
      RankTimeline rank;
      rank.rank = event.rank;
      rank.span = event.span;
      Step(step).ranks.push_back(std::move(rank));
    }
    std::sort(file_->steps.begin(), file_->steps.end(),
              [](const StepTimeline& a, const StepTimeline& b) { return a.step < b.step; });
    for (StepTimeline& step : file_->steps) {
      std::sort(step.ranks.begin(), step.ranks.end(),
                [](const RankTimeline& a, const RankTimeline& b) { return a.rank < b.rank; });
    }
  }

  // Null if it was in no traced step.
  RankTimeline* Of(const Event& event) {
    for (StepTimeline& step : file_->steps) {
      for (RankTimeline& rank : step.ranks) {
        if (rank.rank == event.rank && event.span.begin_ms >= rank.span.begin_ms &&
            event.span.begin_ms <= rank.span.end_ms) {
          return &rank;
        }
      }
    }
    return nullptr;
  }

 private:
  StepTimeline& Step(int64_t number) {
    for (StepTimeline& step : file_->steps) {
      if (step.step == number) return step;
    }
    StepTimeline& step = file_->steps.emplace_back();
    step.step = number;
    return step;
  }

  TraceFile* const file_;
};

void AddHostPhases(const std::vector<Event>& host, Steps* steps) {
  for (const Event& event : host) {
    RankTimeline* const rank = steps->Of(event);
    if (rank == nullptr || absl::StartsWith(event.name, "step ")) continue;
    if (event.name == "validation") continue;  // begins where a step ends
    rank->host.push_back({event.name, event.span});
  }
}

void AddOps(const std::vector<Event>& ops, Steps* steps, int64_t* outside) {
  for (const Event& event : ops) {
    RankTimeline* const rank = steps->Of(event);
    if (rank == nullptr) {
      ++*outside;
      continue;
    }
    rank->op_ms[event.category] += event.span.length_ms();
    rank->ops.push_back({event.category, event.span, 1});
  }
}

void AddCollectives(const std::vector<Event>& collectives, Steps* steps, int64_t* outside) {
  for (const Event& event : collectives) {
    RankTimeline* const rank = steps->Of(event);
    if (rank == nullptr) {
      ++*outside;
      continue;
    }
    CollectiveTimeline& added = rank->collectives.emplace_back();
    added.name = event.name.substr(0, event.name.find(' '));
    added.label = event.label;
    added.bytes = event.bytes;
    added.span = event.span;
    added.exposed_ms = event.exposed_ms;
    for (const OpRun& op : rank->ops) {
      const double both = std::min(op.span.end_ms, event.span.end_ms) -
                          std::max(op.span.begin_ms, event.span.begin_ms);
      if (both > 0) added.under[op.kind] += both;
    }
  }
}

// After the overlaps were measured with the single ops.
void JoinOps(RankTimeline* rank) {
  const double near_ms = kDrawnAsOne * rank->span.length_ms();
  std::vector<OpRun> joined;
  for (const OpRun& op : rank->ops) {
    if (!joined.empty() && joined.back().kind == op.kind &&
        op.span.begin_ms - joined.back().span.end_ms <= near_ms) {
      joined.back().span.end_ms = std::max(joined.back().span.end_ms, op.span.end_ms);
      joined.back().ops += op.ops;
    } else {
      joined.push_back(op);
    }
  }
  rank->ops = std::move(joined);
}

void Shift(double by_ms, TimeSpan* span) {
  span->begin_ms += by_ms;
  span->end_ms += by_ms;
}

// To the clock that starts with the step.
void Rebase(StepTimeline* step) {
  double begin_ms = step->ranks.front().span.begin_ms;
  for (const RankTimeline& rank : step->ranks) begin_ms = std::min(begin_ms, rank.span.begin_ms);
  for (RankTimeline& rank : step->ranks) {
    Shift(-begin_ms, &rank.span);
    for (HostPhase& phase : rank.host) Shift(-begin_ms, &phase.span);
    for (OpRun& op : rank.ops) Shift(-begin_ms, &op.span);
    for (CollectiveTimeline& collective : rank.collectives) Shift(-begin_ms, &collective.span);
  }
}

std::string About(const Json& file) {
  const Json::json_pointer at("/otherData/phases");
  if (!file.contains(at)) return "";
  const Json& facts = file[at];
  std::string about;
  const auto add = [&](const std::string& text) {
    if (!text.empty()) absl::StrAppend(&about, about.empty() ? "" : ", ", text);
  };
  add(TextOr(facts, "record"));
  add(TextOr(facts, "preset"));
  add(TextOr(facts, "device"));
  int64_t ranks = 0;
  if (HasNumbers(facts, {"ranks"}) && ReadInteger(facts["ranks"], &ranks)) {
    add(absl::StrCat(ranks, " ranks"));
  }
  return about;
}

}  // namespace

absl::StatusOr<TraceFile> ParseTrace(absl::string_view path, absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("traceEvents") || !json["traceEvents"].is_array()) {
    return absl::DataLossError(
        absl::StrCat(path, ": no whole JSON object with a list traceEvents; was it cut off?"));
  }
  ABSL_ASSIGN_OR_RETURN(const Events events, ReadEvents(path, json["traceEvents"]));
  TraceFile file;
  file.path = std::string(path);
  file.about = About(json);
  Steps steps(&file);
  steps.AddSpans(events.host);
  if (file.steps.empty()) {
    return absl::DataLossError(absl::StrCat(
        path, ": no traced step in it; a run has to train two steps at least to have one"));
  }
  int64_t outside = 0;
  AddHostPhases(events.host, &steps);
  AddOps(events.ops, &steps, &outside);
  AddCollectives(events.collectives, &steps, &outside);
  if (outside > 0) {
    file.notes.push_back(absl::StrCat(outside, " ops and collectives lie in no traced step"));
  }
  for (StepTimeline& step : file.steps) {
    for (RankTimeline& rank : step.ranks) JoinOps(&rank);
    Rebase(&step);
  }
  return file;
}

std::vector<RankPhases> MeanPhases(const TraceFile& trace) {
  std::map<int, RankPhases> by_rank;
  std::map<int, int> steps;
  for (const StepTimeline& step : trace.steps) {
    for (const RankTimeline& rank : step.ranks) {
      RankPhases& sum = by_rank[rank.rank];
      sum.rank = rank.rank;
      ++steps[rank.rank];
      sum.step_ms += rank.span.length_ms();
      for (const auto& [kind, ms] : rank.op_ms) sum.op_ms[kind] += ms;
      for (const CollectiveTimeline& one : rank.collectives) sum.exposed_ms += one.exposed_ms;
    }
  }
  std::vector<RankPhases> means;
  for (auto& [rank, sum] : by_rank) {
    const double share = 1.0 / steps[rank];
    sum.step_ms *= share;
    sum.exposed_ms *= share;
    sum.idle_ms = sum.step_ms - sum.exposed_ms;
    for (auto& [kind, ms] : sum.op_ms) sum.idle_ms -= ms *= share;
    means.push_back(std::move(sum));
  }
  return means;
}

}  // namespace tools
