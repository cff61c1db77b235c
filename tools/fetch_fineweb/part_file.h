// A file while it is fetched: NAME.part, and NAME.part.json which says of what it is the start.
// NAME itself appears in one step, when all of it is there.
#ifndef TOOLS_FETCH_FINEWEB_PART_FILE_H_
#define TOOLS_FETCH_FINEWEB_PART_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

// Which version of a file. The ETag is the one of the server that sends the bytes, which is seldom
// the hub; "" if it gave none.
struct FileVersion {
  int64_t size = 0;
  std::string sha256 = "";  // lower-case hexadecimal; "" if the hub gives none
  std::string etag = "";
};

// Movable. Held by one process at a time. All errors name the file and what to do:
// ResourceExhausted for a full disk, else InvalidArgument.
class PartFile {
 public:
  // Opens or creates `path`.part for a file of `wanted`'s size and SHA-256; creates its folder.
  // Keeps what an earlier run left, if it is known to be of the same version, and empties it
  // otherwise.
  static absl::StatusOr<PartFile> Open(const std::string& path, const FileVersion& wanted);

  PartFile(PartFile&& other) noexcept;
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile();  // leaves the files as they are

  int64_t size() const { return size_; }
  const std::string& part_path() const { return part_path_; }
  const FileVersion& version() const { return version_; }
  // Why Open emptied a file that held bytes; "" if it did not.
  const std::string& emptied_because() const { return emptied_because_; }

  // Empties it, for bytes that the server calls `etag`.
  absl::Status Restart(const std::string& etag);
  absl::Status Append(absl::string_view bytes);
  // Flushed to disk and renamed to NAME, in place of any file of that name. The last call.
  absl::Status Publish();
  // Removes both files. The last call.
  absl::Status Discard();

 private:
  PartFile(std::string path, int fd);

  absl::Status Lock();
  absl::Status Recall(const FileVersion& wanted);
  absl::Status WriteVersion();

  std::string path_, part_path_, version_path_;
  int fd_ = -1;
  int64_t size_ = 0;
  FileVersion version_;
  std::string emptied_because_;
};

}  // namespace tools

#endif  // TOOLS_FETCH_FINEWEB_PART_FILE_H_
