#include "tools/working_folder.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace tools {

absl::Status EnterCallersFolder() {
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (folder == nullptr || chdir(folder) == 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("cannot enter ", folder, ", where it was called from"));
}

}  // namespace tools
