#include "comm/shared_memory.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace comm {
namespace {

// Eight ranks take some tens of MiB each when they cannot reach each other's memory.
constexpr uint64_t kEnough = uint64_t{1} << 30;

constexpr char kWhatToDo[] =
    "; ranks of one host may fail to exchange data through it; give a container more with "
    "--shm-size=8g (Docker) or an emptyDir of medium Memory (Kubernetes)";

}  // namespace

std::string SmallSharedMemoryWarning(const std::string& folder) {
  struct statvfs system = {};
  if (statvfs(folder.c_str(), &system) != 0) {
    return absl::StrCat("warning: ", folder, ": ", std::strerror(errno), kWhatToDo);
  }
  const uint64_t bytes = uint64_t{system.f_frsize} * system.f_blocks;
  if (bytes >= kEnough) return "";
  return absl::StrCat("warning: ", folder, " has only ", bytes >> 20, " MiB", kWhatToDo);
}

}  // namespace comm
