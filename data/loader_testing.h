// Shards and loaders for the tests of this folder.
#ifndef DATA_LOADER_TESTING_H_
#define DATA_LOADER_TESTING_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "data/loader.h"
#include "data/shard.h"
#include "gtest/gtest.h"

namespace data {

inline std::string Path(const std::string& name) {
  return ::testing::TempDir() + "/loader_test_" + name + ".bin";
}

inline std::string Write(const std::string& name, const std::vector<uint16_t>& tokens) {
  EXPECT_TRUE(WriteShard(Path(name), tokens).ok());
  return Path(name);
}

// Documents of 1 to 40 tokens after a tail of 7; the tokens tell shards apart.
inline std::vector<uint16_t> RandomTokens(int size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint16_t> tokens;
  int left = 7;
  while (static_cast<int>(tokens.size()) < size) {
    tokens.push_back(left == 0 ? kGpt2Bos : static_cast<uint16_t>(random() % 50000));
    left = left == 0 ? static_cast<int>(random() % 40) : left - 1;
  }
  return tokens;
}

inline std::unique_ptr<TrainLoader> Open(const LoaderOptions& options, LoaderState start = {},
                                         int64_t first_step = 0) {
  auto loader = TrainLoader::Create(options, start, first_step);
  EXPECT_TRUE(loader.ok()) << loader.status();
  return *std::move(loader);
}

struct Step {
  std::shared_ptr<const GlobalBatch> batch;
  LoaderState after;
};

// All batches up to the error that ends them.
inline std::vector<Step> Drain(TrainLoader& loader, absl::Status* end) {
  std::vector<Step> steps;
  while (true) {
    const auto batch = loader.Next();
    if (!batch.ok()) {
      *end = batch.status();
      return steps;
    }
    steps.push_back({*batch, loader.State()});
  }
}

inline bool Equal(const GlobalBatch& a, const GlobalBatch& b) {
  if (a.slots.size() != b.slots.size()) return false;
  for (size_t k = 0; k < a.slots.size(); ++k) {
    if (a.slots[k].inputs != b.slots[k].inputs || a.slots[k].targets != b.slots[k].targets ||
        a.slots[k].boundaries != b.slots[k].boundaries) {
      return false;
    }
  }
  return true;
}

inline void ExpectError(const absl::Status& status, absl::StatusCode code,
                        const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << " in " << status;
  }
}

// A loader that starts after any of the `steps`, all that there are, goes on with the others.
inline void ExpectResumes(const LoaderOptions& options, const std::vector<Step>& steps) {
  absl::Status end;
  for (size_t saved = 0; saved < steps.size(); ++saved) {
    const std::unique_ptr<TrainLoader> loader = Open(options, steps[saved].after);
    EXPECT_EQ(loader->State(), steps[saved].after);
    const int64_t left = static_cast<int64_t>(steps.size() - saved - 1);
    EXPECT_TRUE(loader->CheckEnough(left).ok());
    EXPECT_FALSE(loader->CheckEnough(left + 1).ok());
    const std::vector<Step> rest = Drain(*loader, &end);
    ASSERT_EQ(static_cast<int64_t>(rest.size()), left);
    for (size_t i = 0; i < rest.size(); ++i) {
      EXPECT_TRUE(Equal(*rest[i].batch, *steps[saved + 1 + i].batch)) << saved << " " << i;
      EXPECT_EQ(rest[i].after, steps[saved + 1 + i].after);
    }
  }
}

}  // namespace data

#endif  // DATA_LOADER_TESTING_H_
