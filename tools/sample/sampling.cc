#include "tools/sample/sampling.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace tools {
namespace {

// Divides by the sum of the candidates, added in their order.
void Normalize(std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.probability;
  for (Candidate& candidate : candidates) candidate.probability /= sum;
}

bool Before(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
}

}  // namespace

absl::Status Validate(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    return absl::InvalidArgumentError(absl::StrCat("--temperature=", options.temperature,
                                                   ": must be 0 (greedy) or a positive number"));
  }
  if (options.top_k < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--top_k=", options.top_k, ": must be 0 (all tokens) or a positive number"));
  }
  if (!(options.top_p > 0) || options.top_p > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--top_p=", options.top_p, ": must be above 0 and at most 1, which leaves all tokens"));
  }
  return absl::OkStatus();
}

std::vector<Candidate> Candidates(absl::Span<const float> logits, const SamplingOptions& options) {
  CHECK(!logits.empty() && Validate(options).ok());
  for (float logit : logits) CHECK(std::isfinite(logit)) << "a logit is " << logit;
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) {
    return {{static_cast<int32_t>(best - logits.begin()), 1.0}};
  }
  std::vector<Candidate> candidates(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates[i] = {static_cast<int32_t>(i),
                     std::exp((double{logits[i]} - *best) / options.temperature)};
  }
  const bool cuts = options.top_k > 0 && options.top_k < static_cast<int64_t>(candidates.size());
  if (cuts) {
    const auto end = candidates.begin() + options.top_k;
    std::partial_sort(candidates.begin(), end, candidates.end(), Before);
    candidates.erase(end, candidates.end());
  } else if (options.top_p < 1) {
    std::sort(candidates.begin(), candidates.end(), Before);
  }
  Normalize(candidates);
  if (options.top_p < 1) {
    double sum = 0;
    size_t kept = 0;
    while (kept < candidates.size() && sum < options.top_p) sum += candidates[kept++].probability;
    candidates.resize(kept);
    Normalize(candidates);
  }
  return candidates;
}

int32_t Draw(absl::Span<const Candidate> candidates, double uniform) {
  CHECK(!candidates.empty() && uniform >= 0 && uniform < 1) << uniform;
  double sum = 0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.probability;
    if (uniform < sum) return candidate.token;
  }
  return candidates.back().token;  // the sum's rounding errors may leave it below 1
}

}  // namespace tools
