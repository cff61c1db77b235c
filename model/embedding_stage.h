// From tokens to the normalised stream x0, and gradients of all embedding tables.
#ifndef MODEL_EMBEDDING_STAGE_H_
#define MODEL_EMBEDDING_STAGE_H_

#include <vector>

#include "kernels/queue.h"
#include "model/config.h"
#include "model/pass.h"
#include "model/pass_weights.h"

namespace model {

class EmbeddingStage {
 public:
  explicit EmbeddingStage(const GptConfig& config) : config_(config) {}

  void Plan(const PassShape& shape, const kernels::Queue& queue, PassMemory& memory);

  // x0 = rms(smear(embed[tokens])), or without a smear rms(embed[tokens]), bf16 [slots, T, D].
  void Forward(const PassInput& input, const PassWeights& weights, kernels::Queue& queue) const;
  kernels::Tensor x0() const { return x0_; }

  // Zeroes what backward gathers: the gradient of x0, and of each value embedding's rows.
  void ZeroGradients(kernels::Queue& queue) const;
  kernels::Tensor dx0() const { return dx0_; }  // bf16 [slots, T, D]
  // bf16 [slots, T, D]; empty for -1.
  kernels::Tensor dvalue_rows(int table) const {
    return table < 0 ? kernels::Tensor() : dvalue_rows_[table];
  }
  // From the complete dx0 and dvalue_rows to the gradients of embeddings and smear.
  void Backward(const PassInput& input, const PassWeights& weights, kernels::Queue& queue) const;

 private:
  const GptConfig& config_;
  kernels::Tensor x0_;                        // bf16 [slots, T, D]
  kernels::Tensor inv_rms_;                   // f32 [slots, T]
  kernels::Tensor dx0_;                       // bf16 [slots, T, D]
  kernels::Tensor de_;                        // bf16 [slots, T, D]
  std::vector<kernels::Tensor> dvalue_rows_;  // bf16 [slots, T, D] each
  kernels::Tensor workspace_;                 // f32
};

}  // namespace model

#endif  // MODEL_EMBEDDING_STAGE_H_
