#include "tools/flag_names.h"

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "gtest/gtest.h"

ABSL_FLAG(int, nanospeed_steps, 0, "for the test");
ABSL_FLAG(bool, nanospeed_resume, false, "for the test");

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

TEST(FlagNames, KnownOnesPass) {
  EXPECT_EQ(Check({"--nanospeed_steps=3", "-nanospeed_steps=3", "--nanospeed_steps", "3",
                   "--nonanospeed_resume", "file", "-"}),
            "");
  EXPECT_EQ(Check({"--", "--whatever"}), "");
}

TEST(FlagNames, X1_MisspeltOnesGetTheNearestName) {
  EXPECT_EQ(Check({"--nanospeed_step=3"}),
            "--nanospeed_step: no such flag; did you mean --nanospeed_steps?");
  EXPECT_EQ(Check({"--nanospeed_resum"}),
            "--nanospeed_resum: no such flag; did you mean --nanospeed_resume?");
  EXPECT_EQ(Check({"--zzzzzzzzzzzzzzzzzzzz"}),
            "--zzzzzzzzzzzzzzzzzzzz: no such flag; --help lists them");
  // "no" goes before flags that are true or false only.
  EXPECT_NE(Check({"--nonanospeed_steps"}), "");
}

}  // namespace
}  // namespace tools
