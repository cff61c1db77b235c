#include "tools/command_line.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/build_info.h"
#include "tools/trainer/exit_code.h"
#include "tools/working_folder.h"

namespace tools {
namespace {

// Not Abseil's flags: they are answered before it parses.
constexpr absl::string_view kOfEveryTool[] = {"completion", "help", "version"};

// Levenshtein's distance.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// An argument as Abseil reads flags: one dash or two, then a name, and a value after "=".
struct FlagText {
  absl::string_view name;
  std::optional<absl::string_view> value;
};

// Nothing for an argument that is no flag.
std::optional<FlagText> AsFlag(absl::string_view argument) {
  if (argument.size() < 2 || argument[0] != '-') return std::nullopt;
  argument.remove_prefix(absl::StartsWith(argument, "--") ? 2 : 1);
  const size_t equals = argument.find('=');
  if (equals == absl::string_view::npos) return FlagText{argument, std::nullopt};
  return FlagText{argument.substr(0, equals), argument.substr(equals + 1)};
}

// A truth value as Abseil's flags take them.
std::optional<bool> AsBool(absl::string_view value) {
  bool parsed = false;
  if (!absl::SimpleAtob(value, &parsed)) return std::nullopt;
  return parsed;
}

// Is it asked for by this flag: --NAME, --NAME=1, and not by --NAME=false and --noNAME? Nothing if
// the flag is another one. InvalidArgument for --NAME=maybe and --noNAME=1.
absl::StatusOr<std::optional<bool>> AsksFor(absl::string_view name, const FlagText& flag) {
  if (flag.name == absl::StrCat("no", name)) {
    if (!flag.value.has_value()) return {false};
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag.name, "=", *flag.value, ": --", flag.name, " takes no value"));
  }
  if (flag.name != name) return {std::nullopt};
  if (!flag.value.has_value()) return {true};
  const std::optional<bool> asked = AsBool(*flag.value);
  if (asked.has_value()) return {asked};
  return absl::InvalidArgumentError(absl::StrCat("--", name, "=", *flag.value, ": --", name,
                                                 " takes no value but true or false"));
}

// --help, or -h, or --version, which Abseil does not know.
bool IsAnswered(const FlagText& flag) {
  for (const absl::string_view name : {"help", "version"}) {
    const auto asked = AsksFor(name, flag);
    if (asked.ok() && asked->has_value()) return true;
  }
  return false;
}

bool Exists(absl::string_view name) {
  if (absl::FindCommandLineFlag(name) != nullptr) return true;
  if (!absl::StartsWith(name, "no")) return false;
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name.substr(2));
  return flag != nullptr && flag->IsOfType<bool>();
}

std::string Nearest(absl::string_view name) {
  std::vector<std::string> names(std::begin(kOfEveryTool), std::end(kOfEveryTool));
  for (const auto& [other, flag] : absl::GetAllFlags()) {
    names.emplace_back(other.data(), other.size());
  }
  // Of equally near ones the first by name, whatever order the table has.
  std::sort(names.begin(), names.end());
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& other : names) {
    const size_t distance = Distance(name, other);
    if (distance >= best_distance) continue;
    best = other;
    best_distance = distance;
  }
  return best;
}

constexpr size_t kWidth = 92;

// Appends `text` in lines of at most kWidth, each after `indent` spaces.
void AppendWrapped(size_t indent, absl::string_view text, std::string* out) {
  std::string line;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!line.empty() && indent + line.size() + 1 + word.size() > kWidth) {
      absl::StrAppend(out, std::string(indent, ' '), line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  if (!line.empty()) absl::StrAppend(out, std::string(indent, ' '), line, "\n");
}

// Those of Abseil itself lie in its sources.
bool IsOwn(const absl::CommandLineFlag& flag) {
  const std::string file = flag.Filename();
  return !absl::StrContains(file, "absl/flags/");
}

void AppendFlag(const absl::CommandLineFlag& flag, std::string* out) {
  const absl::string_view name = flag.Name();
  const std::string value = flag.DefaultValue();
  std::string shown = absl::StrCat("  --", name);
  if (flag.IsOfType<bool>()) {
    if (value == "true") shown = absl::StrCat("  --no", name);
  } else if (flag.IsOfType<std::string>()) {
    absl::StrAppend(&shown, "=", value.empty() ? "..." : value);
  } else {
    absl::StrAppend(&shown, "=", value);
  }
  absl::StrAppend(out, shown, "\n");
  AppendWrapped(6, flag.Help(), out);
}

[[noreturn]] void PrintAndExit(const std::string& text) {
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  std::exit(written ? 0 : 1);
}

}  // namespace

