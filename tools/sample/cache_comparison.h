// What the cache of keys and values saves, and what it changes.
#ifndef TOOLS_SAMPLE_CACHE_COMPARISON_H_
#define TOOLS_SAMPLE_CACHE_COMPARISON_H_

#include <cstdint>
#include <vector>

#include "tools/sample/text_model.h"

namespace tools {

struct CacheComparison {
  int64_t tokens = 0;  // for which logits were computed
  double seconds_with = 0, seconds_without = 0;
  double max_difference = 0;  // of a logit
  double max_logit = 0;       // absolute
  int64_t other_tokens = 0;   // positions at which the most probable token differs
};

// Logits after tokens[0, n) for each n from `first` on, first >= 1, by both models.
CacheComparison CompareCache(TextModel& with, TextModel& without,
                             const std::vector<int32_t>& tokens, int64_t first);

}  // namespace tools

#endif  // TOOLS_SAMPLE_CACHE_COMPARISON_H_
