#include "tools/output_files.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

std::string Folder() {
  const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string folder = testing::TempDir() + "/" + name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

void ExpectRefused(const absl::Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
      << "no \"" << text << "\" in: " << status;
}

TEST(OutputFiles, F2_AFileWithContentIsRefusedByFlagAndPath) {
  const std::string path = Folder() + "/run.jsonl";
  EXPECT_TRUE(CheckOutputFiles({{"metrics", path}, {"trace", ""}}, false).ok());
  Write(path, "");  // as mktemp makes it
  EXPECT_TRUE(CheckOutputFiles({{"metrics", path}}, false).ok());
  Write(path, "x");
  ExpectRefused(CheckOutputFiles({{"metrics", path}}, false),
                "--metrics=" + path + ": exists; give another name, or --overwrite");
  EXPECT_TRUE(CheckOutputFiles({{"metrics", path}}, true).ok());
}

TEST(OutputFiles, F2_LinksAreFollowed) {
  const std::string folder = Folder();
  fs::create_symlink("target", folder + "/link");
  EXPECT_TRUE(CheckOutputFiles({{"out", folder + "/link"}}, false).ok());
  Write(folder + "/target", "x");
  ExpectRefused(CheckOutputFiles({{"out", folder + "/link"}}, false), "exists");
  ExpectRefused(CheckOutputFiles({{"out", folder + "/link"}, {"trace", folder + "/target"}}, true),
                "is what --out names");
}

TEST(OutputFiles, F2_FoldersAndMissingFoldersAreNamed) {
  const std::string folder = Folder();
  for (const bool overwrite : {false, true}) {
    ExpectRefused(CheckOutputFiles({{"out", folder}}, overwrite), "is a folder");
    ExpectRefused(CheckOutputFiles({{"out", folder + "/no/x"}}, overwrite),
                  "its folder " + folder + "/no: No such file");
    Write(folder + "/file", "x");
    ExpectRefused(CheckOutputFiles({{"out", folder + "/file/x"}}, overwrite), "no folder");
  }
}

TEST(OutputFiles, F2_TwoFlagsMayNotNameOneFile) {
  const std::string folder = Folder();
  ExpectRefused(CheckOutputFiles({{"metrics", folder + "/a"}, {"trace", folder + "/./a"}}, false),
                "--trace=" + folder + "/./a: is what --metrics names");
  EXPECT_TRUE(CheckOutputFiles({{"metrics", folder + "/a"}, {"trace", folder + "/b"}}, false).ok());
}

TEST(OutputFiles, DevicesHaveNothingToLose) {
  EXPECT_TRUE(CheckOutputFiles({{"metrics", "/dev/null"}, {"trace", "/dev/null"}}, false).ok());
}

TEST(OutputFiles, F2_AResumedRunGoesOnInMetricsOnly) {
  const std::string path = Folder() + "/run.jsonl";
  EXPECT_TRUE(CheckMetricsToAppendTo({"metrics", path}).ok());
  EXPECT_TRUE(CheckMetricsToAppendTo({"metrics", "/dev/null"}).ok());
  for (const char* text : {"", "{\"st", "{\"step\":0,\"val_loss\":3.5,\"train_ms\":0}\n"}) {
    Write(path, text);
    EXPECT_TRUE(CheckMetricsToAppendTo({"metrics", path}).ok()) << text;
  }
  for (const char* text : {"step:0/40 val_loss:5.9358\n", "{\"record\": \"anvil\"}", "\n"}) {
    Write(path, text);
    ExpectRefused(CheckMetricsToAppendTo({"metrics", path}),
                  "--metrics=" + path + ": is no metrics file");
  }
}

}  // namespace
}  // namespace tools
