// What a package has can be used, although it lacks other modules that are listed.
#include "gtest/gtest.h"

namespace {

// The macros come from the modules' own .pc files.
TEST(SystemLibraryTest, PresentModulesAreUsable) {
  EXPECT_EQ(PRESENT_MODULE, 12);
  EXPECT_EQ(REQUIRING_MODULE, 34);
}

}  // namespace
