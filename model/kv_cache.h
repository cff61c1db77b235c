// The keys and values of a slot, layer by layer: what a pass over later rows of it attends to.
#ifndef MODEL_KV_CACHE_H_
#define MODEL_KV_CACHE_H_

#include <cstdint>
#include <vector>

#include "kernels/arena.h"
#include "kernels/tensor.h"
#include "model/config.h"

namespace model {

class KvCache {
 public:
  // Room for `tokens` rows of one slot.
  KvCache(const GptConfig& config, int64_t tokens);

  // Plan once, then Bind to an arena made of that plan.
  void Plan(kernels::ArenaPlan& plan);
  void Bind(const kernels::Arena& arena);

  int64_t tokens() const { return tokens_; }
  // bf16 [1, tokens, D]; empty for a layer without attention.
  kernels::Tensor k(int layer) const { return layers_[layer].k; }
  kernels::Tensor v(int layer) const { return layers_[layer].v; }

 private:
  struct Layer {
    kernels::TensorId k_id, v_id;
    kernels::Tensor k, v;
  };

  const int64_t tokens_, dim_;
  std::vector<bool> has_attention_;
  std::vector<Layer> layers_;
};

// How many rows before its first new one a pass begins that continues a slot, because rows look
// back by other ways than attention: the smear at the token before, and a key offset at the key of
// the row before, which has a smear of its own. What they leave in these rows is not all right, and
// is not kept.
int64_t RowsLookedBack(const GptConfig& config);

}  // namespace model

#endif  // MODEL_KV_CACHE_H_
