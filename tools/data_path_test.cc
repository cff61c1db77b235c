#include "tools/data_path.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace tools {
namespace {

TEST(DataPath, IsTheCurrentFolderUnlessSet) {
  unsetenv("DATA_PATH");
  EXPECT_EQ(BelowDataPath("data"), "data");
  setenv("DATA_PATH", "", 1);
  EXPECT_EQ(BelowDataPath("data"), "data");
  EXPECT_EQ(DefaultMergesPath(), "data/gpt2/merges.txt");
  setenv("DATA_PATH", "/disk", 1);
  EXPECT_EQ(BelowDataPath("data"), "/disk/data");
}

}  // namespace
}  // namespace tools
