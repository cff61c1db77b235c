#include "tools/checkpoint/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, ": cannot ", what, ": ", std::strerror(errno)));
}

absl::Status WriteAll(int fd, absl::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t written = write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write", path);
    data.remove_prefix(written);
  }
  return absl::OkStatus();
}

absl::Status WriteAndSync(int fd, const std::vector<absl::string_view>& pieces,
                          const std::string& path) {
  for (absl::string_view piece : pieces) ABSL_RETURN_IF_ERROR(WriteAll(fd, piece, path));
  if (fsync(fd) != 0) return Failed("sync", path);
  return absl::OkStatus();
}

}  // namespace

absl::Status SyncFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Failed("open the folder", path);
  const bool synced = fsync(fd) == 0;
  const absl::Status status = synced ? absl::OkStatus() : Failed("sync the folder", path);
  close(fd);
  return status;
}

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces) {
  // Of this process alone: the ranks of a run may write the same file side by side.
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Failed("create", temporary);
  absl::Status status = WriteAndSync(fd, pieces, temporary);
  if (close(fd) != 0 && status.ok()) status = Failed("close", temporary);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) status = Failed("rename", path);
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return SyncFolder(parent.empty() ? "." : parent.string());
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
    return Failed("open", path);
  }
  struct stat info = {};
  std::string data;
  absl::Status status;
  if (fstat(fd, &info) != 0) {
    status = Failed("stat", path);
  } else if (!S_ISREG(info.st_mode)) {
    status = absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  } else {
    data.resize(info.st_size);
    size_t done = 0;
    while (done < data.size()) {
      const ssize_t got = read(fd, data.data() + done, data.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        status = got < 0 ? Failed("read", path)
                         : absl::DataLossError(absl::StrCat(path, ": shrank while it was read"));
        break;
      }
      done += got;
    }
  }
  close(fd);
  if (!status.ok()) return status;
  return data;
}

}  // namespace tools
