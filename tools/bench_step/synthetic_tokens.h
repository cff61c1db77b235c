// Tokens for timing where no real text is at hand.
#ifndef TOOLS_BENCH_STEP_SYNTHETIC_TOKENS_H_
#define TOOLS_BENCH_STEP_SYNTHETIC_TOKENS_H_

#include <cstdint>
#include <vector>

namespace tools {

// `count` tokens or a few more, in whole documents, each behind a BOS. Lengths are lognormal
// (sigma 1) with a mean of 600 tokens before they are cut at 2,048, about as in web text; token
// ids follow Zipf's law, so that the frequent rows of an embedding collect gradients from many
// positions, as in text.
std::vector<uint16_t> SyntheticDocuments(int64_t count, uint32_t seed);

}  // namespace tools

#endif  // TOOLS_BENCH_STEP_SYNTHETIC_TOKENS_H_
