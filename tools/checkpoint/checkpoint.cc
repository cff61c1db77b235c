#include "tools/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";
constexpr char kTemporaryPrefix[] = ".tmp-step-";

std::string FolderName(int64_t step) { return absl::StrFormat("%s%08d", kPrefix, step); }

absl::Status Failed(absl::string_view what, const fs::path& path, const std::error_code& error) {
  return absl::UnavailableError(
      absl::StrCat(path.string(), ": cannot ", what, ": ", error.message()));
}

// Steps of the complete checkpoints under root, rising; and the folders that a kill left.
struct Listing {
  std::vector<int64_t> steps;
  std::vector<fs::path> leftovers;
};

absl::StatusOr<Listing> List(const std::string& root) {
  Listing listing;
  std::error_code error;
  fs::directory_iterator entries(root, error);
  if (error == std::errc::no_such_file_or_directory) return listing;
  if (error) return Failed("list", root, error);
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (absl::StartsWith(name, kTemporaryPrefix)) {
      listing.leftovers.push_back(entry.path());
    } else if (absl::StartsWith(name, kPrefix) &&
               absl::SimpleAtoi(absl::string_view(name).substr(sizeof(kPrefix) - 1), &step)) {
      listing.steps.push_back(step);
    }
  }
  std::sort(listing.steps.begin(), listing.steps.end());
  return listing;
}

absl::Status Remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? Failed("remove", path, error) : absl::OkStatus();
}

absl::Status WriteFolder(const std::string& folder, const Checkpoint& checkpoint) {
  ABSL_RETURN_IF_ERROR(WriteSafetensors(folder + "/model.safetensors", checkpoint.model));
  ABSL_RETURN_IF_ERROR(WriteSafetensors(folder + "/optimizer.safetensors", checkpoint.optimizer));
  return WriteFileAtomically(folder + "/state.json", {checkpoint.state_json});
}

}  // namespace

absl::Status SaveCheckpoint(const std::string& root, const Checkpoint& checkpoint, int keep) {
  CHECK_GE(keep, 1);
  std::error_code error;
  fs::create_directories(root, error);
  if (error) return Failed("create the folder", root, error);
  ABSL_ASSIGN_OR_RETURN(Listing listing, List(root));
  for (const fs::path& leftover : listing.leftovers) ABSL_RETURN_IF_ERROR(Remove(leftover));

  const fs::path temporary =
      fs::path(root) / absl::StrFormat("%s%08d", kTemporaryPrefix, checkpoint.step);
  const fs::path final_path = fs::path(root) / FolderName(checkpoint.step);
  fs::create_directory(temporary, error);
  if (error) return Failed("create the folder", temporary, error);
  if (absl::Status status = WriteFolder(temporary.string(), checkpoint); !status.ok()) {
    fs::remove_all(temporary, error);  // the write's own error is the one to tell
    return status;
  }
  if (fs::exists(final_path)) {
    // The same step again, as after a resume that saves at once. A folder cannot replace a full
    // one, so the old one steps aside; should we die here, the checkpoint before is the latest.
    const fs::path aside = fs::path(root) / absl::StrCat(kTemporaryPrefix, "old");
    fs::rename(final_path, aside, error);
    if (error) return Failed("rename", final_path, error);
    listing.leftovers = {aside};
  } else {
    listing.leftovers.clear();
    listing.steps.push_back(checkpoint.step);
  }
  fs::rename(temporary, final_path, error);
  if (error) return Failed("rename", temporary, error);
  ABSL_RETURN_IF_ERROR(SyncFolder(root));

  for (const fs::path& old : listing.leftovers) ABSL_RETURN_IF_ERROR(Remove(old));
  std::sort(listing.steps.begin(), listing.steps.end());
  while (static_cast<int>(listing.steps.size()) > keep) {
    ABSL_RETURN_IF_ERROR(Remove(fs::path(root) / FolderName(listing.steps.front())));
    listing.steps.erase(listing.steps.begin());
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path) {
  Checkpoint checkpoint;
  const std::string name = fs::path(path).filename().string();
  if (!absl::StartsWith(name, kPrefix) ||
      !absl::SimpleAtoi(absl::string_view(name).substr(sizeof(kPrefix) - 1), &checkpoint.step)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a checkpoint; its folder is named ", kPrefix, "00000250"));
  }
  ABSL_ASSIGN_OR_RETURN(checkpoint.model, ReadSafetensors(path + "/model.safetensors"));
  ABSL_ASSIGN_OR_RETURN(checkpoint.optimizer, ReadSafetensors(path + "/optimizer.safetensors"));
  ABSL_ASSIGN_OR_RETURN(checkpoint.state_json, ReadFile(path + "/state.json"));
  return checkpoint;
}

absl::StatusOr<Checkpoint> LoadLatestCheckpoint(const std::string& root) {
  ABSL_ASSIGN_OR_RETURN(const Listing listing, List(root));
  if (listing.steps.empty()) {
    return absl::NotFoundError(absl::StrCat(root, ": no checkpoint"));
  }
  return LoadCheckpoint((fs::path(root) / FolderName(listing.steps.back())).string());
}

}  // namespace tools
