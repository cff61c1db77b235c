// Starts the ranks of a job on this machine, where there is no torchrun or mpirun:
//
//   bazel run --config=nccl //tools:launch -- --nproc=8 //tools:track1 --preset=full ...
//   bazel-bin/tools/launch --nproc=8 bazel-bin/tools/track1 --preset=full ...
//
// launch_job.h says what it does with them. For programs whose ranks are processes that need no
// launcher of their own: those of the nccl backend, not those of mpi.

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "comm/process_rank.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/launch_job.h"
#include "tools/working_folder.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

constexpr char kUsage[] =
    "launch --nproc=N [--grace=10s] PROGRAM [ARGUMENT]...\n"
    "Runs N processes of PROGRAM on this machine as the ranks of one job. PROGRAM is a path, or a\n"
    "label such as //tools:track1, which is the program of that name built beside this one.\n"
    "Standard output is rank 0's; lines on standard error begin with [rank N]. The exit code is\n"
    "that of the first rank that fails; the others are killed if they still run --grace later.\n";

// "//tools:track1" beside this program, which is //tools:launch; "//pkg" is "//pkg:pkg".
absl::StatusOr<std::string> ProgramOfLabel(const std::string& label, const fs::path& outputs) {
  const std::vector<std::string> parts = absl::StrSplit(label.substr(2), ':');
  const std::string name = parts.size() == 2 ? parts[1] : fs::path(parts[0]).filename().string();
  if (parts.size() > 2 || parts[0].empty() || name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": not a label such as //tools:track1"));
  }
  const fs::path program = outputs / parts[0] / name;
  if (!fs::is_regular_file(program)) {
    return absl::NotFoundError(absl::StrCat(label, ": there is no ", program.string(),
                                            "; build it first, as launch was: bazel build ",
                                            label));
  }
  return program.string();
}

absl::StatusOr<std::string> ProgramOf(const std::string& word, const fs::path& outputs) {
  if (absl::StartsWith(word, "//")) return ProgramOfLabel(word, outputs);
  std::error_code error;
  const fs::path path = fs::absolute(word, error);
  if (access(path.c_str(), X_OK) != 0 || !fs::is_regular_file(path)) {
    return absl::NotFoundError(
        absl::StrCat(word, ": no such program; give a path, or a label such as //tools:track1"));
  }
  return path.string();
}

// Flags of this program stand before PROGRAM, all others belong to it.
absl::StatusOr<LaunchOptions> Parse(const std::vector<std::string>& words,
                                    const fs::path& outputs) {
  LaunchOptions options;
  bool has_ranks = false;
  size_t at = 0;
  for (; at < words.size() && absl::StartsWith(words[at], "-"); ++at) {
    absl::string_view value = words[at];
    if (absl::ConsumePrefix(&value, "--nproc=")) {
      if (!absl::SimpleAtoi(value, &options.ranks) || options.ranks < 1 || options.ranks > 1024) {
        return absl::InvalidArgumentError(absl::StrCat(words[at], ": must be from 1 to 1024"));
      }
      has_ranks = true;
    } else if (absl::ConsumePrefix(&value, "--grace=")) {
      if (!absl::ParseDuration(value, &options.grace) || options.grace < absl::ZeroDuration()) {
        return absl::InvalidArgumentError(absl::StrCat(words[at], ": not a time such as 10s"));
      }
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(words[at],
                       ": no flag of launch, which has --nproc=N and --grace=10s; flags of the "
                       "program come after its name"));
    }
  }
  if (!has_ranks) return absl::InvalidArgumentError("--nproc=N is missing: how many ranks?");
  if (at == words.size()) return absl::InvalidArgumentError("which program? See launch --help");
  ABSL_ASSIGN_OR_RETURN(const std::string program, ProgramOf(words[at], outputs));
  options.command = {program};
  options.command.insert(options.command.end(), words.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                         words.end());
  return options;
}

absl::StatusOr<int> Main(const std::vector<std::string>& words) {
  std::error_code error;
  // bazel-bin, of which this program is tools/launch
  const fs::path outputs = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  ABSL_RETURN_IF_ERROR(EnterCallersFolder());
  ABSL_ASSIGN_OR_RETURN(const LaunchOptions options, Parse(words, outputs));
  ABSL_ASSIGN_OR_RETURN(const comm::ProcessRank where, comm::GetProcessRank());
  if (where.size > 1) {
    return absl::InvalidArgumentError(absl::StrCat("this is itself rank ", where.rank, " of ",
                                                   where.size, ", started by ", where.launcher,
                                                   "; let that start the program, without launch"));
  }
  return RunJob(options);
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    std::fputs(tools::kUsage, stdout);
    return 0;
  }
  const absl::StatusOr<int> code = tools::Main(words);
  if (code.ok()) return *code;
  std::fprintf(stderr, "launch: %s\n", std::string(code.status().message()).c_str());
  return 1;
}
