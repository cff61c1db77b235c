// Which files are fetched, from where to where.
#ifndef TOOLS_FETCH_FINEWEB_WANTED_FILES_H_
#define TOOLS_FETCH_FINEWEB_WANTED_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fetch_fineweb/verify.h"

namespace tools {

// The training shards that the data set has, numbered from 1.
inline constexpr int kTrainShards = 103;

struct Selection {
  int shards = 9;  // training shards, the first ones
  bool val = true;
  bool vocab = false;
  std::string out_dir = "";     // of the shards
  std::string vocab_file = "";  // path of the merges
};

struct WantedFile {
  std::string url;
  std::string path;
  FileKind kind = FileKind::kShard;
};

// The validation shard first, then training shards, then the merges. InvalidArgument for a number
// of shards that the data set has not, or for no file at all.
absl::StatusOr<std::vector<WantedFile>> WantedFiles(const Selection& selection,
                                                    const std::string& endpoint);

}  // namespace tools

#endif  // TOOLS_FETCH_FINEWEB_WANTED_FILES_H_
