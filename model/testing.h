// Small models, their memory and a batch, for tests of whole passes.
#ifndef MODEL_TESTING_H_
#define MODEL_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/arena.h"
#include "kernels/queue.h"
#include "model/config.h"
#include "model/gpt.h"
#include "model/parameters.h"

namespace model::testing {

// Two models with most of the parts that a model can have: dim 32, 2 heads, vocabulary 96. Layers
// with both halves, one or none, with each of the value embeddings, skip connections from the layer
// before and from farther.
GptConfig PerLayerToy();  // f32 matrices, scalars that mix
GptConfig BackoutToy();   // the same with a backout
GptConfig BanksToy();     // bf16 banks, gates that mix, paired heads and key offsets, a [D, V] head
constexpr int64_t kSlots = 2;
constexpr int64_t kSlotTokens = 96;

// Weights from an integer hash, that of tools/recipes/testdata/make_fixture.py: everything nonzero,
// nothing stored.
void SetHashedWeights(const GptConfig& config, const ParameterArena& weights,
                      kernels::Queue& queue);

// A model planned for `slots` of the kSlots slots of a fixed batch, with documents of several
// lengths, starting with `first_slot`.
class SmallPass {
 public:
  SmallPass(const GptConfig& config, int64_t first_slot, int64_t slots, bool train,
            kernels::Queue& queue);

  // Losses of all tokens, slot by slot. LossGrad also finishes all leaves' gradients,
  // or leaves that to a later call.
  std::vector<float> Loss(const ParameterArena& weights);
  std::vector<float> LossGrad(const ParameterArena& weights, int64_t leaf_begin,
                              bool finish = true);

  Gpt& gpt() { return gpt_; }
  const PassInput& input() const { return input_; }

 private:
  kernels::Queue& queue_;
  Gpt gpt_;
  kernels::Arena arena_;
  PassInput input_;
  kernels::Tensor losses_;
};

std::unique_ptr<ParameterArena> MakeWeights(const GptConfig& config, int64_t leaves);
std::vector<float> Download(kernels::Tensor f32, kernels::Queue& queue);

// Expects that the gradient of `sum`, of one leaf, is that of both leaves of `apart` together, to a
// relative L2 error of 1e-5, and is not zero.
void ExpectSumOfTwoLeaves(const kernels::Parameter& sum, const kernels::Parameter& apart,
                          kernels::Queue& queue);

}  // namespace model::testing

#endif  // MODEL_TESTING_H_
