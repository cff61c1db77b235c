#include "tools/bench_step/synthetic_tokens.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "data/token_map.h"

namespace tools {
namespace {

constexpr double kMeanTokens = 600;
constexpr double kSigma = 1.0;
constexpr int64_t kMostTokens = 2048;  // with the BOS

}  // namespace

std::vector<uint16_t> SyntheticDocuments(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> length(std::log(kMeanTokens) - kSigma * kSigma / 2, kSigma);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  const double words = std::log(static_cast<double>(data::kGpt2Bos));
  std::vector<uint16_t> tokens;
  tokens.reserve(count + kMostTokens);
  while (static_cast<int64_t>(tokens.size()) < count) {
    tokens.push_back(data::kGpt2Bos);
    const int64_t more = std::min<int64_t>(std::llround(length(random)), kMostTokens - 1);
    for (int64_t i = 0; i < more; ++i) {
      // exp(u ln V) lies in [k, k + 1) with probability ln(1 + 1/k) / ln V, about 1/k. All ids are
      // below BOS.
      const double rank = std::floor(std::exp(uniform(random) * words));
      tokens.push_back(static_cast<uint16_t>(std::min<double>(rank, data::kGpt2Bos) - 1));
    }
  }
  return tokens;
}

}  // namespace tools
