#include "tools/sample/generate.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tools {
namespace {

constexpr int32_t kStop = 3;
constexpr int32_t kClasses = 4;

// After token t comes t + 1 with logit 2, before all others with 1; the padding has 9.
class Counting : public TextModel {
 public:
  int64_t context_tokens() const override { return 10; }
  std::vector<float> Logits(const std::vector<int32_t>& tokens) override {
    std::vector<float> logits(kClasses + 4, 9);
    for (int32_t i = 0; i < kClasses; ++i) logits[i] = i == tokens.back() + 1 ? 2 : 1;
    if (broken) logits[1] = NAN;
    lengths.push_back(static_cast<int64_t>(tokens.size()));
    return logits;
  }
  std::vector<float> Losses(const std::vector<int32_t>&, int64_t) override { return {}; }

  bool broken = false;
  std::vector<int64_t> lengths;
};

TEST(Generate, GreedyStopsAtTheStopTokenAndNeverDrawsPadding) {
  Counting model;
  std::vector<int32_t> seen;
  const auto tokens = Generate(model, {0}, kStop, kClasses, {.max_tokens = 8},
                               [&](int32_t token) { seen.push_back(token); });
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(seen, *tokens);
  EXPECT_EQ(model.lengths, (std::vector<int64_t>{1, 2, 3}));
}

TEST(Generate, TheSeedDecides) {
  Counting model;
  const auto draw = [&](uint64_t seed) {
    return *Generate(model, {0}, -1, kClasses,
                     {.max_tokens = 10, .sampling = {.temperature = 1}, .seed = seed}, nullptr);
  };
  EXPECT_EQ(draw(4), draw(4));
  EXPECT_NE(draw(4), draw(5));
  EXPECT_EQ(draw(4).size(), 10u);
  std::map<int32_t, int> counts;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (int32_t token : draw(seed)) ++counts[token];
  }
  EXPECT_EQ(counts.size(), static_cast<size_t>(kClasses));
  EXPECT_EQ(counts.rbegin()->first, kClasses - 1);
}

TEST(Generate, FillsTheContextAndNoMore) {
  Counting model;
  const std::vector<int32_t> prompt(6, 1);
  // The context has 10 tokens; the fifth new one is drawn from a full one, and not read.
  EXPECT_EQ(Generate(model, prompt, -1, kClasses, {.max_tokens = 5}, nullptr)->size(), 5u);
  const auto status = Generate(model, prompt, -1, kClasses, {.max_tokens = 6}, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("6 tokens and --max_tokens=6"), std::string::npos)
      << status;
}

TEST(Generate, BadInputIsRefused) {
  Counting model;
  const auto code = [&](const std::vector<int32_t>& prompt, const GenerateOptions& options) {
    return Generate(model, prompt, -1, kClasses, options, nullptr).status().code();
  };
  EXPECT_EQ(code({}, {.max_tokens = 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({kClasses}, {.max_tokens = 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({-1}, {.max_tokens = 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1}, {.max_tokens = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1}, {.max_tokens = 1, .sampling = {.top_p = 2}}),
            absl::StatusCode::kInvalidArgument);
  model.broken = true;
  EXPECT_EQ(code({1}, {.max_tokens = 1}), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace tools
