#include "tools/output_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

std::string Where(const OutputFile& file) {
  return absl::StrCat("--", file.flag, "=", file.path, ": ");
}

absl::Status CheckFolder(const OutputFile& file) {
  const std::string parent = fs::path(file.path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(file), "its folder ", folder, ": ", std::strerror(errno)));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(Where(file), folder, " is no folder"));
  }
  if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Where(file), "cannot write in ", folder, ": ", std::strerror(errno)));
}

absl::Status CheckFile(const OutputFile& file, bool overwrite) {
  struct stat info = {};
  if (stat(file.path.c_str(), &info) != 0) return CheckFolder(file);
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(file), "is a folder; give the name of a file"));
  }
  if (!S_ISREG(info.st_mode) || info.st_size == 0 || overwrite) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Where(file), "exists; give another name, or --overwrite to replace it"));
}

}  // namespace

absl::Status CheckOutputFiles(const std::vector<OutputFile>& files, bool overwrite) {
  std::map<std::string, std::string> flag_of;  // by where the path leads
  for (const OutputFile& file : files) {
    if (file.path.empty()) continue;
    ABSL_RETURN_IF_ERROR(CheckFile(file, overwrite));
    std::error_code error;
    if (fs::exists(file.path, error) && !fs::is_regular_file(file.path, error)) continue;
    const std::string target = fs::weakly_canonical(file.path, error).string();
    const auto [other, first] = flag_of.emplace(error ? file.path : target, file.flag);
    if (first) continue;
    return absl::InvalidArgumentError(absl::StrCat(Where(file), "is what --", other->second,
                                                   " names; give each a file of its own"));
  }
  return absl::OkStatus();
}

absl::Status CheckMetricsToAppendTo(const OutputFile& file) {
  std::error_code error;
  if (!fs::is_regular_file(file.path, error)) return absl::OkStatus();
  std::ifstream in(file.path);
  std::string begin(8, '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(in.gcount()));
  // As RunLog begins each line.
  if (begin.empty() || absl::StartsWith("{\"step\":", begin)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Where(file),
                   "is no metrics file, so that a resumed run does not go on in it; give the "
                   "file of the run, or another name"));
}

}  // namespace tools
