#include "tools/checkpoint/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/crc32c.h"

namespace tools {
namespace {

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, ": cannot ", what, ": ", std::strerror(errno)));
}

// Calls until no signal interrupts: some file systems let one in where others do not.
template <typename Call>
auto Uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int Open(const std::string& path, int flags) {
  return Uninterrupted([&] { return open(path.c_str(), flags | O_CLOEXEC, 0644); });
}

// Not repeated: after EINTR the descriptor is gone on Linux.
bool Close(int fd) { return close(fd) == 0 || errno == EINTR; }

absl::Status WriteAll(int fd, absl::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t written = Uninterrupted([&] { return write(fd, data.data(), data.size()); });
    if (written < 0) return Failed("write", path);
    if (written == 0) {
      return absl::UnavailableError(absl::StrCat(path, ": cannot write: the system took no byte"));
    }
    data.remove_prefix(written);
  }
  return absl::OkStatus();
}

absl::Status WriteAndSync(int fd, const std::vector<absl::string_view>& pieces,
                          const std::string& path) {
  for (absl::string_view piece : pieces) ABSL_RETURN_IF_ERROR(WriteAll(fd, piece, path));
  if (Uninterrupted([&] { return fsync(fd); }) != 0) return Failed("sync", path);
  return absl::OkStatus();
}

absl::Status RefuseOtherThanFiles(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": is there and not a file; it would be replaced, give another name"));
}

}  // namespace

absl::Status SyncFolder(const std::string& path) {
  const int fd = Open(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return Failed("open the folder", path);
  const bool synced = Uninterrupted([&] { return fsync(fd); }) == 0;
  const absl::Status status = synced ? absl::OkStatus() : Failed("sync the folder", path);
  close(fd);
  return status;
}

absl::Status CreateFolders(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(path, error)) return absl::OkStatus();
  const std::string parent = fs::path(path).parent_path().string();
  if (!parent.empty() && parent != path) ABSL_RETURN_IF_ERROR(CreateFolders(parent));
  if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) return Failed("create the folder", path);
  return SyncFolder(parent.empty() ? "." : parent);
}

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces, FileSum* sum) {
  ABSL_RETURN_IF_ERROR(RefuseOtherThanFiles(path));
  if (sum != nullptr) {
    *sum = {};
    for (absl::string_view piece : pieces) {
      sum->bytes += piece.size();
      sum->crc32c = Crc32c(sum->crc32c, piece);
    }
  }
  // Of this process alone: the ranks of a run may write the same file side by side.
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd = Open(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (fd < 0) return Failed("create", temporary);
  absl::Status status = WriteAndSync(fd, pieces, temporary);
  if (!Close(fd) && status.ok()) status = Failed("close", temporary);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) status = Failed("rename", path);
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return SyncFolder(parent.empty() ? "." : parent.string());
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int fd = Open(path, O_RDONLY);
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
      const ssize_t got =
          Uninterrupted([&] { return read(fd, data.data() + done, data.size() - done); });
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
