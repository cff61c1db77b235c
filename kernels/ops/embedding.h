// Token embedding, smear gate and first norm in one op; gradients of embedding tables, and some of
// their rows at a time.
#ifndef KERNELS_OPS_EMBEDDING_H_
#define KERNELS_OPS_EMBEDDING_H_

#include <cstdint>

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

// With e_t = table[tokens_t] and g_t = sigmoid(smear_w . e_t[0..k)):
//   x_t = e_t + lambda * g_t * e_{t-1}   (t = 0 of a slot has no predecessor: x_0 = e_0)
//   x0  = rms(x)
// or, without a smear, x0 = rms(e). The smear crosses document boundaries but never slots. Smear
// gate: modded-nanogpt, record of 2025-09-18.
struct EmbedSmearNormArgs {
  Tensor tokens;         // i32 [slots, T], each in [0, V)
  Tensor table;          // bf16 [V, D]
  Tensor smear_w;        // bf16 [1, k], k <= D; empty without a smear
  Tensor scalars;        // f32 [n]; empty without a smear
  int smear_lambda = 0;  // lambda = scalars[smear_lambda]; -1: no smear
  Tensor x0;             // bf16 [slots, T, D], output
  Tensor inv_rms;        // f32 [slots, T], output
};
void EmbedSmearNorm(const EmbedSmearNormArgs& args, Queue& queue);

// Backward: from dx0 to the gradient of each token's embedding row, e. x is computed again from the
// table, rounded to bf16 as in forward, and the norm's gradient is RmsNormGrad's; x0 is not read.
//
//   dx0       bf16 [slots, T, D]
//   de        bf16 [slots, T, D], written: the row's gradient as x_t's own row and as the
//             predecessor of x_{t+1}, and through the gate; may not be dx0
//   dsmear_w  f32 [leaves, k], added to;  dscalars  f32 [leaves, n], added to; both empty without
//             a smear
void EmbedSmearNormGrad(const EmbedSmearNormArgs& forward, Tensor dx0, Tensor de, Tensor dsmear_w,
                        Tensor dscalars, Queue& queue);

// dtable[l, tokens_t] += de_t for the tokens of leaf l, in token order: repeatable.
//
//   tokens  i32 [slots, T]   de  bf16 [slots, T, D]   dtable  f32 [leaves, V, D]
//   workspace  at least EmbeddingGradWorkspaceBytes() bytes of any dtype, or empty if that is 0
void EmbeddingGrad(Tensor tokens, Tensor de, Tensor dtable, Tensor workspace, Queue& queue);
int64_t EmbeddingGradWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab, int64_t dim,
                                    const Queue& queue);

// Between the rows of a table that `rows` names and as many rows that lie one after the other:
// kGather  packed_i = table[rows_i];  kScatter  table[rows_i] = packed_i;  kAdd  table[rows_i] +=
// packed_i, f32. kScatter and kAdd need distinct rows.
//
//   rows  i32 [n], each in [0, V)   table  f32 or bf16 [V, D]   packed  [n, D], dtype of the table
enum class RowMove : uint8_t { kGather, kScatter, kAdd };
void MoveRows(RowMove move, Tensor rows, Tensor table, Tensor packed, Queue& queue);
const char* Name(RowMove move);  // "GatherRows", "ScatterRows", "AddRows"

OpCost EmbedSmearNormCost(const EmbedSmearNormArgs& args);
OpCost EmbedSmearNormGradCost(const EmbedSmearNormArgs& forward, const Tensor& dx0,
                              const Tensor& dsmear_w, const Tensor& dscalars);
OpCost EmbeddingGradCost(const Tensor& tokens, const Tensor& de, const Tensor& dtable);
OpCost MoveRowsCost(RowMove move, const Tensor& rows, const Tensor& table, const Tensor& packed);

// The part of EmbeddingOps that memory is planned with, which needs no device.
class EmbeddingWorkspace {
 public:
  virtual ~EmbeddingWorkspace() = default;
  virtual int64_t EmbeddingGradWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab,
                                              int64_t dim) const = 0;
};

class EmbeddingOps : public EmbeddingWorkspace {
 public:
  virtual void EmbedSmearNorm(const EmbedSmearNormArgs& args, Queue& queue) const = 0;
  virtual void EmbedSmearNormGrad(const EmbedSmearNormArgs& forward, Tensor dx0, Tensor de,
                                  Tensor dsmear_w, Tensor dscalars, Queue& queue) const = 0;
  virtual void EmbeddingGrad(Tensor tokens, Tensor de, Tensor dtable, Tensor workspace,
                             Queue& queue) const = 0;
  virtual void MoveRows(RowMove move, Tensor rows, Tensor table, Tensor packed,
                        Queue& queue) const = 0;
};

}  // namespace kernels

#endif  // KERNELS_OPS_EMBEDDING_H_
