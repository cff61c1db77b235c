#include "tools/fetch_fineweb/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

// With errno.
absl::Status FileError(const std::string& path, const char* what) {
  const int error = errno;
  const std::string text =
      absl::StrCat(path, ": cannot ", what, ": ", std::generic_category().message(error));
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(
        absl::StrCat(text, "; make room and run the same command again, it goes on from here"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(text, "; choose a folder where files can be written with --out_dir"));
}

// What the version file says; sizes of 0 for one that is missing or damaged.
FileVersion ReadVersion(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  FileVersion version;
  if (!json.is_object()) return version;
  const auto size = json.find("size"), sha256 = json.find("sha256"), etag = json.find("etag");
  if (size == json.end() || !size->is_number_integer() || sha256 == json.end() ||
      !sha256->is_string() || etag == json.end() || !etag->is_string()) {
    return version;
  }
  return {.size = size->get<int64_t>(),
          .sha256 = sha256->get<std::string>(),
          .etag = etag->get<std::string>()};
}

// Why bytes of version `had` cannot be the start of `wanted`; "" if they are.
std::string WhyNotResume(const FileVersion& had, const FileVersion& wanted, int64_t bytes) {
  if (had.size == 0) return "nothing says which version of the file it is of";
  if (had.size != wanted.size || had.sha256 != wanted.sha256) {
    return "it is of another version of the file";
  }
  if (bytes > wanted.size) return "it is longer than the file";
  // A weak ETag, W/"...", does not promise equal bytes.
  if (wanted.sha256.empty() && (had.etag.empty() || absl::StartsWith(had.etag, "W/"))) {
    return "the server gave no ETag by which to tell whether the file is still the same";
  }
  return "";
}

absl::Status FlushFolder(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError(folder, "open");
  // Some file systems cannot flush a folder, and then need not.
  const bool flushed = fsync(fd) == 0 || errno == EINVAL;
  const absl::Status status = flushed ? absl::OkStatus() : FileError(folder, "write");
  close(fd);
  return status;
}

}  // namespace

PartFile::PartFile(std::string path, int fd)
    : path_(std::move(path)),
      part_path_(path_ + ".part"),
      version_path_(path_ + ".part.json"),
      fd_(fd) {}

PartFile::PartFile(PartFile&& other) noexcept
    : path_(std::move(other.path_)),
      part_path_(std::move(other.part_path_)),
      version_path_(std::move(other.version_path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      version_(std::move(other.version_)),
      emptied_because_(std::move(other.emptied_because_)) {}

PartFile::~PartFile() {
  if (fd_ >= 0) close(fd_);  // and unlocks
}

absl::StatusOr<PartFile> PartFile::Open(const std::string& path, const FileVersion& wanted) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) {
    errno = error.value();
    return FileError(folder.string(), "create this folder");
  }
  const std::string part_path = path + ".part";
  const int fd = open(part_path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(part_path, "create");
  PartFile part(path, fd);
  ABSL_RETURN_IF_ERROR(part.Lock());
  ABSL_RETURN_IF_ERROR(part.Recall(wanted));
  return part;
}

// Two processes that append to one file would ruin it. Some file systems of clusters have no
// locks; there it is left to the user.
absl::Status PartFile::Lock() {
  struct stat held, named;
  const bool taken = flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!taken && fstat(fd_, &held) == 0 && stat(part_path_.c_str(), &named) == 0 &&
      held.st_ino == named.st_ino) {
    size_ = held.st_size;
    return absl::OkStatus();
  }
  // Locked by the other, or renamed by it since it was opened here.
  return absl::InvalidArgumentError(
      absl::StrCat(part_path_,
                   ": another process is fetching this file; let it finish, then run "
                   "this again"));
}

absl::Status PartFile::Recall(const FileVersion& wanted) {
  version_ = wanted;
  if (size_ == 0) return absl::OkStatus();
  const FileVersion had = ReadVersion(version_path_);
  emptied_because_ = WhyNotResume(had, wanted, size_);
  if (!emptied_because_.empty()) return Restart("");
  version_.etag = had.etag;
  return absl::OkStatus();
}

// Beside and renamed, since half of it would be worse than none.
absl::Status PartFile::WriteVersion() {
  const nlohmann::json json = {
      {"size", version_.size}, {"sha256", version_.sha256}, {"etag", version_.etag}};
  const std::string temporary = version_path_ + ".tmp";
  errno = 0;
  std::ofstream file(temporary, std::ios::trunc);
  // A server's header may hold any bytes; JSON holds UTF-8 only.
  file << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  file.close();
  if (!file || rename(temporary.c_str(), version_path_.c_str()) != 0) {
    if (errno == 0) errno = EIO;  // streams need not set it
    return FileError(version_path_, "write");
  }
  return absl::OkStatus();
}

absl::Status PartFile::Restart(const std::string& etag) {
  if (size_ > 0 && ftruncate(fd_, 0) != 0) return FileError(part_path_, "empty");
  size_ = 0;
  version_.etag = etag;
  return WriteVersion();
}

absl::Status PartFile::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(part_path_, "write");
    size_ += written;
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

absl::Status PartFile::Publish() {
  if (fsync(fd_) != 0) return FileError(part_path_, "write");
  if (rename(part_path_.c_str(), path_.c_str()) != 0) return FileError(path_, "create");
  if (unlink(version_path_.c_str()) != 0 && errno != ENOENT) {
    return FileError(version_path_, "remove");
  }
  return FlushFolder(path_);
}

absl::Status PartFile::Discard() {
  for (const std::string& path : {part_path_, version_path_}) {
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return FileError(path, "remove");
  }
  return absl::OkStatus();
}

}  // namespace tools
