#include "tools/trainer/step_phases.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"
#include "tools/json_integer.h"

namespace tools {
namespace {

using Json = nlohmann::ordered_json;

struct Mark {
  enum Kind { kBegin, kLaunched, kWait, kEnd, kStepEnd };
  double at_s = 0;
  Kind kind = kStepEnd;
  const CollectiveSpan* span = nullptr;
};

// Rows move twice: a label's gradients first.
bool IsReduction(const TracedStep& step, const CollectiveSpan& span) {
  if (span.name != "all_to_all_rows") {
    return span.name == "reduce_scatter" || span.name == "all_reduce";
  }
  const auto first = std::find_if(step.collectives.begin(), step.collectives.end(),
                                  [&](const CollectiveSpan& other) {
                                    return other.name == span.name && other.label == span.label;
                                  });
  return &*first == &span;
}

std::vector<Mark> MarksOf(const TracedStep& step) {
  std::vector<Mark> marks;
  for (const CollectiveSpan& span : step.collectives) {
    if (span.continued) continue;
    marks.push_back({span.begin_s, Mark::kBegin, &span});
    marks.push_back({span.launched_s, Mark::kLaunched, &span});
    marks.push_back({span.wait_s, Mark::kWait, &span});
    marks.push_back({span.end_s, Mark::kEnd, &span});
  }
  std::stable_sort(marks.begin(), marks.end(),
                   [](const Mark& a, const Mark& b) { return a.at_s < b.at_s; });
  marks.push_back({step.end_s, Mark::kStepEnd, nullptr});
  return marks;
}

BufferPhases& Of(const std::string& label, std::vector<BufferPhases>* buffers) {
  for (BufferPhases& buffer : *buffers) {
    if (buffer.label == label) return buffer;
  }
  BufferPhases& buffer = buffers->emplace_back();
  buffer.label = label;
  return buffer;
}

// Adds the gaps of one step, in ms.
void AddGaps(const TracedStep& step, std::vector<BufferPhases>* buffers) {
  const std::vector<Mark> marks = MarksOf(step);
  for (const CollectiveSpan& span : step.collectives) {
    if (IsReduction(step, span)) Of(span.label, buffers);
  }
  const auto known = [&](const std::string& label) {
    return std::any_of(buffers->begin(), buffers->end(),
                       [&](const BufferPhases& buffer) { return buffer.label == label; });
  };
  for (size_t i = 0; i + 1 < marks.size(); ++i) {
    const Mark &mark = marks[i], &next = marks[i + 1];
    const double gap_ms = 1e3 * (next.at_s - mark.at_s);
    const bool ended = mark.kind == Mark::kEnd && known(mark.span->label);
    if (ended && IsReduction(step, *mark.span)) {
      Of(mark.span->label, buffers).update_ms += gap_ms;
    } else if (ended) {
      Of(mark.span->label, buffers).unpack_ms += gap_ms;
    } else if ((mark.kind == Mark::kEnd || mark.kind == Mark::kLaunched) &&
               next.kind == Mark::kBegin && IsReduction(step, *next.span)) {
      Of(next.span->label, buffers).pack_ms += gap_ms;
    }
  }
}

// Of the steps of one rank.
struct RankSum {
  double backward_ms = 0;
  int64_t tokens = 0;
  std::vector<BufferPhases> buffers;
  std::map<std::string, int> steps;  // in which the buffer took part, by label
};

void AddStep(const TracedStep& step, RankSum* sum) {
  double begin_s = step.begin_s;
  const CollectiveSpan* first = nullptr;  // of the step's own
  for (const CollectiveSpan& span : step.collectives) {
    if (span.continued) begin_s += span.exposed_s();
    if (!span.continued && first == nullptr) first = &span;
  }
  if (first == nullptr) return;
  sum->backward_ms += 1e3 * (first->begin_s - begin_s);
  sum->tokens += step.tokens;
  AddGaps(step, &sum->buffers);
  for (const CollectiveSpan& span : step.collectives) {
    if (IsReduction(step, span)) ++sum->steps[span.label];
  }
}

bool Read(const Json& in, const char* key, std::string* out) {
  const bool there = in.is_object() && in.contains(key) && in[key].is_string();
  if (there) *out = in[key].get<std::string>();
  return there;
}
bool Read(const Json& in, const char* key, bool* out) {
  const bool there = in.is_object() && in.contains(key) && in[key].is_boolean();
  if (there) *out = in[key].get<bool>();
  return there;
}
bool Read(const Json& in, const char* key, double* out) {
  const bool there = in.is_object() && in.contains(key) && in[key].is_number();
  if (there) *out = in[key].get<double>();
  return there;
}
bool Read(const Json& in, const char* key, int* out) {
  return in.is_object() && in.contains(key) && ReadInteger(in[key], out);
}

absl::Status NotPhases(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--phases=", path, ": ", why,
                   "; give a file that track1, track2 or bench_step wrote with --trace"));
}

}  // namespace

