// What an op has to move and to multiply at the least, from the shapes of its arguments: the floor
// that a measured time is held against. Each op's cost function is declared beside the op.
#ifndef KERNELS_OPS_OP_COST_H_
#define KERNELS_OPS_OP_COST_H_

#include <cstdint>
#include <string>

namespace kernels {

// Parts of a step, as tables sum them up.
enum class OpPhase : uint8_t {
  kGemm,
  kAttention,
  kNormElementwise,
  kHeadLoss,
  kEmbedding,
  kOptimizer,
  kOther,  // fills, copies, casts, sums, checks
};
constexpr int kOpPhases = 7;
// "gemm", "attention", "norm/elementwise", "head+loss", "embedding", "optimizer", "other"
const char* Name(OpPhase phase);

struct OpCost {
  OpPhase phase = OpPhase::kOther;
  std::string shape;  // "bf16 [8, 2048, 768] x [768, 3072]"
  // Of products, two a multiply-add; 0 for ops that are bound by memory anyway.
  double flops = 0;
  bool fp8 = false;  // the products are of fp8 values
  // Each input read once, each output written once, what is added to both; of a table only the
  // rows that the tokens can name. Scratch and recomputation cost nothing here.
  double bytes = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_OP_COST_H_
