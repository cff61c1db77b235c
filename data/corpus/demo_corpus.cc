#include "data/corpus/demo_corpus.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace data {
namespace {

namespace fs = std::filesystem;

constexpr char kTrain[] = "nanospeed/data/corpus/demo_train.bin";
constexpr char kVal[] = "nanospeed/data/corpus/demo_val.bin";
constexpr char kRemedy[] =
    "install Debian's package fortunes (./bazelw does it), then build again; "
    "or give --train_files and --val_files";

std::string ExecutablePath() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).string();
}

std::vector<std::string> RunfilesFolders(const std::string& executable) {
  std::vector<std::string> folders;
  for (const char* variable : {"RUNFILES_DIR", "TEST_SRCDIR"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') folders.push_back(value);
  }
  folders.push_back(executable + ".runfiles");
  return folders;
}

// The path that a list of runfiles, lines of "name path", has for `name`; empty if none.
std::string LookUp(const std::string& manifest, absl::string_view name) {
  std::ifstream file(manifest);
  const std::string prefix = absl::StrCat(name, " ");
  std::string line;
  while (std::getline(file, line)) {
    if (absl::StartsWith(line, prefix)) return line.substr(prefix.size());
  }
  return "";
}

std::string Find(absl::string_view name) {
  const std::string executable = ExecutablePath();
  std::error_code error;
  for (const std::string& folder : RunfilesFolders(executable)) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (fs::exists(path, error)) return path;
  }
  const std::string path = LookUp(executable + ".runfiles_manifest", name);
  return fs::exists(path, error) ? path : "";
}

absl::StatusOr<std::string> FindShard(absl::string_view name) {
  const std::string path = Find(name);
  if (path.empty()) {
    return absl::NotFoundError(absl::StrCat("the built-in corpus, ", name,
                                            ", is not among this program's runfiles; ", kRemedy));
  }
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrCat(path, ": ", error.message(), "; ", kRemedy));
  if (bytes == 0) {
    return absl::NotFoundError(absl::StrCat(
        path, ": the built-in corpus is empty, since its texts were absent at build time; ",
        kRemedy));
  }
  return path;
}

}  // namespace

absl::StatusOr<DemoCorpus> FindDemoCorpus() {
  absl::StatusOr<std::string> train = FindShard(kTrain);
  if (!train.ok()) return train.status();
  absl::StatusOr<std::string> val = FindShard(kVal);
  if (!val.ok()) return val.status();
  return DemoCorpus{*train, *val};
}

}  // namespace data
