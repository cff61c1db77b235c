// The GPT of the speedrun, assembled from its stages, with an explicit backward pass.
//
//   Gpt gpt(config, {.slots = 2, .slot_tokens = 512, .max_boundaries = 128});
//   ArenaPlan plan;
//   gpt.Plan(plan, queue);
//   ABSL_ASSIGN_OR_RETURN(Arena arena, Arena::Create(plan, backend));
//   gpt.Bind(arena);
//   gpt.PrepareWeights(parameters, queue);  // after each update
//   gpt.LossGrad(input, parameters, 0, losses, queue);  // as often as there are passes
//   gpt.FinishGradients(parameters, queue);
#ifndef MODEL_GPT_H_
#define MODEL_GPT_H_

#include <cstdint>
#include <vector>

#include "kernels/arena.h"
#include "kernels/ops/gated.h"
#include "kernels/ops/norm.h"
#include "kernels/parameter.h"
#include "kernels/queue.h"
#include "model/attention_block.h"
#include "model/config.h"
#include "model/embedding_stage.h"
#include "model/head_stage.h"
#include "model/mlp_block.h"
#include "model/parameters.h"
#include "model/pass.h"
#include "model/pass_weights.h"

namespace model {

// Holds the activations of one pass and what products read instead of the weights: bf16 copies of
// the f32 matrices or, with banks, attention's matrices times their factors. No weights.
// `parameters` are always those of ParameterSpecs(config), in that order.
class Gpt {
 public:
  // CHECKs that the config is valid and the shape positive.
  Gpt(const GptConfig& config, const PassShape& shape);
  Gpt(const Gpt&) = delete;
  Gpt& operator=(const Gpt&) = delete;

  const GptConfig& config() const { return config_; }
  const PassShape& shape() const { return shape_; }

  // Before Plan: this pass, of the same model without backward, reads the copies of weights that
  // `other`, which outlives it, has prepared, instead of planning and preparing its own.
  void UseWeightsOf(const Gpt& other);
  // Plan once, then Bind to an arena made of that plan. The queue tells the backend.
  void Plan(kernels::ArenaPlan& plan, const kernels::Queue& queue);
  void Bind(const kernels::Arena& arena);

  // Makes the copies of the weights that all passes use until the next call.
  void PrepareWeights(const std::vector<kernels::Parameter>& parameters, kernels::Queue& queue);
  // Turns what LossGrad has gathered for those copies into gradients of the weights: in all leaves,
  // once after the last pass of a step. The gradients of matrices and of their factors are not
  // ready before.
  void FinishGradients(const std::vector<kernels::Parameter>& parameters,
                       kernels::Queue& queue) const;

  // Losses of all tokens, f32 [slots, T], with the bf16 head: validation.
  void Loss(const PassInput& input, const std::vector<kernels::Parameter>& parameters,
            kernels::Tensor losses, kernels::Queue& queue);

  // Losses by training's head, and the gradients of each slot's summed loss, added to the
  // parameters' leaves: to the only leaf if there is one, else to leaf_begin + slot. With banks and
  // several leaves a pass is of one slot.
  void LossGrad(const PassInput& input, const std::vector<kernels::Parameter>& parameters,
                int64_t leaf_begin, kernels::Tensor losses, kernels::Queue& queue);

  // The normalised final state, bf16 [slots, T, D], valid until the next pass. No targets needed.
  kernels::Tensor Hidden(const PassInput& input, const std::vector<kernels::Parameter>& parameters,
                         kernels::Queue& queue);
  // What the final norm reads, bf16 [slots, T, D], valid until the next pass.
  kernels::Tensor FinalStream() const;
  // logits  f32 [1, 1, V], soft cap applied, of one position of the last pass.
  void Logits(const std::vector<kernels::Parameter>& parameters, int64_t slot, int64_t position,
              kernels::Tensor logits, kernels::Queue& queue);

