#include "tools/report/page_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/report/decimate.h"
#include "tools/report/html.h"

namespace tools {
namespace {

// Seven digits are more than a screen shows, and half the size of all.
std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.7g", value) : "\"nan\"";
}

// Adds "name":[...], unless nothing is known.
void AddColumn(absl::string_view name, const Values& values, std::vector<std::string>* columns) {
  const bool known = std::any_of(values.begin(), values.end(),
                                 [](const auto& value) { return value.has_value(); });
  if (!known) return;
  std::string text = absl::StrCat("\"", name, "\":[");
  absl::StrAppend(&text,
                  absl::StrJoin(values, ",",
                                [](std::string* out, const std::optional<double>& value) {
                                  absl::StrAppend(out, value.has_value() ? Number(*value) : "null");
                                }),
                  "]");
  columns->push_back(text);
}

std::optional<double> Seconds(const std::optional<double>& ms) {
  if (!ms.has_value()) return std::nullopt;
  return *ms / 1000;
}

Values Column(const std::vector<StepRow>& rows, std::optional<double> StepRow::*field) {
  Values values;
  for (const StepRow& row : rows) values.push_back(row.*field);
  return values;
}

std::string TrainColumns(const std::vector<StepRow>& rows, const std::vector<size_t>& drawn,
                         size_t reach) {
  const Values loss = Smooth(Column(rows, &StepRow::loss), reach);
  const Values step_ms = Smooth(Column(rows, &StepRow::step_ms), reach);
  const Values batch = Smooth(Column(rows, &StepRow::batch_tokens), reach);
  std::vector<std::string> columns;
  const auto add = [&](absl::string_view name, const auto& value_of) {
    Values values;
    for (const size_t i : drawn) values.push_back(value_of(i));
    AddColumn(name, values, &columns);
  };
  add("step", [&](size_t i) { return static_cast<double>(rows[i].step); });
  add("tokens", [&](size_t i) { return rows[i].tokens; });
  add("time", [&](size_t i) { return Seconds(rows[i].train_ms); });
  add("loss", [&](size_t i) { return rows[i].loss; });
  add("smooth_loss", [&](size_t i) { return loss[i]; });
  add("lr", [&](size_t i) { return rows[i].lr; });
  add("momentum", [&](size_t i) { return rows[i].momentum; });
  add("window", [&](size_t i) { return rows[i].window_tokens; });
  add("batch", [&](size_t i) { return rows[i].batch_tokens; });
  add("step_ms", [&](size_t i) { return rows[i].step_ms; });
  add("smooth_step_ms", [&](size_t i) { return step_ms[i]; });
  add("rate", [&](size_t i) { return rows[i].tokens_per_s; });
  // Tokens over time, and not a mean of quotients.
  add("smooth_rate", [&](size_t i) -> std::optional<double> {
    if (!batch[i].has_value() || !step_ms[i].has_value() || *step_ms[i] <= 0) return std::nullopt;
    return 1000 * *batch[i] / *step_ms[i];
  });
  return absl::StrJoin(columns, ",");
}

std::string ValidationColumns(const std::vector<ValidationRow>& rows) {
  Values step, tokens, time, loss;
  for (const ValidationRow& row : rows) {
    step.push_back(static_cast<double>(row.step));
    tokens.push_back(row.tokens);
    time.push_back(Seconds(row.train_ms));
    loss.push_back(row.loss);
  }
  std::vector<std::string> columns;
  AddColumn("step", step, &columns);
  AddColumn("tokens", tokens, &columns);
  AddColumn("time", time, &columns);
  AddColumn("loss", loss, &columns);
  return absl::StrJoin(columns, ",");
}

std::string RunData(const TrainingRun& run) {
  // A fiftieth of the run in all: noise goes, the shape stays.
  const size_t reach = std::max<size_t>(run.steps.size() / 100, 1);
  const std::vector<size_t> drawn = RowsToDraw(run.steps, kMostDrawnRows);
  return absl::StrCat("{\"name\":", ScriptString(run.name), ",\"group\":", ScriptString(run.group),
                      ",\"rows\":", run.steps.size(), ",\"drawn\":", drawn.size(),
                      ",\"reach\":", reach, ",\n\"train\":{", TrainColumns(run.steps, drawn, reach),
                      "},\n\"val\":{", ValidationColumns(run.validations), "}}");
}

std::string Milliseconds(const std::map<std::string, double>& by_kind) {
  return absl::StrCat(
      "{",
      absl::StrJoin(by_kind, ",",
                    [](std::string* out, const std::pair<const std::string, double>& entry) {
                      absl::StrAppend(out, ScriptString(entry.first), ":", Number(entry.second));
                    }),
      "}");
}

std::string PhasesData(const RankPhases& rank) {
  return absl::StrCat("{\"rank\":", rank.rank, ",\"step_ms\":", Number(rank.step_ms),
                      ",\"ops\":", Milliseconds(rank.op_ms),
                      ",\"exposed\":", Number(rank.exposed_ms), ",\"idle\":", Number(rank.idle_ms),
                      "}");
}

std::string SpanText(const TimeSpan& span) {
  return absl::StrCat(Number(span.begin_ms), ",", Number(span.end_ms));
}

// `text_of` of each, as a JSON list.
template <typename List, typename TextOf>
std::string ListText(const List& list, const TextOf& text_of) {
  std::string text = "[";
  for (const auto& one : list) {
    absl::StrAppend(&text, text.size() == 1 ? "" : ",", text_of(one));
  }
  return absl::StrCat(text, "]");
}

std::string RankData(const RankTimeline& rank) {
  const std::string host = ListText(rank.host, [](const HostPhase& phase) {
    return absl::StrCat("[", ScriptString(phase.name), ",", SpanText(phase.span), "]");
  });
  const std::string ops = ListText(rank.ops, [](const OpRun& op) {
    return absl::StrCat("[", ScriptString(op.kind), ",", SpanText(op.span), ",", op.ops, "]");
  });
  const std::string collectives = ListText(rank.collectives, [](const CollectiveTimeline& one) {
    return absl::StrCat("[", ScriptString(one.name), ",", ScriptString(one.label), ",",
                        Number(one.bytes), ",", SpanText(one.span), ",", Number(one.exposed_ms),
                        ",", Milliseconds(one.under), "]");
  });
  return absl::StrCat("{\"rank\":", rank.rank, ",\"span\":[", SpanText(rank.span),
                      "],\n\"host\":", host, ",\n\"ops\":", ops, ",\n\"collectives\":", collectives,
                      "}");
}

std::string TraceData(const TraceFile& trace) {
  const std::string steps = ListText(trace.steps, [](const StepTimeline& step) {
    return absl::StrCat("{\"step\":", step.step, ",\"ranks\":", ListText(step.ranks, RankData),
                        "}");
  });
  return absl::StrCat(
      "{\"name\":", ScriptString(trace.name), ",\"about\":", ScriptString(trace.about),
      ",\"phases\":", ListText(MeanPhases(trace), PhasesData), ",\"steps\":", steps, "}");
}

}  // namespace

std::string PageData(const Inputs& inputs, double target) {
  return absl::StrCat("{\"target\":", Number(target),
                      ",\n\"runs\":", ListText(inputs.runs, RunData),
                      ",\n\"traces\":", ListText(inputs.traces, TraceData), "}");
}

}  // namespace tools
