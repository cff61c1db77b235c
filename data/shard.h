// Token shards: files of GPT-2 token ids, as the public FineWeb shards are.
//
//   bytes 0 .. 1023      256 little-endian int32: magic 20240520, version 1, token count, zeros
//   bytes 1024 ..        that many little-endian uint16 tokens
#ifndef DATA_SHARD_H_
#define DATA_SHARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace data {

inline constexpr int64_t kShardHeaderBytes = 1024;
inline constexpr int32_t kShardMagic = 20240520;
inline constexpr int32_t kShardVersion = 1;

// A shard mapped into memory, read-only. Movable; the span stays valid when the shard is moved.
// Nobody may shorten the file while it is open.
class Shard {
 public:
  // Checks the header and that the file holds exactly the tokens it promises, at least one.
  // NotFound, InvalidArgument (a directory, an unreadable file) or DataLoss, with the path and
  // the expected and found numbers. Does not look at the tokens: TokenMap::CheckTokens does.
  static absl::StatusOr<Shard> Open(const std::string& path);

  Shard(Shard&& other) noexcept;
  Shard& operator=(Shard&& other) noexcept;
  ~Shard();

  absl::Span<const uint16_t> tokens() const { return tokens_; }
  const std::string& path() const { return path_; }

 private:
  Shard(std::string path, void* mapping, int64_t bytes, int64_t tokens);

  std::string path_;
  void* mapping_ = nullptr;  // of bytes_ bytes
  int64_t bytes_ = 0;
  absl::Span<const uint16_t> tokens_;
};

// Writes a shard of at least one token: to a temporary file in the same folder, flushed to disk
// and renamed, so that `path` is the old file or the complete new one at any time.
absl::Status WriteShard(const std::string& path, absl::Span<const uint16_t> tokens);

// The files that the names and globs with commas between them mean (data/matching_paths.h: a path
// that exists is meant, whatever is in its name), each once, sorted by name. Symbolic links are
// followed. NotFound: a glob that matches nothing. InvalidArgument: an empty name, a match that
// is a directory or a dangling link, a folder that cannot be read.
absl::StatusOr<std::vector<std::string>> ListShards(const std::string& list);
// As above, of several such lists together.
absl::StatusOr<std::vector<std::string>> ListShards(const std::vector<std::string>& lists);

// As above, of the files of a folder, whatever is in its name, that match one glob.
absl::StatusOr<std::vector<std::string>> ListShardsIn(const std::string& folder,
                                                      const std::string& pattern);

}  // namespace data

#endif  // DATA_SHARD_H_
