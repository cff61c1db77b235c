// Attention half of a layer: QKV product, QK norm and rotary, windowed attention, gate, O product.
#ifndef MODEL_ATTENTION_BLOCK_H_
#define MODEL_ATTENTION_BLOCK_H_

#include "kernels/ops/attention.h"
#include "kernels/ops/gated.h"
#include "kernels/ops/qkv.h"
#include "kernels/queue.h"
#include "model/config.h"
#include "model/pass.h"

namespace model {

struct AttentionWeights {
  Weight qkvo;         // bf16 [4 D, D]: Q, K, V, O, each [out, in]
  Weight gate;         // bf16 [heads, gate_features], or empty
  Weight scalars;      // all of the model's
  Weight value_table;  // bf16 [V, D], or empty
  Weight value_gate;   // bf16 [heads, gate_features], or empty
};

// What forward leaves for backward; one per layer in training.
struct AttentionActivations {
  kernels::Tensor qkv;      // bf16 [slots, T, 3 D]
  kernels::Tensor q, k, v;  // bf16 [slots, T, D]
  kernels::Tensor inv_rms;  // f32 [slots, T, 2 heads], or 3 with v's
  kernels::Tensor o;        // bf16 [slots, T, D]
  kernels::Tensor lse;      // f32 [slots, heads, T]
  void Plan(const GptConfig& config, const PassShape& shape, PassMemory& memory);
};

// Scratch that all layers share.
struct AttentionScratch {
  kernels::Tensor gated;       // bf16 [slots, T, D]
  kernels::Tensor d_o;         // bf16 [slots, T, D]; this and the rest for backward only
  kernels::Tensor dq, dk, dv;  // bf16 [slots, T, D]
  kernels::Tensor dqkv;        // bf16 [slots, T, 3 D]
  kernels::Tensor delta;       // f32 [slots, heads, T]
  void Plan(const GptConfig& config, const PassShape& shape, PassMemory& memory);
};

class AttentionBlock {
 public:
  AttentionBlock(const GptConfig& config, int layer)
      : config_(config),
        index_(layer),
        layer_(config.layers[layer]),
        value_lambda_(AttentionLambda(config, layer)) {}

  // out = residual + Attn(u).  u, residual, out  bf16 [slots, T, D]; out may be residual.
  void Forward(const PassInput& input, const AttentionWeights& weights, kernels::Tensor u,
               kernels::Tensor residual, AttentionActivations& saved, AttentionScratch& scratch,
               kernels::Tensor out, kernels::Queue& queue) const;

  // From dout: adds to the weights' gradients, and writes
  //   du       bf16 [slots, T, D]               by way of the QKV product
  //   du_head  f32 [slots, T, gate_features]    by way of the gates; untouched without any
  //   dvalue_rows  bf16 [slots, T, D], added to: the value table's rows; empty without a table
  void Backward(const PassInput& input, const AttentionWeights& weights, kernels::Tensor u,
                const AttentionActivations& saved, AttentionScratch& scratch, kernels::Tensor dout,
                kernels::Tensor du, kernels::Tensor du_head, kernels::Tensor dvalue_rows,
                kernels::Queue& queue) const;

 private:
  kernels::QkvArgs Qkv(const PassInput& input, const AttentionWeights& weights,
                       const AttentionActivations& saved) const;
  kernels::GatedQkvArgs GatedQkv(const PassInput& input, const AttentionWeights& weights,
                                 kernels::Tensor u, const AttentionActivations& saved) const;
  kernels::AttentionArgs Attend(const PassInput& input, const AttentionActivations& saved) const;
  kernels::Tensor Gated(const AttentionWeights& weights, kernels::Tensor u,
                        const AttentionActivations& saved, AttentionScratch& scratch,
                        kernels::Queue& queue) const;
  void Attention(const PassInput& input, const AttentionActivations& saved,
                 kernels::Queue& queue) const;
  // Of one token's heads, as attention and rotary see them: 2 with paired heads.
  int Sequences() const { return layer_.paired_heads ? 2 : 1; }
  // As attention sees it: [slots, 2 T, D / 2] with paired heads.
  kernels::Tensor Rows(kernels::Tensor x) const;
  // Of a rotary table: from the pass' first row on.
  kernels::Tensor Positions(kernels::Tensor table, const PassInput& input) const;
  void BackwardQkv(const PassInput& input, const AttentionWeights& weights, kernels::Tensor u,
                   const AttentionActivations& saved, AttentionScratch& scratch,
                   kernels::Tensor du_head, kernels::Tensor dvalue_rows,
                   kernels::Queue& queue) const;

  const GptConfig& config_;
  const int index_;
  const LayerConfig& layer_;
  const int value_lambda_;
};

}  // namespace model

#endif  // MODEL_ATTENTION_BLOCK_H_
