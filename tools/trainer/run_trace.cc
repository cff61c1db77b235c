#include "tools/trainer/run_trace.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tools/checkpoint/files.h"
#include "tools/trainer/comm_times.h"
#include "tools/trainer/step_phases.h"

namespace tools {
namespace {

using Json = nlohmann::ordered_json;

// Thread ids within a rank's process.
constexpr int kHostThread = 1;
constexpr int kDeviceThread = 2;

Json NameOf(const char* what, int rank, int thread, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

// A complete span; the format counts microseconds.
Json Complete(const std::string& name, int rank, int thread, double begin_s, double end_s) {
  return {{"name", name}, {"ph", "X"},    {"ts", begin_s * 1e6}, {"dur", (end_s - begin_s) * 1e6},
          {"pid", rank},  {"tid", thread}};
}

Json OpEvent(const kernels::TracedOp& op, int rank) {
  Json event = Complete(op.name, rank, kDeviceThread, op.begin_s, op.end_s);
  event["cat"] = kernels::Name(op.cost.phase);
  event["args"] = {{"shape", op.cost.shape}, {"bytes", op.cost.bytes}, {"flops", op.cost.flops}};
  return event;
}

// A begin and an end that belong together by category and id: such spans may overlap.
void AddCollective(const CollectiveSpan& span, int rank, int64_t id, Json* events) {
  const std::string name = absl::StrCat(span.name, " ", span.label);
  Json begin = {
      {"name", name}, {"cat", "collective"}, {"ph", "b"}, {"id", id}, {"ts", span.begin_s * 1e6},
      {"pid", rank},  {"tid", kDeviceThread}};
  Json end = begin;
  end["ph"] = "e";
  end["ts"] = span.end_s * 1e6;
  begin["args"] = {{"label", span.label},
                   {"bytes", span.bytes},
                   {"exposed_ms", span.exposed_s() * 1e3},
                   {"hidden_ms", span.hidden_s() * 1e3}};
  if (span.continued) begin["args"]["continued"] = true;
  events->push_back(std::move(begin));
  events->push_back(std::move(end));
}

}  // namespace

void RunTrace::Add(int rank, HostSpan span) {
  std::lock_guard<std::mutex> lock(mutex_);
  host_.push_back({rank, std::move(span)});
}

void RunTrace::Add(TracedStep step) {
  std::lock_guard<std::mutex> lock(mutex_);
  steps_.push_back(std::move(step));
}

void RunTrace::SetFacts(RunFacts facts) {
  std::lock_guard<std::mutex> lock(mutex_);
  facts_ = std::move(facts);
}

RunFacts RunTrace::facts() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return facts_;
}

std::vector<TracedStep> RunTrace::steps() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return steps_;
}

std::string RunTrace::ToJson() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Json events = Json::array();
  std::set<int> ranks;
  for (const RankSpan& host : host_) ranks.insert(host.rank);
  for (const TracedStep& step : steps_) ranks.insert(step.rank);
  for (int rank : ranks) {
    events.push_back(NameOf("process_name", rank, 0, absl::StrCat("rank ", rank)));
    events.push_back(NameOf("thread_name", rank, kHostThread, "host"));
    events.push_back(NameOf("thread_name", rank, kDeviceThread, "device"));
  }
  const auto first_event = static_cast<Json::difference_type>(events.size());
  int64_t collectives = 0;
  for (const TracedStep& step : steps_) {
    for (const kernels::TracedOp& op : step.ops) events.push_back(OpEvent(op, step.rank));
    for (const CollectiveSpan& span : step.collectives) {
      AddCollective(span, step.rank, collectives++, &events);
    }
  }
  for (const RankSpan& host : host_) {
    events.push_back(
        Complete(host.span.name, host.rank, kHostThread, host.span.begin_s, host.span.end_s));
  }
  // By time, and a span before those inside it.
  std::stable_sort(events.begin() + first_event, events.end(), [](const Json& a, const Json& b) {
    if (a["ts"] != b["ts"]) return a["ts"] < b["ts"];
    return a.value("dur", 0.0) > b.value("dur", 0.0);
  });
  return Json{{"displayTimeUnit", "ms"},
              {"traceEvents", std::move(events)},
              {"otherData",
               {{"comm", CommTimesJson(SumCollectives(steps_))},
                {"phases", StepPhasesJson(PhasesOf(steps_, facts_))}}}}
      .dump();
}

absl::Status RunTrace::Write(const std::string& path) const {
  return WriteFileAtomically(path, {ToJson()});
}

}  // namespace tools
