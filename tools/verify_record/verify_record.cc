// verify_record LOG...: do these runs make a record?
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/command_line.h"
#include "tools/verify_record/record_report.h"
#include "tools/verify_record/run_set.h"

ABSL_FLAG(std::string, logs, "",
          "Logs of finished runs, names or globs with commas between them; as the arguments.");
ABSL_FLAG(std::string, losses, "", "In place of logs: final losses, separated by commas.");
ABSL_FLAG(std::string, times, "", "In place of logs: train times in seconds.");
ABSL_FLAG(double, target, 3.28, "The loss that the mean has to be below.");
ABSL_FLAG(std::string, baseline, "", "Globs of logs of the program to compare with.");
ABSL_FLAG(std::string, baseline_losses, "", "In place of --baseline: its final losses.");
ABSL_FLAG(std::string, baseline_times, "", "In place of --baseline: its train times in seconds.");

namespace {

// One set of runs as the command line names it.
struct Source {
  std::vector<std::string> globs;
  const char *losses_flag, *times_flag;
  std::string losses, times;

  bool has_lists() const { return !losses.empty() || !times.empty(); }
};

absl::Status CheckOneKind(const Source& source) {
  if (!source.has_lists() || source.globs.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", source.globs.front(), "\" and --",
                                                 source.losses_flag, " or --", source.times_flag,
                                                 " at once; give either logs or numbers"));
}

absl::Status ReadLists(const Source& source, tools::RunSet* runs) {
  if (!source.has_lists()) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(runs->losses, tools::ParseList(source.losses_flag, source.losses));
  ABSL_ASSIGN_OR_RETURN(runs->times_s, tools::ParseList(source.times_flag, source.times));
  return absl::OkStatus();
}

absl::Status Run(std::vector<std::string> globs) {
  const double target = absl::GetFlag(FLAGS_target);
  if (!std::isfinite(target) || target <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target=", target, ": must be a positive number, such as 3.28"));
  }
  if (!absl::GetFlag(FLAGS_logs).empty()) globs.push_back(absl::GetFlag(FLAGS_logs));
  std::vector<std::string> baseline_globs;
  if (!absl::GetFlag(FLAGS_baseline).empty()) {
    baseline_globs.push_back(absl::GetFlag(FLAGS_baseline));
  }
  const Source own = {std::move(globs), "losses", "times", absl::GetFlag(FLAGS_losses),
                      absl::GetFlag(FLAGS_times)};
  const Source other = {std::move(baseline_globs), "baseline_losses", "baseline_times",
                        absl::GetFlag(FLAGS_baseline_losses), absl::GetFlag(FLAGS_baseline_times)};
  for (const Source* source : {&own, &other}) ABSL_RETURN_IF_ERROR(CheckOneKind(*source));
  ABSL_ASSIGN_OR_RETURN(tools::RunSets sets, tools::ReadRunSets(own.globs, other.globs));
  for (const std::string& note : sets.notes) {
    std::fprintf(stderr, "verify_record: %s\n", note.c_str());
  }
  ABSL_RETURN_IF_ERROR(ReadLists(own, &sets.runs));
  ABSL_RETURN_IF_ERROR(ReadLists(other, &sets.baseline));
  ABSL_ASSIGN_OR_RETURN(const std::string report,
                        tools::RecordReport(sets.runs, sets.baseline, target));
  std::fputs(report.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "verify_record",
      .summary =
          "mean, deviation and t-test of the final losses and times of several runs. The exit code "
          "is 1 for bad input, and 0 whether or not the rule for records is met. What one run "
          "left, "
          "a printed log, a metrics file, a console's copy, counts once; copies are refused.",
      .usage = "bazel run //tools/verify_record -- [flags] LOG...",
      .examples =
          {{"printed logs or --metrics files, or globs of them",
            "bazel run //tools/verify_record -- 'logs/*.txt'"},
           {"two programs compared",
            "bazel run //tools/verify_record -- 'new/*.txt' --baseline='old/*.txt'"},
           {"the numbers themselves",
            "bazel run //tools/verify_record -- --losses=3.2804,3.2754 --times=139.8,139.4"}},
      .groups = {{"Runs", {"logs", "losses", "times", "target"}},
                 {"Runs to compare with", {"baseline", "baseline_losses", "baseline_times"}}}};
  return tools::RunTool(argc, argv, help, Run);
}
