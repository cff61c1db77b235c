// Initial weights, the same on every platform and for every number of threads.
#ifndef MODEL_INIT_H_
#define MODEL_INIT_H_

#include <cstdint>
#include <vector>

#include "kernels/parameter.h"
#include "kernels/queue.h"
#include "model/config.h"

namespace model {

// Sets all weights and returns when they are in place:
//   embed, value_embeds   N(0, 1) drawn in f32, then rounded to bf16
//   Q, K, V, c_fc         uniform in [-b, b), b = sqrt(3) / 2 * dim^(-1/2); 1/32 at dim 768
//   O, c_proj, both gates, lm_head   zero
//   scalars               skip weights -1.5; block lambdas (1, 0); attention lambdas (0.5, 0.5);
//                         backout lambda 0.5; all else 0
// With kPerLayerBf16 the same, rounded to bf16; skip weights 1.
// With banks:
//   lm_head               N(0, 0.005^2) drawn in bf16, see BF16Normal;  embed its transpose
//   Q, K, V               uniform in [-b, b), b = sqrt(3 / dim); with split_attention_banks Q, K,
//                         V and O in [-b / 2, b / 2)
//   c_fc                  uniform in [-b / 2, b / 2), padding slots too
//   O otherwise, c_proj, all gates, value_embeds, x0_lambdas   zero
//   scalars               weights of the stream 1.1, factors (0.5, 1), smear lambda 0, backout
//                         lambda 0.5, skip weight -1.5
//
// Draws are distributed as the PyTorch originals', which make their weights on the CPU. Element i
// of a weight comes from SplitMix64 at position i of a stream that seed and name choose (Steele,
// Lea and Flood, 2014), normals in pairs by Box and Muller, in double but for lm_head's. So an
// element depends on nothing else, and weights may be added without changing the others.
void InitParameters(const GptConfig& config, uint64_t seed,
                    const std::vector<kernels::Parameter>& parameters, kernels::Queue& queue);

// The initial scalars; padding up to a multiple of `multiple` is ones.
std::vector<float> InitialScalars(const GptConfig& config, int64_t multiple = 1);

}  // namespace model

#endif  // MODEL_INIT_H_
