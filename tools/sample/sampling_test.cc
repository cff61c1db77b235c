#include "tools/sample/sampling.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tools {
namespace {

// The definition, in the plainest way: what stays, by token.
std::map<int32_t, double> Oracle(const std::vector<float>& logits, const SamplingOptions& options) {
  std::vector<double> p(logits.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += p[i] = std::exp(logits[i] / options.temperature);
  std::vector<int32_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0 && options.top_k < static_cast<int32_t>(p.size())) {
    order.resize(options.top_k);
  }
  sum = 0;
  for (int32_t token : order) sum += p[token];
  if (options.top_p < 1) {
    size_t kept = 0;
    double reached = 0;
    do {
      reached += p[order[kept++]] / sum;
    } while (kept < order.size() && reached < options.top_p);
    order.resize(kept);
    sum = 0;
    for (int32_t token : order) sum += p[token];
  }
  std::map<int32_t, double> result;
  for (int32_t token : order) result[token] = p[token] / sum;
  return result;
}

std::vector<int32_t> Tokens(const std::vector<Candidate>& candidates) {
  std::vector<int32_t> tokens;
  for (const Candidate& candidate : candidates) tokens.push_back(candidate.token);
  return tokens;
}

TEST(Candidates, AreTheDefinition) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 3);
  for (int round = 0; round < 60; ++round) {
    std::vector<float> logits(1 + random() % 300);
    for (float& logit : logits) logit = std::round(normal(random) * 4) / 4;  // with ties
    for (double temperature : {0.3, 1.0, 2.5}) {
      for (int32_t top_k : {0, 1, 7, 1000}) {
        for (double top_p : {1.0, 0.9, 0.5, 1e-9}) {
          const SamplingOptions options = {
              .temperature = temperature, .top_k = top_k, .top_p = top_p};
          const std::vector<Candidate> got = Candidates(logits, options);
          const std::map<int32_t, double> want = Oracle(logits, options);
          ASSERT_EQ(got.size(), want.size())
              << temperature << ", " << top_k << ", " << top_p << ", round " << round;
          double sum = 0;
          for (const Candidate& candidate : got) {
            ASSERT_TRUE(want.count(candidate.token)) << candidate.token;
            // A few hundred roundings of 2^-53 in sums and exponentials.
            ASSERT_NEAR(candidate.probability, want.at(candidate.token), 1e-12);
            sum += candidate.probability;
          }
          ASSERT_NEAR(sum, 1, 1e-12);
        }
      }
    }
  }
}

TEST(Candidates, TemperatureZeroIsTheFirstOfTheLargest) {
  const std::vector<float> logits = {1, 3, 3, 2};
  const std::vector<Candidate> got = Candidates(logits, {.temperature = 0, .top_k = 3});
  EXPECT_EQ(Tokens(got), (std::vector<int32_t>{1}));
  EXPECT_EQ(got[0].probability, 1);
}

TEST(Candidates, TopKIsExactAmongEquals) {
  const std::vector<float> logits = {2, 5, 2, 2, 5, 2};
  EXPECT_EQ(Tokens(Candidates(logits, {.temperature = 1, .top_k = 1})), (std::vector<int32_t>{1}));
  EXPECT_EQ(Tokens(Candidates(logits, {.temperature = 1, .top_k = 4})),
            (std::vector<int32_t>{1, 4, 0, 2}));
}

TEST(Candidates, TopPKeepsOneAndStopsWhereTheSumReachesIt) {
  // 1/2, 1/4, 1/8, 1/8, exact in binary.
  const float step = std::log(2.0f);
  const std::vector<float> logits = {2 * step, 3 * step, step, step};
  const auto kept = [&](double p) {
    return Tokens(Candidates(logits, {.temperature = 1, .top_p = p}));
  };
  EXPECT_EQ(kept(1e-300), (std::vector<int32_t>{1}));
  EXPECT_EQ(kept(0.49), (std::vector<int32_t>{1}));
  EXPECT_EQ(kept(0.51), (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(kept(0.76), (std::vector<int32_t>{1, 0, 2}));
  EXPECT_EQ(kept(0.999), (std::vector<int32_t>{1, 0, 2, 3}));
}

TEST(Candidates, TopPIsOfWhatTopKLeaves) {
  // 0.4, 0.3, 0.2, 0.1; of the first two 4/7 and 3/7.
  const std::vector<float> logits = {std::log(4.0f), std::log(3.0f), std::log(2.0f), 0};
  EXPECT_EQ(Tokens(Candidates(logits, {.temperature = 1, .top_p = 0.5})).size(), 2u);
  EXPECT_EQ(Tokens(Candidates(logits, {.temperature = 1, .top_k = 2, .top_p = 0.5})).size(), 1u);
}

TEST(Candidates, FarApartLogitsDoNotOverflow) {
  const std::vector<float> logits = {-3e38f, 3e38f, 0};
  const std::vector<Candidate> got = Candidates(logits, {.temperature = 1e-3});
  EXPECT_EQ(got[1].probability, 1);
  EXPECT_EQ(got[0].probability, 0);
}

TEST(Draw, IsTheInverseOfTheCumulativeSum) {
  const std::vector<Candidate> candidates = {{7, 0.125}, {3, 0.25}, {9, 0.625}};
  EXPECT_EQ(Draw(candidates, 0), 7);
  EXPECT_EQ(Draw(candidates, 0.1249), 7);
  EXPECT_EQ(Draw(candidates, 0.125), 3);
  EXPECT_EQ(Draw(candidates, 0.3749), 3);
  EXPECT_EQ(Draw(candidates, 0.375), 9);
  EXPECT_EQ(Draw(candidates, std::nextafter(1.0, 0.0)), 9);
}

// Pearson's statistic of 100,000 draws over 20 tokens, less than 43.8 with probability 0.999 (19
// degrees of freedom); the seed is fixed, so it passes always or never.
TEST(Draw, FrequenciesAreTheProbabilities) {
  constexpr int kDraws = 100'000;
  std::mt19937_64 random(12);
  std::vector<float> logits(40);
  for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 400;
  const std::vector<Candidate> candidates = Candidates(logits, {.temperature = 0.9, .top_k = 20});
  std::map<int32_t, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[Draw(candidates, static_cast<double>(random() >> 11) * 0x1.0p-53)];
  }
  double statistic = 0;
  for (const Candidate& candidate : candidates) {
    const double want = kDraws * candidate.probability;
    statistic += std::pow(counts[candidate.token] - want, 2) / want;
  }
  EXPECT_LT(statistic, 43.8);
  EXPECT_GT(statistic, 5.4);  // less has probability 0.001: draws that are too even
}

TEST(Validate, NamesTheFlag) {
  EXPECT_TRUE(Validate({}).ok());
  const auto message = [](const SamplingOptions& options) {
    return std::string(Validate(options).message());
  };
  EXPECT_EQ(message({.temperature = -1}).find("--temperature=-1"), 0u);
  EXPECT_EQ(message({.temperature = NAN}).find("--temperature=nan"), 0u);
  EXPECT_EQ(message({.temperature = INFINITY}).find("--temperature=inf"), 0u);
  EXPECT_EQ(message({.top_k = -1}).find("--top_k=-1"), 0u);
  EXPECT_EQ(message({.top_p = 0}).find("--top_p=0"), 0u);
  EXPECT_EQ(message({.top_p = 1.01}).find("--top_p=1.01"), 0u);
  EXPECT_EQ(message({.top_p = NAN}).find("--top_p=nan"), 0u);
}

}  // namespace
}  // namespace tools
