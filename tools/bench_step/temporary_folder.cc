#include "tools/bench_step/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace tools {

absl::StatusOr<std::unique_ptr<TemporaryFolder>> TemporaryFolder::Create() {
  const char* root = std::getenv("TMPDIR");
  std::string path =
      absl::StrCat(root != nullptr && *root != '\0' ? root : "/tmp", "/nanospeed_XXXXXX");
  if (::mkdtemp(path.data()) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": cannot create a folder there (",
                                                      std::strerror(errno),
                                                      "); set TMPDIR to a writable one"));
  }
  return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(std::move(path)));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // what is left lies where temporary files lie
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tools
