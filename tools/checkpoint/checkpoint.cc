#include "tools/checkpoint/checkpoint.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/checkpoint_folder.h"
#include "tools/checkpoint/checksums.h"
#include "tools/checkpoint/files.h"

namespace tools {
namespace {

constexpr char kModel[] = "model.safetensors";
constexpr char kOptimizer[] = "optimizer.safetensors";
constexpr char kState[] = "state.json";
constexpr char kChecksums[] = "checksums.json";

absl::Status WriteFolder(const std::string& folder, const Checkpoint& checkpoint) {
  Checksums sums;
  ABSL_RETURN_IF_ERROR(
      WriteSafetensors(absl::StrCat(folder, "/", kModel), checkpoint.model, &sums[kModel]));
  ABSL_RETURN_IF_ERROR(WriteSafetensors(absl::StrCat(folder, "/", kOptimizer), checkpoint.optimizer,
                                        &sums[kOptimizer]));
  ABSL_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder, "/", kState),
                                           {checkpoint.state_json}, &sums[kState]));
  return WriteFileAtomically(absl::StrCat(folder, "/", kChecksums), {FormatChecksums(sums)});
}

// Of what is old and cannot be deleted.
class Warning {
 public:
  explicit Warning(std::string* text) : text_(*text) { text_.clear(); }
  void Add(const absl::Status& status) {
    if (status.ok()) return;
    absl::StrAppend(&text_, text_.empty() ? "" : "; ", std::string(status.message()));
  }

 private:
  std::string& text_;
};

// The whole new folder takes its place. Should we die between two renames, the replaced checkpoint
// counts as it did before.
absl::Status Publish(const std::string& root, int64_t step, bool replaces) {
  const std::string temporary = TemporaryPath(root, step), path = CheckpointPath(root, step);
  const std::string replaced = ReplacedPath(root, step);
  if (replaces) ABSL_RETURN_IF_ERROR(RenameFolder(path, replaced));
  absl::Status status = RenameFolder(temporary, path);
  if (!status.ok() && replaces) {
    if (const absl::Status back = RenameFolder(replaced, path); !back.ok()) {
      status = absl::Status(status.code(), absl::StrCat(status.message(), "; ", back.message()));
    }
  }
  if (!status.ok()) return status;
  return SyncFolder(root);
}

// By a name that says so first: a checkpoint of which half is deleted is none.
absl::Status Delete(const std::string& root, int64_t step) {
  const std::string doomed = TemporaryPath(root, step);
  ABSL_RETURN_IF_ERROR(RenameFolder(CheckpointPath(root, step), doomed));
  return RemoveFolder(doomed);
}

absl::StatusOr<Checkpoint> Load(const std::string& path, int64_t step) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  const std::string sums_path = absl::StrCat(path, "/", kChecksums);
  ABSL_ASSIGN_OR_RETURN(const std::string sums_text, ReadFile(sums_path));
  ABSL_ASSIGN_OR_RETURN(const Checksums sums, ParseChecksums(sums_path, sums_text));
  for (const auto& [name, file] :
       {std::pair(kModel, &checkpoint.model), std::pair(kOptimizer, &checkpoint.optimizer)}) {
    ABSL_ASSIGN_OR_RETURN(const std::string content, ReadChecked(path, name, sums));
    ABSL_ASSIGN_OR_RETURN(*file, ParseSafetensors(absl::StrCat(path, "/", name), content));
  }
  ABSL_ASSIGN_OR_RETURN(checkpoint.state_json, ReadChecked(path, kState, sums));
  return checkpoint;
}

// What the user of a damaged checkpoint can do.
absl::Status WithChoice(const absl::Status& damage, const std::string& root,
                        const CheckpointListing& listing) {
  const std::string& damaged = listing.paths.rbegin()->second;
  std::string choice = absl::StrCat("no other checkpoint in ", root, " is whole");
  for (auto older = std::next(listing.paths.rbegin()); older != listing.paths.rend(); ++older) {
    if (!Load(older->second, older->first).ok()) continue;
    choice = absl::StrCat(older->second, " is whole: to go on from step ", older->first, ", move ",
                          damaged, " away");
    break;
  }
  // A file that is missing in a checkpoint is damage; without any checkpoint there is nothing.
  const absl::StatusCode code =
      absl::IsNotFound(damage) ? absl::StatusCode::kDataLoss : damage.code();
  return absl::Status(
      code, absl::StrCat("the latest checkpoint cannot be used: ", damage.message(), "; ", choice));
}

}  // namespace

absl::Status SaveCheckpoint(const std::string& root, const Checkpoint& checkpoint, int keep,
                            std::string* warning) {
  CHECK_GE(keep, 1);
  Warning warnings(warning);
  ABSL_RETURN_IF_ERROR(CreateFolders(root));
  ABSL_ASSIGN_OR_RETURN(CheckpointListing listing, ListCheckpoints(root));
  for (auto& [step, path] : listing.paths) {
    if (path != ReplacedPath(root, step)) continue;
    ABSL_RETURN_IF_ERROR(RenameFolder(path, CheckpointPath(root, step)));
  }
  // Now, for their space may be needed.
  for (const std::string& leftover : listing.leftovers) warnings.Add(RemoveFolder(leftover));

  const std::string temporary = TemporaryPath(root, checkpoint.step);
  absl::Status saved = CreateFolders(temporary);
  if (saved.ok()) saved = WriteFolder(temporary, checkpoint);
  const bool replaces = listing.paths.count(checkpoint.step) > 0;
  if (saved.ok()) saved = Publish(root, checkpoint.step, replaces);
  if (!saved.ok()) {
    // The reason is the error to tell; what cannot be removed either goes with the next save.
    (void)RemoveFolder(temporary);
    return saved;
  }

  if (replaces) warnings.Add(RemoveFolder(ReplacedPath(root, checkpoint.step)));
  listing.paths.erase(checkpoint.step);
  for (auto oldest = listing.paths.begin();
       oldest != listing.paths.end() && static_cast<int>(listing.paths.size()) >= keep;) {
    warnings.Add(Delete(root, oldest->first));
    oldest = listing.paths.erase(oldest);
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path) {
  ABSL_ASSIGN_OR_RETURN(const int64_t step, StepOfPath(path));
  return Load(path, step);
}

absl::StatusOr<Checkpoint> LoadLatestCheckpoint(const std::string& root) {
  ABSL_ASSIGN_OR_RETURN(const CheckpointListing listing, ListCheckpoints(root));
  if (listing.paths.empty()) {
    return absl::NotFoundError(absl::StrCat(root, ": no checkpoint"));
  }
  const auto& [step, path] = *listing.paths.rbegin();
  absl::StatusOr<Checkpoint> latest = Load(path, step);
  if (!latest.ok()) return WithChoice(latest.status(), root, listing);
  return latest;
}

}  // namespace tools
