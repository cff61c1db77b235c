#include "comm/shared_memory.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace comm {
namespace {

TEST(SharedMemory, C9_SmallOrMissingOnesAreNamed) {
  const std::string small = SmallSharedMemoryWarning("/proc");  // a file system of no size
  EXPECT_TRUE(absl::StartsWith(small, "warning: /proc has only 0 MiB; ")) << small;
  EXPECT_TRUE(absl::StrContains(small, "--shm-size=8g")) << small;
  const std::string missing = SmallSharedMemoryWarning("/no/such/folder");
  EXPECT_TRUE(absl::StrContains(missing, "/no/such/folder: No such file")) << missing;
}

// A system's own disk has more than 1 GiB.
TEST(SharedMemory, LargeOnesAreNot) { EXPECT_EQ(SmallSharedMemoryWarning("/usr"), ""); }

}  // namespace
}  // namespace comm
