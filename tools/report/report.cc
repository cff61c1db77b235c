// report RUN...: a page of curves, tables and timelines.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"
#include "tools/command_line.h"
#include "tools/output_files.h"
#include "tools/report/inputs.h"
#include "tools/report/loss_svg.h"
#include "tools/report/page.h"

ABSL_FLAG(std::string, out, "report.html", "The file to write.");
ABSL_FLAG(std::string, svg_dir, "",
          "Folder for loss_step.svg, loss_tokens.svg and loss_time.svg, the validation losses as "
          "files of their own, for pages that run no script. Empty: none are written.");
ABSL_FLAG(bool, overwrite, false, "Replace the page and the charts that are there.");
ABSL_FLAG(std::string, title, "Training runs", "The page's title.");
ABSL_FLAG(double, target, 3.28, "The loss that a record has to be below; 2.92 on track 2.");
ABSL_FLAG(std::string, group, "", "Pools all runs that are given without a group of their own.");
ABSL_FLAG(std::string, trace, "",
          "Globs of --trace files, separated by commas; they may be arguments as well.");

namespace {

const tools::CommandHelp kHelp = {
    "report",
    "Makes one HTML file from the logs of training runs: losses, schedules, step times, phases, "
    "communication, and a table with t-tests. It needs no network and no other file. "
    "RUN is [GROUP:][NAME=]PATH, where PATH is what a trainer printed (this one or the PyTorch "
    "original), a --metrics file, a --trace file, or a folder or glob of them. What one run "
    "left, a log, a metrics file, a console's copy, counts once; copies are refused. Runs of one "
    "GROUP are pooled.",
    "bazel run //tools/report -- [flags] RUN...",
    {{"two runs", "bazel run //tools/report -- base=logs/1.log muon=logs/2.log"},
     {"two programs, several runs each, and where the time goes",
      "bazel run //tools/report -- --trace=trace.json old:logs/old new:'logs/new/*.jsonl'"}},
    {{"Input", {"trace", "group"}}, {"Page", {"out", "svg_dir", "overwrite", "title", "target"}}}};

std::vector<std::string> Traces() {
  if (absl::GetFlag(FLAGS_trace).empty()) return {};
  return {absl::GetFlag(FLAGS_trace)};
}

std::string SvgPath(const std::string& folder, tools::LossAxis axis) {
  return absl::StrCat(folder, "/loss_", Name(axis), ".svg");
}

constexpr tools::LossAxis kAxes[] = {tools::LossAxis::kStep, tools::LossAxis::kTokens,
                                     tools::LossAxis::kTime};

absl::Status CheckOutputs(const std::string& out, const std::string& svg_dir) {
  std::vector<tools::OutputFile> files = {{"out", out}};
  std::error_code error;
  if (!svg_dir.empty() && std::filesystem::is_directory(svg_dir, error)) {
    for (const tools::LossAxis axis : kAxes) files.push_back({"svg_dir", SvgPath(svg_dir, axis)});
  }
  return tools::CheckOutputFiles(files, absl::GetFlag(FLAGS_overwrite));
}

// An axis of which no file says anything gives no chart.
absl::Status WriteSvgs(const std::vector<tools::TrainingRun>& runs, const std::string& folder) {
  const auto failed = [&](const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat("--svg_dir=", folder, ": ", status.message()));
  };
  if (const absl::Status made = tools::CreateFolders(folder); !made.ok()) return failed(made);
  bool any = false;
  for (const tools::LossAxis axis : kAxes) {
    const tools::LossSvg drawn = tools::DrawLosses(runs, axis);
    const std::string path = SvgPath(folder, axis);
    if (!drawn.lacking.empty()) {
      std::fprintf(stderr, "report: %s: without %s, which say no validation loss or no %s\n",
                   path.c_str(), absl::StrJoin(drawn.lacking, ", ").c_str(), Name(axis));
    }
    if (drawn.svg.empty()) continue;
    if (const absl::Status written = tools::WriteFileAtomically(path, {drawn.svg}); !written.ok()) {
      return failed(written);
    }
    std::printf("%s: %zu kB\n", path.c_str(), (drawn.svg.size() + 999) / 1000);
    any = true;
  }
  return any ? absl::OkStatus() : failed(absl::NotFoundError("no run has a validation loss"));
}

absl::Status Run(const std::vector<std::string>& arguments) {
  const double target = absl::GetFlag(FLAGS_target);
  if (!std::isfinite(target) || target <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target=", target, ": must be a positive number, such as 3.28"));
  }
  const std::string out = absl::GetFlag(FLAGS_out);
  if (out.empty()) return absl::InvalidArgumentError("--out is empty; give the file to write");
  const std::string svg_dir = absl::GetFlag(FLAGS_svg_dir);
  ABSL_RETURN_IF_ERROR(CheckOutputs(out, svg_dir));
  ABSL_ASSIGN_OR_RETURN(const tools::Inputs inputs,
                        tools::ReadInputs(arguments, Traces(), absl::GetFlag(FLAGS_group)));
  for (const std::string& note : tools::InputNotes(inputs)) {
    std::fprintf(stderr, "report: %s\n", note.c_str());
  }
  const std::string page = tools::Page(inputs, {absl::GetFlag(FLAGS_title), target});
  if (const absl::Status written = tools::WriteFileAtomically(out, {page}); !written.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--out=", out, ": ", written.message()));
  }
  std::printf("%s: %zu runs, %zu traces, %zu kB\n", out.c_str(), inputs.runs.size(),
              inputs.traces.size(), (page.size() + 999) / 1000);
  return svg_dir.empty() ? absl::OkStatus() : WriteSvgs(inputs.runs, svg_dir);
}

}  // namespace

int main(int argc, char** argv) { return tools::RunTool(argc, argv, kHelp, Run); }