std::string HelpText(const CommandHelp& help) {
  std::string text;
  AppendWrapped(0, absl::StrCat(help.name, ": ", help.summary), &text);
  absl::StrAppend(&text, "\nUsage: ", help.usage, "\n");
  if (!help.examples.empty()) absl::StrAppend(&text, "\nExamples:\n");
  for (const CommandHelp::Example& example : help.examples) {
    absl::StrAppend(&text, "  # ", example.purpose, "\n  ", example.command, "\n");
  }
  std::set<std::string> shown;
  for (const CommandHelp::Group& group : help.groups) {
    absl::StrAppend(&text, "\n", group.title, " (defaults are shown)\n");
    for (const std::string& name : group.flags) {
      const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
      CHECK(flag != nullptr) << "help of " << help.name << " has no flag --" << name;
      CHECK(shown.insert(name).second) << "help of " << help.name << " has --" << name << " twice";
      AppendFlag(*flag, &text);
    }
  }
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    CHECK(!IsOwn(*flag) || shown.count(std::string(name.data(), name.size())))
        << "help of " << help.name << " lacks --" << name;
  }
  absl::StrAppend(&text,
                  "\nOf every tool\n"
                  "  --help, --version\n"
                  "  --flagfile=FILE\n"
                  "      Flags from a file, a line each.\n"
                  "  --completion=bash\n"
                  "      Prints what teaches bash the flags: source <(",
                  help.name, " --completion=bash)\n");
  return text;
}

std::string CompletionText(const CommandHelp& help) {
  std::vector<std::string> words = {"--help", "--version", "--flagfile="};
  for (const CommandHelp::Group& group : help.groups) {
    for (const std::string& name : group.flags) {
      const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
      CHECK(flag != nullptr) << name;
      words.push_back(absl::StrCat("--", name, flag->IsOfType<bool>() ? "" : "="));
    }
  }
  // Bash cuts words at "=", so that what follows it is completed as a file.
  return absl::StrCat("complete -o nospace -o bashdefault -o default -W '",
                      absl::StrJoin(words, " "), "' ", help.name, "\n");
}

absl::Status CheckFlagNames(int argc, char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "--") break;
    const std::optional<FlagText> text = AsFlag(argument);
    if (!text.has_value() || IsAnswered(*text)) continue;
    const absl::string_view name = text->name;
    if (!Exists(name)) {
      const std::string nearest = Nearest(name);
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, ": no such flag",
                       nearest.empty() ? "; --help lists them"
                                       : absl::StrCat("; did you mean --", nearest, "?")));
    }
    // "--seed -1": the next argument is the value, whatever it begins with.
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    if (!text->value.has_value() && flag != nullptr && !flag->IsOfType<bool>()) ++i;
  }
  return absl::OkStatus();
}

namespace {

// The arguments that are for Abseil to parse, or the end of the program where help, the version or
// a completion is asked for. InvalidArgument for values that these flags do not take.
absl::StatusOr<std::vector<char*>> AnswerGeneralFlags(int argc, char** argv,
                                                      const CommandHelp& help) {
  std::vector<char*> left = {argv[0]};
  int i = 1;
  for (; i < argc && absl::string_view(argv[i]) != "--"; ++i) {
    const std::optional<FlagText> flag = AsFlag(argv[i]);
    if (flag.has_value()) {
      ABSL_ASSIGN_OR_RETURN(const std::optional<bool> helps, AsksFor("help", *flag));
      ABSL_ASSIGN_OR_RETURN(const std::optional<bool> version, AsksFor("version", *flag));
      if (helps == true || (flag->name == "h" && !flag->value.has_value())) {
        PrintAndExit(HelpText(help));
      }
      if (version == true) {
        PrintAndExit(
            absl::StrCat(help.version.empty() ? BuildInfo(help.name) : help.version, "\n"));
      }
      if (flag->name == "completion") {
        if (flag->value == "bash") PrintAndExit(CompletionText(help));
        return absl::InvalidArgumentError("--completion: for bash alone; give --completion=bash");
      }
      if (helps.has_value() || version.has_value()) continue;
      // "--seed -1": the next argument is the value, whatever it begins with.
      const absl::CommandLineFlag* const known = absl::FindCommandLineFlag(flag->name);
      if (!flag->value.has_value() && known != nullptr && !known->IsOfType<bool>()) {
        left.push_back(argv[i++]);
        if (i == argc) break;
      }
    }
    left.push_back(argv[i]);
  }
  left.insert(left.end(), argv + i, argv + argc);
  return left;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseCommandLine(int argc, char** argv,
                                                          const CommandHelp& help) {
  ABSL_ASSIGN_OR_RETURN(std::vector<char*> left, AnswerGeneralFlags(argc, argv, help));
  const int count = static_cast<int>(left.size());
  ABSL_RETURN_IF_ERROR(CheckFlagNames(count, left.data()));
  const std::vector<char*> rest = absl::ParseCommandLine(count, left.data());
  return std::vector<std::string>(rest.begin() + 1, rest.end());
}

absl::Status NoArguments(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", arguments[0], "\": not a flag; all arguments are flags, such as --name=value"));
}

int RunTool(int argc, char** argv, const CommandHelp& help,
            const std::function<absl::Status(const std::vector<std::string>& arguments)>& run) {
  absl::StatusOr<std::vector<std::string>> arguments = ParseCommandLine(argc, argv, help);
  absl::Status status = arguments.status();
  if (status.ok()) status = EnterCallersFolder();
  if (status.ok()) status = run(*arguments);
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", help.name.c_str(), std::string(status.message()).c_str());
  }
  return ExitCode(status);
}

}  // namespace tools
