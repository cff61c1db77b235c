// The shards of a data set, as the public FineWeb ones are cut and named.
#ifndef TOOLS_TOKENIZE_SHARD_SET_H_
#define TOOLS_TOKENIZE_SHARD_SET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/shard_writer.h"

namespace tools {

struct ShardSetOptions {
  std::string out_dir = ".";  // made if it does not exist
  std::string prefix = "tokens";
  int64_t shard_tokens = 100'000'000;
  int64_t val_tokens = 100'000'000;  // 0: no validation shard
  bool overwrite = false;
};

// The first val_tokens tokens go to PREFIX_val_000000.bin, the others to PREFIX_train_000001.bin,
// PREFIX_train_000002.bin, ... of shard_tokens each, the last one of what is left. A document that
// does not fit goes on in the next shard. All files appear at the end, or none.
class ShardSet {
 public:
  // InvalidArgument: numbers out of range, a prefix with a slash, a folder that cannot be made.
  // FailedPrecondition: there are shards of that prefix and overwrite is off.
  static absl::StatusOr<ShardSet> Create(const ShardSetOptions& options);

  absl::Status Append(absl::Span<const uint16_t> tokens);

  // Gives the files their names. With overwrite, shards of that prefix from an older run that were
  // not replaced are removed: training would take them for part of this set. FailedPrecondition:
  // no tokens, or none for training.
  absl::Status Publish();

  struct File {
    std::string path;
    int64_t tokens;
  };
  std::vector<File> files() const;                                      // written so far
  const std::vector<std::string>& removed() const { return removed_; }  // by Publish

 private:
  explicit ShardSet(ShardSetOptions options) : options_(std::move(options)) {}

  bool has_val() const { return options_.val_tokens > 0; }
  int64_t Limit() const;
  std::string NextPath() const;
  absl::StatusOr<std::vector<std::string>> Existing() const;
  absl::Status CheckNothingExists() const;

  ShardSetOptions options_;
  std::vector<std::unique_ptr<data::ShardWriter>> shards_;  // all but the last one are closed
  std::vector<std::string> removed_;
};

}  // namespace tools

#endif  // TOOLS_TOKENIZE_SHARD_SET_H_
