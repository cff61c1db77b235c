#include "tools/report/page.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/report/assets.h"
#include "tools/report/groups.h"
#include "tools/report/html.h"
#include "tools/report/page_data.h"
#include "tools/report/tables.h"
#include "tools/verify_record/record_report.h"

namespace tools {
namespace {

// Nothing is loaded from anywhere: neither by mistake nor through a run's name.
constexpr char kPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

std::string Head(const std::string& title) {
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"",
      kPolicy,
      "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>",
      EscapeHtml(title), "</title>\n<style>\n", kReportStyle, "</style>\n</head>\n");
}

// "3 runs, 2 groups, 1 trace"
std::string Counts(const Inputs& inputs, size_t groups) {
  const auto counted = [](size_t n, absl::string_view what) {
    return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
  };
  std::string text = counted(inputs.runs.size(), "run");
  if (groups > 0) absl::StrAppend(&text, " in ", counted(groups, "group"));
  if (!inputs.traces.empty()) absl::StrAppend(&text, ", ", counted(inputs.traces.size(), "trace"));
  return text;
}

std::string NotesSection(const Inputs& inputs) {
  const std::vector<std::string> notes = InputNotes(inputs);
  if (notes.empty()) return "";
  std::string html =
      "<section class=\"notes\" aria-labelledby=\"notes-title\">\n"
      "<h2 id=\"notes-title\">Read with care</h2>\n<ul>\n";
  for (const std::string& note : notes) {
    absl::StrAppend(&html, "<li>", EscapeHtml(note), "</li>\n");
  }
  return absl::StrCat(html, "</ul>\n</section>\n");
}

std::string RunsSection(const Inputs& inputs, const std::vector<GroupSummary>& groups,
                        double target) {
  if (inputs.runs.empty()) return "";
  std::string html =
      absl::StrCat("<section aria-labelledby=\"runs-title\">\n<h2 id=\"runs-title\">Results</h2>\n",
                   RunsTable(inputs.runs, target), GroupTables(groups, target));
  if (!groups.empty()) {
    absl::StrAppendFormat(
        &html,
        "<p class=\"hint\">p: one-sided t-test of the final losses against %g; the rule for "
        "records is p &lt; %g. Between groups: Welch's t-test, which lets variances differ.</p>\n",
        target, kRecordLevel);
  } else if (inputs.runs.size() > 1) {
    absl::StrAppend(&html,
                    "<p class=\"hint\">Runs of one program can be pooled for a t-test: give them "
                    "as GROUP:PATH.</p>\n");
  }
  return absl::StrCat(html, "</section>\n");
}

std::string TraceSections(const Inputs& inputs) {
  if (inputs.traces.empty()) return "";
  std::string html =
      "<section aria-labelledby=\"phases-title\">\n<h2 id=\"phases-title\">Where a step's time "
      "goes</h2>\n<div id=\"phases\"></div>\n</section>\n";
  for (size_t i = 0; i < inputs.traces.size(); ++i) {
    const TraceFile& trace = inputs.traces[i];
    absl::StrAppend(&html, "<section aria-labelledby=\"trace-title-", i,
                    "\">\n<h2 id=\"trace-title-", i, "\">Communication of ", EscapeHtml(trace.name),
                    "</h2>\n<p class=\"hint\">", EscapeHtml(trace.about),
                    "</p>\n<div class=\"timeline\" data-trace=\"", i, "\"></div>\n",
                    CollectivesTable(trace, absl::StrCat("collectives-", i)), "</section>\n");
  }
  return html;
}

// How many rows the curves have, if they have fewer than the files.
std::string DrawnText(const Inputs& inputs) {
  for (const TrainingRun& run : inputs.runs) {
    if (run.steps.size() <= kMostDrawnRows) continue;
    return absl::StrFormat(
        "Runs of more than %d steps are drawn with fewer points: of each of %d equal stretches "
        "those with the least and the greatest loss and step time, and all corners of schedules. "
        "Smoothed curves are means over all steps.",
        kMostDrawnRows, kMostDrawnRows / 4);
  }
  return "Curves show every step.";
}

}  // namespace

std::vector<std::string> InputNotes(const Inputs& inputs) {
  std::vector<std::string> notes;
  for (const TrainingRun& run : inputs.runs) {
    for (const std::string& note : run.notes) notes.push_back(absl::StrCat(run.name, ": ", note));
  }
  for (const TraceFile& trace : inputs.traces) {
    for (const std::string& note : trace.notes) {
      notes.push_back(absl::StrCat(trace.name, ": ", note));
    }
  }
  notes.insert(notes.end(), inputs.notes.begin(), inputs.notes.end());
  return notes;
}

std::string Page(const Inputs& inputs, const PageOptions& options) {
  const std::vector<GroupSummary> groups = SummarizeGroups(inputs.runs, options.target);
  return absl::StrCat(
      Head(options.title), "<body>\n<header>\n<h1>", EscapeHtml(options.title),
      "</h1>\n<p class=\"hint\">", Counts(inputs, groups.size()),
      "</p>\n<div id=\"theme\"></div>\n</header>\n<main>\n",
      "<noscript><p class=\"notes\">The charts need JavaScript; the tables do "
      "not.</p></noscript>\n",
      NotesSection(inputs), RunsSection(inputs, groups, options.target),
      inputs.runs.empty() ? "" : "<div id=\"charts\"></div>\n", TraceSections(inputs),
      "</main>\n<footer class=\"hint\">", DrawnText(inputs),
      " Drag over a chart to zoom, double-click to go back; the arrow keys move the "
      "cursor.</footer>\n<script type=\"application/json\" id=\"data\">\n",
      PageData(inputs, options.target), "\n</script>\n<script>\n", kReportScript,
      "</script>\n</body>\n</html>\n");
}

}  // namespace tools
