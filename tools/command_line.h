// The command line of every tool: grouped help with examples, completion, nearest names.
//
//   int main(int argc, char** argv) {
//     return tools::RunTool(argc, argv, kHelp, [](const std::vector<std::string>& arguments)
//     {...});
//   }
#ifndef TOOLS_COMMAND_LINE_H_
#define TOOLS_COMMAND_LINE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

struct CommandHelp {
  struct Example {
    std::string purpose;  // "a minute's training on a laptop"
    std::string command;  // "bazel run //tools:track1 -- --preset=demo"
  };
  struct Group {
    std::string title;               // "Data"
    std::vector<std::string> flags;  // in the order in which help shows them
  };

  std::string name;     // the program's: "track1"
  std::string summary;  // what it does, in whole sentences
  std::string usage;    // "bazel run //tools:track1 -- [flags]"
  std::vector<Example> examples;
  std::vector<Group> groups;  // all flags of the program, each once
  std::string version = "";   // what --version prints; empty: BuildInfo
};

// What --help prints. CHECKs that the groups name each of the program's flags once, and no others.
std::string HelpText(const CommandHelp& help);

// A bash function that completes the program's flags, and files after them.
std::string CompletionText(const CommandHelp& help);

// InvalidArgument for the first argument before "--" that looks like a flag and is none, with the
// nearest flag if one is near.
absl::Status CheckFlagNames(int argc, char* const* argv);

// Sets the flags and returns the other arguments, without the program's name. Ends the program
// with 0 after --help (-h), --version or --completion=bash, and with 1 for a flag's bad value.
// --help=true (1, yes) and --help=false (--nohelp) are what they are of a boolean flag; so with
// --version. InvalidArgument as CheckFlagNames, and for another value of these.
absl::StatusOr<std::vector<std::string>> ParseCommandLine(int argc, char** argv,
                                                          const CommandHelp& help);

// OK if there are none; for tools that have only flags.
absl::Status NoArguments(const std::vector<std::string>& arguments);

// main() of a tool: parses, enters the folder that the user called `bazel run` from, runs, prints
// an error as "NAME: what" to stderr. The exit code is that of tools/trainer/exit_code.h.
int RunTool(int argc, char** argv, const CommandHelp& help,
            const std::function<absl::Status(const std::vector<std::string>& arguments)>& run);

}  // namespace tools

#endif  // TOOLS_COMMAND_LINE_H_
