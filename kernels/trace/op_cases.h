// What cases of all_ops.h are made with.
#ifndef KERNELS_TRACE_OP_CASES_H_
#define KERNELS_TRACE_OP_CASES_H_

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "kernels/testing/testing.h"
#include "kernels/trace/all_ops.h"

namespace kernels {

using Dims = std::vector<int64_t>;

inline constexpr int64_t kSlots = 2, kTokens = 16, kDim = 16, kHidden = 32, kVocab = 128;
inline constexpr int kHeads = 2;
inline constexpr int64_t kGate = 4;  // features that a gate reads
inline const Dims kStream = {kSlots, kTokens, kDim}, kRows = {kSlots, kTokens};

class Cases {
 public:
  // Normal values, others in each tensor.
  Tensor F32(Dims dims) {
    return Keep(testing::RandomTensor(DType::kF32, std::move(dims), ++seed_));
  }
  Tensor Bf16(Dims dims) {
    return Keep(testing::RandomTensor(DType::kBF16, std::move(dims), ++seed_));
  }
  Tensor Stream() { return Bf16(kStream); }
  Tensor Scalars() { return F32({5}); }
  Tensor PositiveF32(Dims dims) {
    const Tensor tensor = F32(std::move(dims));
    for (int64_t i = 0; i < tensor.size(); ++i) tensor.f32()[i] = std::fabs(tensor.f32()[i]);
    return tensor;
  }
  Tensor I32(Dims dims, int32_t bound) {
    return Keep(testing::RandomTokens(std::move(dims), bound, ++seed_));
  }
  Tensor Tokens() { return I32(kRows, kVocab); }
  Tensor Zeros(DType dtype, Dims dims) { return Keep(testing::HostTensor(dtype, std::move(dims))); }
  // Bytes that mean nothing, of as many f32.
  Tensor Workspace(int64_t bytes) { return Zeros(DType::kF32, {bytes / 4 + 1}); }

  // A case of the tensors that were made since the last one. `op` and `implementation` take
  // `args` and a queue.
  template <typename Op, typename Family, typename Method, typename... Args>
  void Add(const char* name, OpCost cost, Op op, const Family* OpTable::*family,
           Method implementation, Args... args) {
    OpCase one;
    one.op = one.name = name;
    one.cost = std::move(cost);
    one.tensors = std::exchange(tensors_, {});
    one.call = [=](Queue& queue) { op(args..., queue); };
    one.backends = [=](Queue& queue) { ((queue.ops().*family)->*implementation)(args..., queue); };
    cases_.push_back(std::move(one));
  }
  OpCase& last() { return cases_.back(); }
  std::vector<OpCase> Take() { return std::move(cases_); }

 private:
  Tensor Keep(testing::HostTensor tensor) {
    tensors_.push_back(std::move(tensor));
    return tensors_.back();
  }

  uint32_t seed_ = 0;
  std::vector<testing::HostTensor> tensors_;
  std::vector<OpCase> cases_;
};

// Elementwise ops, products and updates.
void AddOpsOnWeights(Cases& cases);

}  // namespace kernels

#endif  // KERNELS_TRACE_OP_CASES_H_
