#include "tools/fetch_fineweb/wanted_files.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tools {
namespace {

constexpr char kShards[] = "/datasets/kjj0/fineweb10B-gpt2/resolve/main/";
constexpr char kMerges[] = "/openai-community/gpt2/resolve/main/merges.txt";

}  // namespace

absl::StatusOr<std::vector<WantedFile>> WantedFiles(const Selection& selection,
                                                    const std::string& endpoint) {
  if (selection.shards < 0 || selection.shards > kTrainShards) {
    return absl::InvalidArgumentError(absl::StrCat("--shards=", selection.shards,
                                                   ": must be from 0 to ", kTrainShards,
                                                   ", the training shards that there are"));
  }
  std::vector<std::string> names;
  if (selection.val) names.push_back("fineweb_val_000000.bin");
  for (int i = 1; i <= selection.shards; ++i) {
    names.push_back(absl::StrFormat("fineweb_train_%06d.bin", i));
  }
  std::vector<WantedFile> files;
  for (const std::string& name : names) {
    files.push_back({.url = absl::StrCat(endpoint, kShards, name),
                     .path = (std::filesystem::path(selection.out_dir) / name).string(),
                     .kind = FileKind::kShard});
  }
  if (selection.vocab) {
    files.push_back({.url = absl::StrCat(endpoint, kMerges),
                     .path = selection.vocab_file,
                     .kind = FileKind::kMerges});
  }
  if (files.empty()) {
    return absl::InvalidArgumentError(
        "nothing to fetch: --shards=0 and --noval leave only the merges, which need --vocab");
  }
  return files;
}

}  // namespace tools
