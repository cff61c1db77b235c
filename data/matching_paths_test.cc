#include "data/matching_paths.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace data {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// A folder of its own for each test, which is the current one.
class MatchingPathsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string folder =
        absl::StrCat(testing::TempDir(), "/matching_",
                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder);
    fs::create_directories(folder);
    fs::current_path(folder);
  }
  void Touch(const std::vector<std::string>& names) {
    for (const std::string& name : names) std::ofstream(name) << "x";
  }
};

std::vector<std::string> Of(const absl::StatusOr<std::vector<std::string>>& paths) {
  EXPECT_TRUE(paths.ok()) << paths.status();
  return paths.ok() ? *paths : std::vector<std::string>();
}

TEST_F(MatchingPathsTest, K2_20_APathThatExistsIsMeant) {
  const std::vector<std::string> odd = {"muon:lr=0.035 wd=0.025-1.txt",
                                        "a,b.txt",
                                        "[x].txt",
                                        "*.txt",
                                        "what?.txt",
                                        "back\\slash.txt",
                                        "x.txt"};
  Touch(odd);
  for (const std::string& name : odd) {
    EXPECT_THAT(Of(MatchingPaths(name)), ElementsAre(name));
    EXPECT_THAT(Of(MatchingPathsOfList(name)), ElementsAre(name));
  }
  fs::remove("[x].txt");
  EXPECT_THAT(Of(MatchingPaths("[x].txt")), ElementsAre("x.txt"));
}

TEST_F(MatchingPathsTest, K2_20_NamesWithCommasInLists) {
  Touch({"a,b.txt", "b.txt", "c.txt", "lr=1,wd=2-1.txt", "lr=1,wd=2-2.txt"});
  EXPECT_THAT(Of(MatchingPathsOfList("a,b.txt,c.txt")), ElementsAre("a,b.txt", "c.txt"));
  EXPECT_THAT(Of(MatchingPathsOfList("c.txt,a,b.txt")), ElementsAre("c.txt", "a,b.txt"));
  EXPECT_THAT(Of(MatchingPathsOfList("c.txt,b.txt")), ElementsAre("c.txt", "b.txt"));
  EXPECT_THAT(Of(MatchingPathsOfList("lr=1,wd=2-*.txt,[bc].txt")),
              ElementsAre("lr=1,wd=2-1.txt", "lr=1,wd=2-2.txt", "b.txt", "c.txt"));
}

TEST_F(MatchingPathsTest, PatternsAndWhatIsMissing) {
  Touch({"2.txt", "1.txt"});
  fs::create_symlink("gone", "dangling");
  EXPECT_THAT(Of(MatchingPaths("*.txt")), ElementsAre("1.txt", "2.txt"));
  EXPECT_THAT(Of(MatchingPaths("dangling")), ElementsAre("dangling"));
  const absl::Status missing = MatchingPathsOfList("1.txt,none*.txt,2.txt").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_EQ(missing.message(), "none*.txt: matches no file");
  EXPECT_TRUE(absl::IsNotFound(MatchingPaths("no/such/*").status()));
  EXPECT_THAT(std::string(MatchingPathsOfList("1.txt,").status().message()),
              HasSubstr("empty name"));
}

TEST_F(MatchingPathsTest, K2_20_EscapedForGlob) {
  fs::create_directories("data [1]*");
  Touch({"data [1]*/a.bin"});
  EXPECT_THAT(Of(MatchingPaths(EscapedForGlob("data [1]*") + "/*.bin")),
              ElementsAre("data [1]*/a.bin"));
}

}  // namespace
}  // namespace data
