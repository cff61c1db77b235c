#include "tools/report/tables.h"

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/report/html.h"
#include "tools/verify_record/record_report.h"

namespace tools {
namespace {

constexpr char kUnknown[] = "<span class=\"unknown\" title=\"the files do not say\">–</span>";

// "12,345"; the value is not negative.
std::string WithCommas(int64_t value) {
  const std::string digits = absl::StrCat(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string StepsCell(const TrainingRun& run) {
  const std::string last = WithCommas(run.last_step());
  if (!run.planned_steps.has_value() || *run.planned_steps == run.last_step()) return last;
  return absl::StrCat(last, " <span class=\"cut\">of ", WithCommas(*run.planned_steps), "</span>");
}

std::string LossText(double loss) {
  return std::isfinite(loss) ? absl::StrFormat("%.4f", loss) : "<span class=\"cut\">NaN</span>";
}

std::string LossCell(const TrainingRun& run) {
  if (const ValidationRow* const last = run.final_validation()) return LossText(last->loss);
  if (run.validations.empty()) return kUnknown;
  const ValidationRow& last = run.validations.back();
  return absl::StrCat(LossText(last.loss), " <span class=\"cut\">at ", WithCommas(last.step),
                      "</span>");
}

// Where the run's clock and count of tokens stand at its last row that has both, or a time.
struct End {
  int64_t step = 0;
  std::optional<double> train_ms, tokens;
};

End EndOf(const TrainingRun& run) {
  if (!run.validations.empty() && run.validations.back().step == run.last_step()) {
    const ValidationRow& last = run.validations.back();
    return {last.step, last.train_ms, last.tokens};
  }
  if (run.steps.empty()) return {};
  return {run.steps.back().step, run.steps.back().train_ms, run.steps.back().tokens};
}

bool IsTimed(const End& end) {
  return end.step > 0 && end.train_ms.has_value() && *end.train_ms > 0;
}

std::string StepAverage(double train_ms, int64_t steps) {
  return absl::StrFormat("%.2f ms", train_ms / static_cast<double>(steps));
}

std::string RateCell(const End& end) {
  if (!IsTimed(end) || !end.tokens.has_value()) return kUnknown;
  return WithCommas(std::llround(1000 * *end.tokens / *end.train_ms));
}

std::string MemoryCell(const TrainingRun& run) {
  if (!run.peak_mib.has_value()) return kUnknown;
  return absl::StrCat(WithCommas(std::llround(*run.peak_mib)), " MiB");
}

// The first validation at or below the target.
std::string ReachedCell(const TrainingRun& run, double target) {
  for (const ValidationRow& row : run.validations) {
    if (!(row.loss <= target)) continue;
    const std::string step = absl::StrCat("step ", WithCommas(row.step));
    if (!row.train_ms.has_value()) return step;
    return absl::StrCat(DurationText(*row.train_ms / 1000), ", ", step);
  }
  return "not reached";
}

std::string MeanCell(const Summary& summary, int digits, absl::string_view unit) {
  return absl::StrFormat("%.*f ± %.*f%s", digits, summary.mean, digits, summary.sd, unit);
}

std::string PCell(const TTest& test, double p) {
  if (test.no_variance) return "<span class=\"cut\">none: no variance</span>";
  return EscapeHtml(ProbabilityText(p));
}

std::string Notes(const std::vector<std::string>& notes) {
  std::string html;
  for (const std::string& note : notes) {
    absl::StrAppend(&html, "<div class=\"note\">", EscapeHtml(note), "</div>");
  }
  return html;
}

std::string ComparisonTable(const std::vector<GroupComparison>& comparisons) {
  if (comparisons.empty()) return "";
  HtmlTable table("comparisons", "Groups compared, Welch's t-test",
                  {"group against group", "final loss", "p lower", "p two-sided", "train time",
                   "p lower", "p two-sided"});
  for (const GroupComparison& one : comparisons) {
    std::vector<std::string> cells = {
        absl::StrCat(EscapeHtml(one.name), " <small>against</small> ", EscapeHtml(one.baseline)),
        absl::StrFormat("%+.4f", one.losses.difference), PCell(one.losses, one.losses.p_less),
        PCell(one.losses, one.losses.p_two_sided)};
    if (one.times_s.has_value()) {
      cells.push_back(absl::StrFormat("%+.3f s", one.times_s->difference));
      cells.push_back(PCell(*one.times_s, one.times_s->p_less));
      cells.push_back(PCell(*one.times_s, one.times_s->p_two_sided));
    } else {
      cells.insert(cells.end(), 3, kUnknown);
    }
    table.AddRow(cells);
  }
  return table.Text();
}

struct CollectiveSum {
  double calls = 0, bytes = 0, total_ms = 0, exposed_ms = 0;
  std::map<std::string, double> under;
};

using CollectiveKey = std::pair<std::string, std::string>;  // the collective, its label

// In the order of their first call.
std::vector<std::pair<CollectiveKey, CollectiveSum>> SumCollectivesOf(const TraceFile& trace) {
  std::vector<std::pair<CollectiveKey, CollectiveSum>> sums;
  std::map<CollectiveKey, size_t> places;
  double steps = 0;
  for (const StepTimeline& step : trace.steps) steps += static_cast<double>(step.ranks.size());
  for (const StepTimeline& step : trace.steps) {
    for (const RankTimeline& rank : step.ranks) {
      for (const CollectiveTimeline& one : rank.collectives) {
        const CollectiveKey key = {one.name, one.label};
        const auto [place, is_new] = places.try_emplace(key, sums.size());
        if (is_new) sums.push_back({key, {}});
        CollectiveSum& sum = sums[place->second].second;
        sum.calls += 1 / steps;
        sum.bytes += one.bytes / steps;
        sum.total_ms += one.span.length_ms() / steps;
        sum.exposed_ms += one.exposed_ms / steps;
        for (const auto& [kind, ms] : one.under) sum.under[kind] += ms / steps;
      }
    }
  }
  return sums;
}

}  // namespace

std::string DurationText(double seconds) {
  if (seconds < 60) return absl::StrFormat("%.3f s", seconds);
  const auto minutes = static_cast<int64_t>(seconds / 60);
  const double rest = seconds - 60.0 * static_cast<double>(minutes);
  if (minutes < 60) return absl::StrFormat("%d min %04.1f s", minutes, rest);
  return absl::StrFormat("%d h %02d min %02.0f s", minutes / 60, minutes % 60, rest);
}

std::string RunsTable(const std::vector<TrainingRun>& runs, double target) {
  bool groups = false, rates = false, memory = false;
  for (const TrainingRun& run : runs) {
    const End end = EndOf(run);
    groups = groups || !run.group.empty();
    rates = rates || (end.tokens.has_value() && IsTimed(end));
    memory = memory || run.peak_mib.has_value();
  }
  std::vector<std::string> heads = {"run"};
  if (groups) heads.push_back("group");
  for (const char* head : {"steps", "final val loss", "train time", "step average"}) {
    heads.push_back(head);
  }
  if (rates) heads.push_back("tokens/s");
  if (memory) heads.push_back("peak memory");
  heads.push_back(absl::StrFormat("reached %g", target));
  HtmlTable table("runs", "Runs", heads);
  for (const TrainingRun& run : runs) {
    const End end = EndOf(run);
    std::vector<std::string> cells = {EscapeHtml(run.name)};
    if (groups) cells.push_back(EscapeHtml(run.group));
    cells.push_back(StepsCell(run));
    cells.push_back(LossCell(run));
    cells.push_back(IsTimed(end) ? DurationText(*end.train_ms / 1000) : kUnknown);
    cells.push_back(IsTimed(end) ? StepAverage(*end.train_ms, end.step) : kUnknown);
    if (rates) cells.push_back(RateCell(end));
    if (memory) cells.push_back(MemoryCell(run));
    cells.push_back(ReachedCell(run, target));
    table.AddRow(cells);
  }
  return table.Text();
}

std::string GroupTables(const std::vector<GroupSummary>& groups, double target) {
  if (groups.empty()) return "";
  HtmlTable table("groups", "Groups, mean ± standard deviation",
                  {"group", "runs", "steps", "final val loss",
                   absl::StrFormat("p (mean below %g)", target), "train time", "step average"});
  for (const GroupSummary& group : groups) {
    std::vector<std::string> cells = {
        absl::StrCat(EscapeHtml(group.name), Notes(group.notes)), absl::StrCat(group.runs),
        group.steps.has_value() ? WithCommas(*group.steps) : kUnknown};
    cells.push_back(group.losses.has_value() ? MeanCell(*group.losses, 4, "") : kUnknown);
    cells.push_back(group.below_target.has_value()
                        ? PCell(*group.below_target, group.below_target->p_less)
                        : kUnknown);
    cells.push_back(group.times_s.has_value() ? MeanCell(*group.times_s, 3, " s") : kUnknown);
    cells.push_back(group.times_s.has_value() && *group.steps > 0
                        ? StepAverage(1000 * group.times_s->mean, *group.steps)
                        : kUnknown);
    table.AddRow(cells);
  }
  return absl::StrCat(table.Text(), ComparisonTable(CompareGroups(groups)));
}

std::string CollectivesTable(const TraceFile& trace, const std::string& id) {
  const auto sums = SumCollectivesOf(trace);
  if (sums.empty()) return "";
  HtmlTable table(id, "Collectives of a step and rank, mean",
                  {"collective", "calls", "MB", "total ms", "exposed ms", "ran meanwhile, ms"});
  for (const auto& [key, sum] : sums) {
    std::string under;
    for (const auto& [kind, ms] : sum.under) {
      absl::StrAppendFormat(&under, "%s%s %.2f", under.empty() ? "" : ", ", EscapeHtml(kind), ms);
    }
    table.AddRow(
        {absl::StrCat(EscapeHtml(key.first), " <small>", EscapeHtml(key.second), "</small>"),
         absl::StrFormat("%.1f", sum.calls), absl::StrFormat("%.3f", sum.bytes / 1e6),
         absl::StrFormat("%.3f", sum.total_ms), absl::StrFormat("%.3f", sum.exposed_ms),
         under.empty() ? "nothing" : under});
  }
  return table.Text();
}

}  // namespace tools
