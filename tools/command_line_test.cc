#include "tools/command_line.h"

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "gtest/gtest.h"

ABSL_FLAG(int, nanospeed_steps, 7, "Steps of the test.");
ABSL_FLAG(bool, nanospeed_resume, false, "Whether it resumes.");

namespace tools {
namespace {

std::string Check(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  static std::string program = "program";
  argv.push_back(program.data());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  const absl::Status status = CheckFlagNames(static_cast<int>(argv.size()), argv.data());
  return std::string(status.message());
}

TEST(CommandLine, KnownOnesPass) {
  EXPECT_EQ(Check({"--nanospeed_steps=3", "-nanospeed_steps=3", "--nanospeed_steps", "3",
                   "--nonanospeed_resume", "file", "-"}),
            "");
  EXPECT_EQ(Check({"--", "--whatever"}), "");
  EXPECT_EQ(Check({"--nanospeed_steps", "-1"}), "");
  EXPECT_NE(Check({"--nanospeed_resume", "-1"}), "");  // needs no value
}

TEST(CommandLine, X1_MisspeltOnesGetTheNearestName) {
  EXPECT_EQ(Check({"--nanospeed_step=3"}),
            "--nanospeed_step: no such flag; did you mean --nanospeed_steps?");
  EXPECT_EQ(Check({"--nanospeed_resum"}),
            "--nanospeed_resum: no such flag; did you mean --nanospeed_resume?");
  EXPECT_EQ(Check({"--zzzzzzzzzzzzzzzzzzzz"}),
            "--zzzzzzzzzzzzzzzzzzzz: no such flag; --help lists them");
  // "no" goes before flags that are true or false only.
  EXPECT_NE(Check({"--nonanospeed_steps"}), "");
}

CommandHelp Help() {
  return {.name = "program",
          .summary = "Tests.",
          .usage = "program [flags] FILE...",
          .examples = {{"three steps", "program --nanospeed_steps=3"}},
          .groups = {{"Length", {"nanospeed_steps"}}, {"Rest", {"nanospeed_resume"}}}};
}

// The test framework's own flags are not Abseil's here, so all flags of this program are ours.
TEST(CommandLine, HelpIsGrouped) {
  EXPECT_EQ(HelpText(Help()),
            R"(program: Tests.

Usage: program [flags] FILE...

Examples:
  # three steps
  program --nanospeed_steps=3

Length (defaults are shown)
  --nanospeed_steps=7
      Steps of the test.

Rest (defaults are shown)
  --nanospeed_resume
      Whether it resumes.

Of every tool
  --help, --version
  --flagfile=FILE
      Flags from a file, a line each.
  --completion=bash
      Prints what teaches bash the flags: source <(program --completion=bash)
)");
}

TEST(CommandLineDeathTest, HelpNamesEachFlagOnce) {
  CommandHelp help = Help();
  help.groups.pop_back();
  EXPECT_DEATH(HelpText(help), "lacks --nanospeed_resume");
  help.groups[0].flags.push_back("nanospeed_steps");
  EXPECT_DEATH(HelpText(help), "--nanospeed_steps twice");
  help.groups[0].flags = {"nanospeed_stepz"};
  EXPECT_DEATH(HelpText(help), "no flag --nanospeed_stepz");
}

TEST(CommandLine, CompletionHasAllFlags) {
  EXPECT_EQ(CompletionText(Help()),
            "complete -o nospace -o bashdefault -o default -W '--help --version --flagfile= "
            "--nanospeed_steps= --nanospeed_resume' program\n");
}

TEST(CommandLine, RunGetsTheOtherArguments) {
  std::vector<std::string> words = {"program", "--nanospeed_steps=3", "a", "--", "--b"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  std::vector<std::string> seen;
  const int code = RunTool(static_cast<int>(argv.size()), argv.data(), Help(),
                           [&](const std::vector<std::string>& arguments) {
                             seen = arguments;
                             return absl::DataLossError("a: is cut off");
                           });
  EXPECT_EQ(code, 1);
  EXPECT_EQ(seen, (std::vector<std::string>{"a", "--b"}));
  EXPECT_EQ(absl::GetFlag(FLAGS_nanospeed_steps), 3);
}

int CodeOf(std::vector<std::string> words, std::vector<std::string>* seen) {
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return RunTool(static_cast<int>(argv.size()), argv.data(), Help(),
                 [&](const std::vector<std::string>& arguments) {
                   *seen = arguments;
                   return absl::OkStatus();
                 });
}

TEST(CommandLineDeathTest, F1_HelpAndVersionAreAsBooleanFlags) {
  std::vector<std::string> seen;
  for (const char* flag : {"--help", "-h", "--help=1", "-help=true", "--help=yes", "--version=1",
                           "--version", "--version=t", "--completion=bash"}) {
    EXPECT_EXIT(CodeOf({"a", flag}, &seen), testing::ExitedWithCode(0), "") << flag;
  }
  EXPECT_EQ(CodeOf({"--nohelp", "a", "--help=false", "--version=0", "--noversion"}, &seen), 0);
  EXPECT_EQ(seen, std::vector<std::string>{"a"});
  EXPECT_EQ(CodeOf({"--", "--help"}, &seen), 0);
  EXPECT_EQ(seen, std::vector<std::string>{"--help"});
  for (const char* flag :
       {"--help=maybe", "--version=", "--nohelp=1", "--completion", "--completion=zsh", "-h=1"}) {
    EXPECT_EQ(CodeOf({flag}, &seen), 1) << flag;
  }
}

}  // namespace
}  // namespace tools
