#include "tools/sample/cache_comparison.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace tools {
namespace {

std::vector<float> Timed(TextModel& model, const std::vector<int32_t>& tokens, double* seconds) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<float> logits = model.Logits(tokens);
  *seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return logits;
}

}  // namespace

CacheComparison CompareCache(TextModel& with, TextModel& without,
                             const std::vector<int32_t>& tokens, int64_t first) {
  CacheComparison result;
  for (int64_t n = first; n <= static_cast<int64_t>(tokens.size()); ++n) {
    const std::vector<int32_t> before(tokens.begin(), tokens.begin() + n);
    const std::vector<float> a = Timed(with, before, &result.seconds_with);
    const std::vector<float> b = Timed(without, before, &result.seconds_without);
    for (size_t i = 0; i < a.size(); ++i) {
      result.max_difference = std::max(result.max_difference, std::abs(double{a[i]} - b[i]));
      result.max_logit = std::max(result.max_logit, std::abs(double{b[i]}));
    }
    const auto best = [](const std::vector<float>& logits) {
      return std::max_element(logits.begin(), logits.end()) - logits.begin();
    };
    result.other_tokens += best(a) != best(b);
    ++result.tokens;
  }
  return result;
}

}  // namespace tools
