// The operands of the CPU's QKV ops as plain pointers.
#ifndef KERNELS_CPU_QKV_BLOCKS_H_
#define KERNELS_CPU_QKV_BLOCKS_H_

#include <cstdint>

#include "kernels/ops/qkv.h"
#include "third_party/absl_compat/check.h"

namespace kernels {

struct QkvProblem {
  explicit QkvProblem(const QkvArgs& args)
      : slots(args.qkv.dim(0)),
        tokens(args.qkv.dim(1)),
        heads(args.heads),
        dim(args.qkv.dim(2) / 3),
        half(dim / heads / 2),
        qkv(args.qkv.bf16()),
        cos(args.cos.data()),
        sin(args.sin.data()),
        f32_angles(args.cos.dtype() == DType::kF32),
        norm_value(args.norm_value),
        statistics((norm_value ? 3 : 2) * heads),
        q(args.q ? args.q.bf16() : nullptr),
        k(args.k ? args.k.bf16() : nullptr),
        v(args.v ? args.v.bf16() : nullptr),
        inv_rms(args.inv_rms.f32()) {
    lambda[0] = args.scalars.f32()[args.value_lambda];
    if (!args.value_table) return;
    lambda[1] = args.scalars.f32()[args.value_lambda + 1];
    token_ids = args.tokens.i32();
    value_table = args.value_table.bf16();
    vocabulary = args.value_table.dim(0);
  }

  void CheckTokens() const {
    if (value_table == nullptr) return;
    for (int64_t row = 0; row < slots * tokens; ++row) {
      CHECK(token_ids[row] >= 0 && token_ids[row] < vocabulary)
          << "QkvSplitNormRotary: token " << token_ids[row] << " at row " << row
          << ", value table of " << vocabulary << " rows";
    }
  }

  // The value embedding of a row's token, or null without a table.
  const BF16* ValueRow(int64_t row) const {
    return value_table == nullptr ? nullptr : value_table + token_ids[row] * dim;
  }

  int64_t slots, tokens, heads, dim;
  int64_t half;  // of a head's features
  const BF16* qkv;
  const void* cos;  // f32 or bf16
  const void* sin;
  bool f32_angles;
  bool norm_value;
  int64_t statistics;  // of a row of inv_rms
  BF16* q;
  BF16* k;
  BF16* v;
  float* inv_rms;
  float lambda[2] = {};
  const int32_t* token_ids = nullptr;
  const BF16* value_table = nullptr;
  int64_t vocabulary = 0;
};

struct QkvGradPointers {
  const BF16* dq;
  const BF16* dk;
  const BF16* dv;
  BF16* dqkv;
  BF16* dvalue_rows;  // null without a value table
};

struct GateProblem {
  GateProblem(Tensor o_tensor, Tensor u_tensor, Tensor gate_w_tensor)
      : slots(o_tensor.dim(0)),
        tokens(o_tensor.dim(1)),
        heads(gate_w_tensor.dim(0)),
        head_dim(o_tensor.dim(2) / heads),
        u_dim(u_tensor.dim(2)),
        k(gate_w_tensor.dim(1)),
        o(o_tensor.bf16()),
        u(u_tensor.bf16()),
        gate_w(gate_w_tensor.bf16()) {}

  int64_t slots, tokens, heads, head_dim, u_dim, k;
  const BF16* o;
  const BF16* u;
  const BF16* gate_w;
};

struct GateGradPointers {
  const BF16* dy;
  BF16* do_;  // may be dy
  float* du_head;
};

}  // namespace kernels

#endif  // KERNELS_CPU_QKV_BLOCKS_H_
