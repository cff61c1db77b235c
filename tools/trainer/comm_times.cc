#include "tools/trainer/comm_times.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"

namespace tools {
namespace {

using Json = nlohmann::ordered_json;

void Add(const CollectiveTimes& times, CollectiveTimes* sum) {
  sum->calls += times.calls;
  sum->bytes += times.bytes;
  sum->total_ms += times.total_ms;
  sum->exposed_ms += times.exposed_ms;
  sum->late_ms += times.late_ms;
}

std::string RowText(const CollectiveTimes& row) {
  return absl::StrFormat("%-14s %-28s %6.1f %13.0f %9.3f %11.3f %8.3f %10.3f\n", row.collective,
                         row.label, row.calls, row.bytes, row.total_ms, row.exposed_ms, row.late_ms,
                         row.hidden_ms());
}

Json RowJson(const CollectiveTimes& row) {
  return {{"calls", row.calls},           {"bytes", row.bytes},     {"total_ms", row.total_ms},
          {"exposed_ms", row.exposed_ms}, {"late_ms", row.late_ms}, {"hidden_ms", row.hidden_ms()}};
}

// When the last rank made each call of a step, by the step and the number of the call in it.
using Arrivals = std::map<std::pair<int64_t, size_t>, double>;

Arrivals ArrivalsOf(const std::vector<TracedStep>& steps) {
  Arrivals arrivals;
  for (const TracedStep& step : steps) {
    for (size_t i = 0; i < step.collectives.size(); ++i) {
      double& last = arrivals.try_emplace({step.step, i}, 0.0).first->second;
      last = std::max(last, step.collectives[i].call_s());
    }
  }
  return arrivals;
}

// The part of a span's exposed time that lies before `arrival`.
double LateSeconds(const CollectiveSpan& span, double arrival) {
  const auto before = [arrival](double begin, double end) {
    return std::max(0.0, std::min(end, arrival) - begin);
  };
  return before(span.begin_s, span.launched_s) + before(span.wait_s, span.end_s);
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
  const Arrivals arrivals = ArrivalsOf(steps);
  std::set<int> ranks;
  for (const TracedStep& step : steps) {
    ranks.insert(step.rank);
    times.step_ms += share * 1e3 * (step.end_s - step.begin_s);
    for (size_t i = 0; i < step.collectives.size(); ++i) {
      const CollectiveSpan& span = step.collectives[i];
      CollectiveTimes& row = RowFor(span.name, span.label, &times);
      if (!span.continued) {
        row.calls += share;
        row.bytes += share * static_cast<double>(span.bytes);
      }
      row.total_ms += share * 1e3 * (span.end_s - span.begin_s);
      row.exposed_ms += share * 1e3 * span.exposed_s();
      row.late_ms += share * 1e3 * LateSeconds(span, arrivals.at({step.step, i}));
    }
  }
  times.ranks = static_cast<int>(ranks.size());
  times.steps = static_cast<int>(steps.size() / ranks.size());
  return times;
}

std::string CollectivesTable(const CommTimes& times) {
  std::string text =
      absl::StrFormat("%-14s %-28s %6s %13s %9s %11s %8s %10s\n", "collective", "label", "calls",
                      "bytes", "total ms", "exposed ms", "late ms", "hidden ms");
  for (const CollectiveTimes& row : times.collectives) text += RowText(row);
  CollectiveTimes all = times.Total();
  all.collective = "all";
  return text + RowText(all);
}

std::string CommTimesText(const CommTimes& times) {
  const double exposed_ms = times.Total().exposed_ms;
  return absl::StrFormat(
      "collectives of a step, mean of %d traced steps of %d ranks; exposed: the queue waited; "
      "late: of that, for a slower rank's call\n"
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
