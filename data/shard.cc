#include "data/shard.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/matching_paths.h"
#include "third_party/absl_compat/status_macros.h"

// Headers and tokens are copied and mapped as they are.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "shards are little-endian");

namespace data {
namespace {

namespace fs = std::filesystem;

constexpr char kFetchAgain[] =
    "; the file is damaged or not a token shard: fetch it again, or write it again if it is yours";

std::string ErrorText(int error) { return std::generic_category().message(error); }

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Checks the header of a file of `bytes` bytes; returns the token count.
absl::StatusOr<int64_t> CheckHeader(const std::string& path, const int32_t* header, int64_t bytes) {
  if (header[0] == static_cast<int32_t>(__builtin_bswap32(kShardMagic))) {
    return absl::DataLossError(absl::StrCat(
        path, ": is in big-endian byte order, its magic number ", kShardMagic,
        " has its bytes reversed; shards are little-endian: write it again with the header as "
        "'<i4' and the tokens as '<u2', as numpy calls them"));
  }
  if (header[0] != kShardMagic) {
    return absl::DataLossError(
        absl::StrCat(path, ": magic number is ", header[0], ", not ", kShardMagic, kFetchAgain));
  }
  if (header[1] != kShardVersion) {
    return absl::DataLossError(
        absl::StrCat(path, ": shard version is ", header[1], ", not ", kShardVersion, kFetchAgain));
  }
  const int64_t tokens = header[2];
  const int64_t payload = bytes - kShardHeaderBytes;
  if (tokens < 0) {
    return absl::DataLossError(absl::StrCat(path, ": header promises ", tokens,
                                            " tokens, a negative number; file holds ", payload,
                                            " bytes after the header", kFetchAgain));
  }
  if (payload != 2 * tokens) {
    return absl::DataLossError(absl::StrCat(path, ": header promises ", tokens, " tokens (",
                                            2 * tokens, " bytes), file holds ", payload,
                                            " bytes after the header", kFetchAgain));
  }
  if (tokens == 0) {
    return absl::DataLossError(
        absl::StrCat(path, ": an empty shard, 0 tokens; leave it out, or fetch or write it again"));
  }
  return tokens;
}

absl::Status CheckIsFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    const int error = errno;
    std::error_code ignored;
    const fs::path target = fs::read_symlink(path, ignored);
    if (!target.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": a dangling link, its target ",
                                                     target.string(), ": ", ErrorText(error)));
    }
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", ErrorText(error)));
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a directory, not a shard; to use its files, give ", path,
                     path.back() == '/' ? "" : "/", "*.bin"));
  }
  return absl::OkStatus();
}

// Each once.
absl::StatusOr<std::vector<std::string>> SortedShards(std::vector<std::string> paths) {
  for (const std::string& path : paths) ABSL_RETURN_IF_ERROR(CheckIsFile(path));
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

}  // namespace

Shard::Shard(std::string path, void* mapping, int64_t bytes, int64_t tokens)
    : path_(std::move(path)),
      mapping_(mapping),
      bytes_(bytes),
      tokens_(
          reinterpret_cast<const uint16_t*>(static_cast<const char*>(mapping) + kShardHeaderBytes),
          tokens) {}

Shard::Shard(Shard&& other) noexcept
    : path_(std::move(other.path_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      tokens_(std::exchange(other.tokens_, {})) {}

Shard& Shard::operator=(Shard&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(mapping_, other.mapping_);
  std::swap(bytes_, other.bytes_);
  std::swap(tokens_, other.tokens_);
  return *this;
}

Shard::~Shard() {
  if (mapping_ != nullptr) munmap(mapping_, bytes_);
}

absl::StatusOr<Shard> Shard::Open(const std::string& path) {
  // Without O_NONBLOCK, a FIFO would be waited for until somebody writes to it.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const std::string message = absl::StrCat(path, ": cannot open: ", ErrorText(errno));
    if (errno == ENOENT) return absl::NotFoundError(message);
    return absl::InvalidArgumentError(message);
  }
  struct stat info;
  if (fstat(file.get(), &info) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", ErrorText(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, S_ISDIR(info.st_mode) ? ": is a directory, not a shard" : ": is not a file"));
  }
  const int64_t bytes = info.st_size;
  if (bytes < kShardHeaderBytes) {
    return absl::DataLossError(absl::StrCat(path, ": holds ", bytes, " bytes, less than the ",
                                            kShardHeaderBytes, " bytes of a shard's header",
                                            kFetchAgain));
  }
  void* mapping = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapping == MAP_FAILED) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot map into memory: ", ErrorText(errno)));
  }
  const absl::StatusOr<int64_t> tokens =
      CheckHeader(path, static_cast<const int32_t*>(mapping), bytes);
  Shard shard(path, mapping, bytes, tokens.ok() ? *tokens : 0);  // unmaps in any case
  if (!tokens.ok()) return tokens.status();
  return shard;
}

absl::StatusOr<std::vector<std::string>> ListShards(const std::vector<std::string>& lists) {
  std::vector<std::string> paths;
  for (const std::string& list : lists) {
    ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> found, MatchingPathsOfList(list));
    paths.insert(paths.end(), found.begin(), found.end());
  }
  return SortedShards(std::move(paths));
}

absl::StatusOr<std::vector<std::string>> ListShards(const std::string& list) {
  return ListShards(std::vector<std::string>{list});
}

absl::StatusOr<std::vector<std::string>> ListShardsIn(const std::string& folder,
                                                      const std::string& pattern) {
  ABSL_ASSIGN_OR_RETURN(std::vector<std::string> paths,
                        MatchingPaths(absl::StrCat(EscapedForGlob(folder), "/", pattern)));
  return SortedShards(std::move(paths));
}

}  // namespace data
