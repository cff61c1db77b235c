// Command lines, an argument a line: what is no flag is answered, and nothing else happens.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_split.h"
#include "third_party/absl_compat/check.h"
#include "tools/command_line.h"

ABSL_FLAG(int, steps, 0, "For the target.");
ABSL_FLAG(bool, resume, false, "For the target.");

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> words = {"program"};
  // The system hands over no argument with a zero byte in it.
  for (const auto word : absl::StrSplit(text.substr(0, text.find('\0')), '\n')) {
    words.emplace_back(word);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const absl::Status status = tools::CheckFlagNames(static_cast<int>(argv.size()), argv.data());
  CHECK(status.ok() || status.code() == absl::StatusCode::kInvalidArgument);
  return 0;
}