 private:
  // What one layer leaves for backward. Without backward all layers share the first.
  struct LayerMemory {
    // What the layer's first half reads: rms of the mixed stream, or that stream.
    kernels::Tensor u, inv_rms;
    AttentionActivations attention;
    kernels::Tensor skipped;  // the stream after a gated skip connection
    // The stream after attention, which the MLP's norm reads in both directions, and its rms.
    kernels::Tensor mlp_x, mlp_u, mlp_inv_rms;
    MlpActivations mlp;
  };
  struct Scratch {
    kernels::Tensor left;  // bf16 [slots, T, D]: the stream after the backout; empty without one
    AttentionScratch attention;
    kernels::Tensor dx, du;   // bf16 [slots, T, D]
    kernels::Tensor du_head;  // f32 [slots, T, gate_features]
    kernels::Tensor da;       // bf16 [slots, T, hidden]
  };

  // Whether a layer's attention reads the norm of the mixed stream, or the stream itself.
  bool NormsBeforeAttention() const { return config_.attention_input == AttentionInput::kNormed; }
  bool has_banks() const { return config_.storage == Storage::kBanks; }
  bool HasGatedSkips() const { return config_.skip_weight == SkipWeight::kGate; }
  bool HasGatedSkip(int layer) const {
    return HasGatedSkips() && config_.layers[layer].skip_from >= 0;
  }
  // Whether a gate of the layer's attention reads the first features of what attention reads.
  bool HasAttentionGates(int layer) const;
  void PlanLayer(int layer, PassMemory& memory);
  void PlanForwardOnly(PassMemory& memory);
  void PlanWeights(PassMemory& memory);
  void PlanScratch(PassMemory& memory);
  LayerMemory& memory(int layer) { return layers_[shape_.train ? layer : 0]; }
  // The last layer before this one that is run; -1 if x0 comes in.
  int Previous(int layer) const;
  kernels::Tensor StreamInto(int layer) const;
  kernels::Tensor LastOutput() const { return StreamInto(static_cast<int>(outputs_.size())); }
  Backout BackoutOf(const PassWeights& weights) const;

  PassWeights View(const std::vector<kernels::Parameter>& parameters, LeafRange leaves) const;
  void Forward(const PassInput& input, const PassWeights& weights, kernels::Queue& queue);
  void ForwardLayer(int layer, const PassInput& input, const PassWeights& weights,
                    kernels::Queue& queue);
  void Backward(const PassInput& input, const PassWeights& weights, kernels::Queue& queue);
  void BackwardLayer(int layer, const PassInput& input, const PassWeights& weights,
                     kernels::Queue& queue);
  void BackwardMix(int layer, const PassWeights& weights, kernels::Queue& queue);
  void BackwardGatedSkip(int layer, const PassWeights& weights, kernels::Queue& queue);
  kernels::GatedSkipArgs GatedSkip(int layer, const PassWeights& weights);
  // The table of scalars and x0_lambdas: its values, and its gradient of one pass.
  void PrepareBanks(const std::vector<kernels::Parameter>& parameters, kernels::Queue& queue);
  void AddLambdaGradients(const std::vector<kernels::Parameter>& parameters, int64_t leaf,
                          kernels::Queue& queue) const;
  kernels::MixScalars Mix(int layer) const;

  const GptConfig config_;
  const PassShape shape_;
  const ParameterLayout layout_;
  EmbeddingStage embedding_;
  std::vector<AttentionBlock> attention_;  // one a layer, used where the layer has attention
  HeadStage head_;

  PassMemory::Planned planned_;
  std::vector<LayerMemory> layers_;
  std::vector<kernels::Tensor> outputs_;  // bf16 [slots, T, D]: each layer's, also the skips
  // By source layer: the gradient that reaches its output by a skip connection or the backout.
  std::vector<kernels::Tensor> dskip_;
  const Gpt* weights_of_ = this;          // whose rounded_ and banks_ are read
  std::vector<kernels::Tensor> rounded_;  // by parameter; empty where none is needed
  BankTensors banks_;
  Scratch scratch_;
};

}  // namespace model

#endif  // MODEL_GPT_H_
