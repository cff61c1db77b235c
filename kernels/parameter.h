// What the model declares and the optimizer sees: named weights with their gradients.
#ifndef KERNELS_PARAMETER_H_
#define KERNELS_PARAMETER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/tensor.h"

namespace kernels {

// A weight as the model declares it.
struct ParameterSpec {
  std::string name;            // as in the PyTorch original, such as "blocks.3.mlp.c_fc"
  std::string label;           // groups and the param table go by it: "attn", "mlp", "lm_head", ...
  std::vector<int64_t> shape;  // as stored
  DType dtype = DType::kF32;   // f32 or bf16
  // How the optimizer sees it: `matrices` consecutive matrices of rows x cols. A merged QKVO
  // of [768, 3072] is four of 768 x 768.
  int64_t matrices = 1;
  int64_t rows = 1;
  int64_t cols = 1;

  int64_t size() const { return matrices * rows * cols; }
};

// A weight with its memory. Gradients are f32 whatever the weight's dtype, so that the sum
// over slots does not depend on how slots are spread over passes and ranks.
struct Parameter {
  ParameterSpec spec;
  Tensor value;  // spec.dtype, spec.shape
  // f32 [leaves, size]: sums of the slots' gradients. One leaf for all slots of this rank, or
  // (deterministic runs) one leaf per slot.
  Tensor grad;
  // Elements that the memory of value, and of grad if it has one leaf, really holds, if more than
  // spec.size(): padding, zero at first, so that ranks can share the parameter in equal chunks
  // without a copy of it. 0: none.
  int64_t room = 0;
};

}  // namespace kernels

#endif  // KERNELS_PARAMETER_H_
