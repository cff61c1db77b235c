#include "tools/fetch_fineweb/wanted_files.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tools {
namespace {

TEST(WantedFiles, NamesAddressesAndPlaces) {
  const absl::StatusOr<std::vector<WantedFile>> files =
      WantedFiles({.shards = 103, .vocab = true, .out_dir = "a/b", .vocab_file = "c/m.txt"},
                  "https://hub.example");
  ASSERT_TRUE(files.ok());
  ASSERT_EQ(files->size(), 105u);
  EXPECT_EQ(files->front().path, "a/b/fineweb_val_000000.bin");
  EXPECT_EQ((*files)[1].path, "a/b/fineweb_train_000001.bin");
  EXPECT_EQ((*files)[103].url,
            "https://hub.example/datasets/kjj0/fineweb10B-gpt2/resolve/main/"
            "fineweb_train_000103.bin");
  EXPECT_EQ(files->back().url, "https://hub.example/openai-community/gpt2/resolve/main/merges.txt");
  EXPECT_EQ(files->back().path, "c/m.txt");
  EXPECT_EQ(files->back().kind, FileKind::kMerges);
}

TEST(WantedFiles, OnlyWhatIsAskedFor) {
  EXPECT_EQ(WantedFiles({}, "")->size(), 10u);
  EXPECT_EQ(WantedFiles({.shards = 0}, "")->size(), 1u);
  EXPECT_EQ(WantedFiles({.shards = 0, .val = false, .vocab = true}, "")->size(), 1u);
  for (const Selection& selection :
       {Selection{.shards = -1}, Selection{.shards = 104}, Selection{.shards = 0, .val = false}}) {
    EXPECT_EQ(WantedFiles(selection, "").status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tools
