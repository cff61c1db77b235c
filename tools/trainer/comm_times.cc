#include "tools/trainer/comm_times.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"

namespace tools {
namespace {

using Json = nlohmann::ordered_json;

void Add(const CollectiveTimes& times, CollectiveTimes* sum) {
  sum->calls += times.calls;
  sum->bytes += times.bytes;
  sum->total_ms += times.total_ms;
  sum->exposed_ms += times.exposed_ms;
}

std::string RowText(const CollectiveTimes& row) {
  return absl::StrFormat("%-14s %-28s %6.1f %13.0f %9.3f %11.3f %10.3f\n", row.collective,
                         row.label, row.calls, row.bytes, row.total_ms, row.exposed_ms,
                         row.hidden_ms());
}

Json RowJson(const CollectiveTimes& row) {
  return {{"calls", row.calls},
          {"bytes", row.bytes},
          {"total_ms", row.total_ms},
          {"exposed_ms", row.exposed_ms},
          {"hidden_ms", row.hidden_ms()}};
}

}  // namespace

CollectiveTimes CommTimes::Total() const {
  CollectiveTimes total;
  for (const CollectiveTimes& row : collectives) Add(row, &total);
  return total;
}

CollectiveTimes& RowFor(const std::string& collective, const std::string& label, CommTimes* times) {
  for (CollectiveTimes& row : times->collectives) {
    if (row.collective == collective && row.label == label) return row;
  }
  CollectiveTimes& row = times->collectives.emplace_back();
  row.collective = collective;
  row.label = label;
  return row;
}

CommTimes SumCollectives(const std::vector<TracedStep>& steps) {
  CommTimes times;
  if (steps.empty()) return times;
  const double share = 1.0 / static_cast<double>(steps.size());
  std::set<int> ranks;
  for (const TracedStep& step : steps) {
    ranks.insert(step.rank);
    times.step_ms += share * 1e3 * (step.end_s - step.begin_s);
    for (const CollectiveSpan& span : step.collectives) {
      CollectiveTimes& row = RowFor(span.name, span.label, &times);
      row.calls += share;
      row.bytes += share * static_cast<double>(span.bytes);
      row.total_ms += share * 1e3 * (span.end_s - span.begin_s);
      row.exposed_ms += share * 1e3 * span.exposed_s();
    }
  }
  times.ranks = static_cast<int>(ranks.size());
  times.steps = static_cast<int>(steps.size() / ranks.size());
  return times;
}

std::string CollectivesTable(const CommTimes& times) {
  std::string text = absl::StrFormat("%-14s %-28s %6s %13s %9s %11s %10s\n", "collective", "label",
                                     "calls", "bytes", "total ms", "exposed ms", "hidden ms");
  for (const CollectiveTimes& row : times.collectives) text += RowText(row);
  CollectiveTimes all = times.Total();
  all.collective = "all";
  return text + RowText(all);
}

std::string CommTimesText(const CommTimes& times) {
  const double exposed_ms = times.Total().exposed_ms;
  return absl::StrFormat(
      "collectives of a step, mean of %d traced steps of %d ranks; exposed: the queue waited\n"
      "%sexposed: %.1f %% of a traced step of %.1f ms",
      times.steps, times.ranks, CollectivesTable(times),
      100 * exposed_ms / std::max(times.step_ms, 1e-9), times.step_ms);
}

Json CommTimesJson(const CommTimes& times) {
  Json rows = Json::array();
  for (const CollectiveTimes& row : times.collectives) {
    Json json = {{"collective", row.collective}, {"label", row.label}};
    json.update(RowJson(row));
    rows.push_back(std::move(json));
  }
  return {{"ranks", times.ranks},
          {"steps", times.steps},
          {"step_ms", times.step_ms},
          {"collectives", std::move(rows)},
          {"all", RowJson(times.Total())}};
}

}  // namespace tools
