#include "tools/tokenize/shard_set.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

absl::Status CheckOptions(const ShardSetOptions& options) {
  if (options.shard_tokens < 1 || options.shard_tokens > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard_tokens=", options.shard_tokens, ": must be from 1 to ", INT32_MAX));
  }
  if (options.val_tokens < 0 || options.val_tokens > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("--val_tokens=", options.val_tokens, ": must be from 0 to ", INT32_MAX));
  }
  if (options.prefix.empty() || absl::StrContains(options.prefix, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prefix=", options.prefix,
                     ": must be the beginning of a file's name, without a folder (--out_dir)"));
  }
  return absl::OkStatus();
}

// Whether the name is PREFIX_train_NNNNNN.bin or PREFIX_val_NNNNNN.bin.
bool IsOfSet(absl::string_view name, const std::string& prefix) {
  if (!absl::StartsWith(name, prefix)) return false;
  name.remove_prefix(prefix.size());
  for (const absl::string_view part : {"_train_", "_val_"}) {
    if (!absl::StartsWith(name, part) || !absl::EndsWith(name, ".bin")) continue;
    name.remove_prefix(part.size());
    name.remove_suffix(4);
    return name.size() == 6 &&
           std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  }
  return false;
}

}  // namespace

absl::StatusOr<ShardSet> ShardSet::Create(const ShardSetOptions& options) {
  ABSL_RETURN_IF_ERROR(CheckOptions(options));
  std::error_code error;
  fs::create_directories(options.out_dir, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("--out_dir=", options.out_dir,
                                                   ": cannot make this folder: ", error.message()));
  }
  ShardSet set(options);
  if (!options.overwrite) ABSL_RETURN_IF_ERROR(set.CheckNothingExists());
  return set;
}

absl::StatusOr<std::vector<std::string>> ShardSet::Existing() const {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(options_.out_dir, error), end; !error && entry != end;
       entry.increment(error)) {
    if (IsOfSet(entry->path().filename().string(), options_.prefix)) {
      paths.push_back(entry->path().string());
    }
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.out_dir, ": cannot read this folder: ", error.message()));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::Status ShardSet::CheckNothingExists() const {
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> existing, Existing());
  if (existing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      existing.front(),
      existing.size() > 1 ? absl::StrCat(" and ", existing.size() - 1, " more") : "",
      " exist already; give another --out_dir or --prefix, or --overwrite to replace all shards "
      "of this prefix"));
}

int64_t ShardSet::Limit() const {
  return has_val() && shards_.size() == 1 ? options_.val_tokens : options_.shard_tokens;
}

std::string ShardSet::NextPath() const {
  const bool val = has_val() && shards_.empty();
  const size_t number = shards_.size() + (has_val() ? 0 : 1);
  return (fs::path(options_.out_dir) /
          absl::StrFormat("%s_%s_%06d.bin", options_.prefix, val ? "val" : "train", number))
      .string();
}

absl::Status ShardSet::Append(absl::Span<const uint16_t> tokens) {
  while (!tokens.empty()) {
    if (shards_.empty() || shards_.back()->tokens() == Limit()) {
      if (!shards_.empty()) ABSL_RETURN_IF_ERROR(shards_.back()->Close());
      ABSL_ASSIGN_OR_RETURN(std::unique_ptr<data::ShardWriter> writer,
                            data::ShardWriter::Create(NextPath()));
      shards_.push_back(std::move(writer));
    }
    const size_t room = static_cast<size_t>(Limit() - shards_.back()->tokens());
    const size_t count = std::min(room, tokens.size());
    ABSL_RETURN_IF_ERROR(shards_.back()->Append(tokens.first(count)));
    tokens.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status ShardSet::Publish() {
  if (shards_.empty()) {
    return absl::FailedPreconditionError("the input has no documents, so there is no shard");
  }
  if (has_val() && shards_.size() == 1) {
    const int64_t tokens = shards_.front()->tokens();
    const std::string tenth =
        tokens > 1
            ? absl::StrCat("--val_tokens=", std::max<int64_t>(tokens / 10, 1), " for a tenth, or ")
            : "";
    return absl::FailedPreconditionError(absl::StrCat(
        "all ", tokens, " tokens fit into the validation shard (--val_tokens=", options_.val_tokens,
        "), and none are left to train on; give ", tenth, "--val_tokens=0 for no validation"));
  }
  ABSL_RETURN_IF_ERROR(shards_.back()->Close());
  if (!options_.overwrite) ABSL_RETURN_IF_ERROR(CheckNothingExists());
  ABSL_ASSIGN_OR_RETURN(std::vector<std::string> older, Existing());
  for (const std::unique_ptr<data::ShardWriter>& shard : shards_) {
    ABSL_RETURN_IF_ERROR(shard->Publish());
    older.erase(std::remove(older.begin(), older.end(), shard->path()), older.end());
  }
  for (const std::string& path : older) {
    std::error_code error;
    fs::remove(path, error);
    if (error) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": of an older run, cannot be removed: ", error.message()));
    }
    removed_.push_back(path);
  }
  return absl::OkStatus();
}

std::vector<ShardSet::File> ShardSet::files() const {
  std::vector<File> files;
  for (const auto& shard : shards_) files.push_back({shard->path(), shard->tokens()});
  return files;
}

}  // namespace tools
