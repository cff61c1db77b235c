// From logits to a token: temperature, top-k, top-p and a draw. Pure functions.
#ifndef TOOLS_SAMPLE_SAMPLING_H_
#define TOOLS_SAMPLE_SAMPLING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tools {

struct SamplingOptions {
  double temperature = 0;  // logits are divided by it; 0: the most probable token alone
  int32_t top_k = 0;       // so many tokens stay at most; 0: all
  double top_p = 1;        // then as few as together have at least this probability
};

// InvalidArgument, naming the flag, for a temperature below 0 or not finite, a top_k below 0 or a
// top_p outside (0, 1].
absl::Status Validate(const SamplingOptions& options);

struct Candidate {
  int32_t token;
  double probability;
};

// The tokens that may be drawn, with probabilities that sum to 1, in this order of steps:
//   1. p_i = softmax(logits / temperature); temperature 0: the first of the largest logits alone
//   2. top_k: the k most probable, of equal ones those of smaller id; p is divided by their sum
//   3. top_p (Holtzman et al., 2020): the most probable in falling order, equal ones by rising id,
//      until their sum is at least top_p, so at least one; p is divided by their sum again
// Sums in float64, in the order of the result: by id where neither limit is set, else by falling
// probability. `logits` is not empty, and finite; CHECKs it.
std::vector<Candidate> Candidates(absl::Span<const float> logits, const SamplingOptions& options);

// The token at `uniform`, in [0, 1), of the candidates' cumulative probabilities.
int32_t Draw(absl::Span<const Candidate> candidates, double uniform);

}  // namespace tools

#endif  // TOOLS_SAMPLE_SAMPLING_H_
