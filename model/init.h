// Initial weights, the same on every platform and for every number of threads.
#ifndef MODEL_INIT_H_
#define MODEL_INIT_H_

#include <cstdint>
#include <vector>

#include "kernels/parameter.h"
#include "kernels/queue.h"
#include "model/config.h"

namespace model {

// Sets all weights to what config.initial says and returns when they are in place:
//   scalars, x0_lambdas   initial.scalars
//   Q, K, V               uniform in [-b, b), b = initial.qkv sqrt(3 / dim)
//   O                     likewise with split_attention_banks, else zero
//   MLPs                  the first matrix likewise with initial.mlp, also in the bank's entries
//                         beyond the layers; the second zero
//   embed, value_embeds, head   normal, drawn in f32, or the head as BF16Normal; embed perhaps the
//                         head's transpose
//   gates                 zero
// bf16 weights are rounded from f32.
//
// Draws are distributed as the PyTorch originals', which make their weights on the CPU. Element i
// of a weight comes from SplitMix64 at position i of a stream that seed and name choose (Steele,
// Lea and Flood, 2014), normals in pairs by Box and Muller, in double but for BF16Normal. So an
// element depends on nothing else, and weights may be added without changing the others.
void InitParameters(const GptConfig& config, uint64_t seed,
                    const std::vector<kernels::Parameter>& parameters, kernels::Queue& queue);

// The parameter `scalars` of these values, with 0 where the config has no use for a place; padding
// up to a multiple of `multiple` is ones.
std::vector<float> ScalarsOf(const GptConfig& config, const ScalarValues& values,
                             int64_t multiple = 1);
// That of config.initial.
std::vector<float> InitialScalars(const GptConfig& config, int64_t multiple = 1);

}  // namespace model

#endif  // MODEL_INIT_H_