StepPhases PhasesOf(const std::vector<TracedStep>& steps, const RunFacts& facts) {
  StepPhases phases;
  phases.facts = facts;
  if (facts.deterministic) return phases;
  std::map<int, RankSum> ranks;
  for (const TracedStep& step : steps) AddStep(step, &ranks[step.rank]);
  for (const auto& [rank, sum] : ranks) {
    if (sum.tokens > 0) {
      phases.backward_ms_per_token =
          std::max(phases.backward_ms_per_token, sum.backward_ms / static_cast<double>(sum.tokens));
    }
    for (const BufferPhases& buffer : sum.buffers) {
      const double share = 1.0 / sum.steps.at(buffer.label);
      BufferPhases& slowest = Of(buffer.label, &phases.buffers);
      slowest.pack_ms = std::max(slowest.pack_ms, share * buffer.pack_ms);
      slowest.update_ms = std::max(slowest.update_ms, share * buffer.update_ms);
      slowest.unpack_ms = std::max(slowest.unpack_ms, share * buffer.unpack_ms);
    }
  }
  return phases;
}

Json StepPhasesJson(const StepPhases& phases) {
  Json buffers = Json::array();
  for (const BufferPhases& buffer : phases.buffers) {
    buffers.push_back({{"label", buffer.label},
                       {"pack_ms", buffer.pack_ms},
                       {"update_ms", buffer.update_ms},
                       {"unpack_ms", buffer.unpack_ms}});
  }
  const RunFacts& facts = phases.facts;
  return {{"record", facts.record},
          {"preset", facts.preset},
          {"device", facts.device},
          {"ranks", facts.ranks},
          {"slots", facts.slots},
          {"deterministic", facts.deterministic},
          {"backward_ms_per_token", phases.backward_ms_per_token},
          {"buffers", std::move(buffers)}};
}

absl::StatusOr<StepPhases> ReadStepPhases(const std::string& path) {
  ABSL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || !file.contains("otherData") || !file["otherData"].contains("phases")) {
    return NotPhases(path, "no phases in it");
  }
  const Json& in = file["otherData"]["phases"];
  StepPhases phases;
  RunFacts& facts = phases.facts;
  bool whole = Read(in, "record", &facts.record) && Read(in, "preset", &facts.preset) &&
               Read(in, "device", &facts.device) && Read(in, "ranks", &facts.ranks) &&
               Read(in, "slots", &facts.slots) && Read(in, "deterministic", &facts.deterministic) &&
               Read(in, "backward_ms_per_token", &phases.backward_ms_per_token) &&
               in.contains("buffers") && in["buffers"].is_array();
  if (whole) {
    for (const Json& row : in["buffers"]) {
      BufferPhases& buffer = phases.buffers.emplace_back();
      whole = whole && Read(row, "label", &buffer.label) && Read(row, "pack_ms", &buffer.pack_ms) &&
              Read(row, "update_ms", &buffer.update_ms) &&
              Read(row, "unpack_ms", &buffer.unpack_ms);
    }
  }
  if (!whole) return NotPhases(path, "its phases lack a field");
  if (phases.facts.deterministic) {
    return NotPhases(path, "its run was --deterministic, whose collectives are others");
  }
  if (phases.buffers.empty() || phases.facts.ranks < 1) return NotPhases(path, "no traced step");
  return phases;
}

}  // namespace tools
