// Terms that the cost functions of several ops are made of. For the .cc files of this folder.
#ifndef KERNELS_OPS_COST_TERMS_H_
#define KERNELS_OPS_COST_TERMS_H_

#include <string>
#include <utility>

#include "kernels/ops/op_cost.h"
#include "kernels/tensor.h"

namespace kernels {

// "bf16 [8, 2048, 768]"
std::string Text(const Tensor& tensor);
// "bf16 [8, 2048, 768] x bf16 [768, 3072]"
std::string Text(const Tensor& a, const Tensor& b);

// The bytes of an optional tensor: an empty one has none.
inline double Bytes(const Tensor& tensor) {
  return tensor ? static_cast<double>(tensor.bytes()) : 0;
}
// The bytes of the rows of `table` that `tokens` can name, at most. An empty table has none.
double NamedRowBytes(const Tensor& tokens, const Tensor& table);
// The bytes of the first k features of each row of a tensor like `o`, which a gate [.., k] reads.
double GateFeatureBytes(const Tensor& o, const Tensor& gate);

// The FLOPs of [m, k] x [k, n].
inline double ProductFlops(double m, double n, double k) { return 2 * m * n * k; }

// The cost of an op that is bound by memory.
inline OpCost MemoryCost(OpPhase phase, std::string shape, double bytes) {
  return {.phase = phase, .shape = std::move(shape), .bytes = bytes};
}

}  // namespace kernels

#endif  // KERNELS_OPS_COST_TERMS_H_
