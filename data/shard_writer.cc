#include "data/shard_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/shard.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace data {
namespace {

std::string ErrorText(int error) { return std::generic_category().message(error); }

// At this place in the file.
absl::Status WriteAt(int fd, const std::string& path, int64_t position, const void* data,
                     int64_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(fd, next, bytes, position);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return absl::UnavailableError(absl::StrCat(path, ": cannot write: ", ErrorText(errno)));
    }
    next += written;
    bytes -= written;
    position += written;
  }
  return absl::OkStatus();
}

}  // namespace

ShardWriter::ShardWriter(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

ShardWriter::~ShardWriter() {
  if (fd_ >= 0) close(fd_);
  if (!published_) unlink(temporary_.c_str());
}

absl::StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::Create(const std::string& path) {
  std::string temporary = absl::StrCat(path, ".tmp.", getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(temporary, ": cannot create: ", ErrorText(errno)));
  }
  return std::unique_ptr<ShardWriter>(new ShardWriter(path, std::move(temporary), fd));
}

absl::Status ShardWriter::Append(absl::Span<const uint16_t> tokens) {
  CHECK(fd_ >= 0) << path_ << " is closed";
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (tokens_ + count > INT32_MAX) {
    return absl::ResourceExhaustedError(absl::StrCat(path_, ": a shard holds at most ", INT32_MAX,
                                                     " tokens, not ", tokens_ + count));
  }
  ABSL_RETURN_IF_ERROR(
      WriteAt(fd_, path_, kShardHeaderBytes + 2 * tokens_, tokens.data(), 2 * count));
  tokens_ += count;
  return absl::OkStatus();
}

absl::Status ShardWriter::Close() {
  CHECK(fd_ >= 0) << path_ << " is closed";
  if (tokens_ == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": a shard holds from 1 to ", INT32_MAX, " tokens, not 0"));
  }
  const int32_t header[kShardHeaderBytes / 4] = {kShardMagic, kShardVersion,
                                                 static_cast<int32_t>(tokens_)};
  ABSL_RETURN_IF_ERROR(WriteAt(fd_, path_, 0, header, sizeof(header)));
  if (fsync(fd_) != 0 || close(std::exchange(fd_, -1)) != 0) {
    return absl::UnavailableError(absl::StrCat(path_, ": cannot write: ", ErrorText(errno)));
  }
  return absl::OkStatus();
}

absl::Status ShardWriter::Publish() {
  CHECK(fd_ < 0) << path_ << " is not closed";
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": cannot create: ", ErrorText(errno)));
  }
  published_ = true;
  return absl::OkStatus();
}

absl::Status WriteShard(const std::string& path, absl::Span<const uint16_t> tokens) {
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<ShardWriter> writer, ShardWriter::Create(path));
  ABSL_RETURN_IF_ERROR(writer->Append(tokens));
  ABSL_RETURN_IF_ERROR(writer->Close());
  return writer->Publish();
}

}  // namespace data
