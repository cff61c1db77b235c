#include "tools/checkpoint/checkpoint_folder.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";
constexpr char kTemporaryPrefix[] = ".tmp-step-";
constexpr char kReplacedPrefix[] = ".old-step-";

std::string NameOf(const char* prefix, int64_t step) {
  return absl::StrFormat("%s%08d", prefix, step);
}

std::string PathOf(const std::string& root, const char* prefix, int64_t step) {
  return (fs::path(root) / NameOf(prefix, step)).string();
}

// Only as they are written here: "step-250" and "step-00000250.keep" are the user's own.
std::optional<int64_t> StepOfName(const std::string& name, const char* prefix) {
  absl::string_view number = name;
  int64_t step = 0;
  if (!absl::ConsumePrefix(&number, prefix) || !absl::SimpleAtoi(number, &step) || step < 0 ||
      NameOf(prefix, step) != name) {
    return std::nullopt;
  }
  return step;
}

absl::Status Failed(absl::string_view what, const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(path, ": cannot ", what, ": ", error.message()));
}

}  // namespace

std::string CheckpointPath(const std::string& root, int64_t step) {
  return PathOf(root, kPrefix, step);
}
std::string TemporaryPath(const std::string& root, int64_t step) {
  return PathOf(root, kTemporaryPrefix, step);
}
std::string ReplacedPath(const std::string& root, int64_t step) {
  return PathOf(root, kReplacedPrefix, step);
}

absl::StatusOr<int64_t> StepOfPath(const std::string& path) {
  fs::path folder(path);
  if (!folder.has_filename()) folder = folder.parent_path();  // "step-00000250/"
  const std::optional<int64_t> step = StepOfName(folder.filename().string(), kPrefix);
  if (step.has_value()) return *step;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": not a checkpoint; its folder is named ", kPrefix, "00000250"));
}

absl::StatusOr<CheckpointListing> ListCheckpoints(const std::string& root) {
  CheckpointListing listing;
  std::error_code error;
  fs::directory_iterator entry(root, error);
  if (error == std::errc::no_such_file_or_directory) return listing;
  std::map<int64_t, std::string> replaced;
  // A range-for would throw what increment() returns.
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (absl::StartsWith(name, kTemporaryPrefix)) {
      listing.leftovers.push_back(entry->path().string());
    } else if (const auto step = StepOfName(name, kPrefix)) {
      listing.paths[*step] = entry->path().string();
    } else if (const auto old = StepOfName(name, kReplacedPrefix)) {
      replaced[*old] = entry->path().string();
    }
  }
  if (error) return Failed("list", root, error);
  for (const auto& [step, path] : replaced) {
    if (!listing.paths.emplace(step, path).second) listing.leftovers.push_back(path);
  }
  return listing;
}

absl::Status RemoveFolder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? Failed("remove", path, error) : absl::OkStatus();
}

absl::Status RenameFolder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  return error ? Failed(absl::StrCat("rename to ", fs::path(to).filename().string()), from, error)
               : absl::OkStatus();
}

}  // namespace tools
