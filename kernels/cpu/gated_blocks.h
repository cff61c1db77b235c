// The operands of the CPU's gated ops as plain pointers.
#ifndef KERNELS_CPU_GATED_BLOCKS_H_
#define KERNELS_CPU_GATED_BLOCKS_H_

#include <cmath>
#include <cstdint>

#include "kernels/ops/gated.h"
#include "third_party/absl_compat/check.h"

namespace kernels {

struct GatedQkvProblem {
  explicit GatedQkvProblem(const GatedQkvArgs& args)
      : slots(args.qkv.dim(0)),
        tokens(args.qkv.dim(1)),
        heads(args.heads),
        dim(args.qkv.dim(2) / 3),
        head_dim(dim / heads),
        paired(args.paired),
        key_offset(args.key_offset),
        qkv(args.qkv.bf16()),
        cos(args.cos.bf16()),
        sin(args.sin.bf16()),
        inv_rms(args.inv_rms.f32()) {
    if (!args.value_table) return;
    token_ids = args.tokens.i32();
    value_table = args.value_table.bf16();
    vocabulary = args.value_table.dim(0);
    u = args.u.bf16();
    value_gate = args.value_gate.bf16();
    gate_size = args.value_gate.dim(1);
  }

  void CheckTokens() const {
    if (value_table == nullptr) return;
    for (int64_t row = 0; row < slots * tokens; ++row) {
      CHECK(token_ids[row] >= 0 && token_ids[row] < vocabulary)
          << "GatedQkv: token " << token_ids[row] << " at row " << row << ", value table of "
          << vocabulary << " rows";
    }
  }

  // Where cos and sin of a head of token t begin.
  int64_t Angle(int64_t t, int64_t head) const {
    return (paired ? 2 * t + head % 2 : t) * (head_dim / 2);
  }
  const BF16* ValueRow(int64_t row) const { return value_table + token_ids[row] * dim; }

  int64_t slots, tokens, heads, dim, head_dim;
  bool paired, key_offset;
  const BF16* qkv;
  const BF16* cos;
  const BF16* sin;
  float* inv_rms;
  const BF16* value_table = nullptr;  // null without one, as what follows
  const int32_t* token_ids = nullptr;
  int64_t vocabulary = 0;
  const BF16* u = nullptr;
  const BF16* value_gate = nullptr;
  int64_t gate_size = 0;
};

struct GatedQkvOutputs {
  BF16* q;
  BF16* k;
  BF16* v;
};

struct GatedQkvGradPointers {
  const BF16* dq;
  const BF16* dk;
  const BF16* dv;
  BF16* dqkv;
  BF16* dvalue_rows;  // null without a value table
  float* du_head;     // likewise
};

// What both directions of GatedSkip read.
struct GatedSkipProblem {
  explicit GatedSkipProblem(const GatedSkipArgs& args)
      : slots(args.saved.dim(0)),
        tokens(args.saved.dim(1)),
        dim(args.saved.dim(2)),
        gate_size(args.gate.dim(1)),
        saved(args.saved.bf16()),
        x0(args.x0.bf16()),
        gate(args.gate.bf16()),
        weight(1.0f / (1.0f + std::exp(-args.scalars.f32()[args.skip]))) {}

  int64_t slots, tokens, dim, gate_size;
  const BF16* saved;
  const BF16* x0;
  const BF16* gate;
  float weight;  // sigmoid(scalars[skip])
};

struct GatedSkipGradPointers {
  const BF16* dy;
  BF16* dsaved;
  BF16* dx0;
};

}  // namespace kernels

#endif  // KERNELS_CPU_GATED_BLOCKS_H_
