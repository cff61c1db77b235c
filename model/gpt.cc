#include "model/gpt.h"

#include "absl/strings/str_cat.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/norm.h"
#include "model/kv_cache.h"
#include "third_party/absl_compat/check.h"

namespace model {

using kernels::Parameter;
using kernels::Queue;
using kernels::Tensor;

namespace {

// With split banks: what backward has left in one layer's scratch.
void AddAttentionGradient(const LayerWeights& weights, Queue& queue) {
  const Tensor dqkvo = weights.attention.qkvo.grad.At(0);
  const int64_t half = weights.qk_grad.size();  // Q and K, then V and O, as in the banks
  kernels::Add(dqkvo.Slice(0, half), weights.qk_grad, queue);
  kernels::Add(dqkvo.Slice(half, half), weights.vo_grad, queue);
}

}  // namespace

Gpt::Gpt(const GptConfig& config, const PassShape& shape)
    : config_(config),
      shape_(shape),
      layout_(LayoutOf(config_)),
      embedding_(config_),
      head_(config_),
      layers_(config_.layers.size()),
      outputs_(config_.layers.size()),
      dskip_(config_.layers.size()) {
  const absl::Status status = Validate(config_);
  CHECK(status.ok()) << status;
  CHECK(shape.slots > 0 && shape.slot_tokens > 0 && shape.max_boundaries > 1)
      << shape.slots << " slots of " << shape.slot_tokens << " tokens, " << shape.max_boundaries
      << " boundaries";
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    attention_.emplace_back(config_, static_cast<int>(i));
  }
}

// The story of a forward pass.
void Gpt::Forward(const PassInput& input, const PassWeights& weights, Queue& queue) {
  CHECK_EQ(input.tokens.dim(0), shape_.slots);
  CHECK_EQ(input.tokens.dim(1), shape_.slot_tokens);
  if (input.cache != nullptr) {
    CHECK(shape_.slots == 1 && !shape_.train) << "a pass with a cache has one slot, no backward";
    CHECK(input.begin >= 0 && input.begin + shape_.slot_tokens <= input.cache->tokens() &&
          input.kept_from >= 0 && input.kept_from <= shape_.slot_tokens)
        << shape_.slot_tokens << " rows from " << input.begin << " on, of them kept from "
        << input.kept_from << " on, in a cache of " << input.cache->tokens();
  } else {
    CHECK_EQ(input.begin, 0) << "without a cache a pass begins with the slot";
  }
  embedding_.Forward(input, weights, queue);
  const int layers = static_cast<int>(config_.layers.size());
  for (int layer = 0; layer < layers; ++layer) {
    if (config_.layers[layer].executed()) ForwardLayer(layer, input, weights, queue);
  }
  head_.Normalize(LastOutput(), BackoutOf(weights), queue);
}

void Gpt::ForwardLayer(int layer, const PassInput& input, const PassWeights& weights,
                       Queue& queue) {
  const LayerConfig& has = config_.layers[layer];
  const LayerWeights& w = weights.layers[layer];
  LayerMemory& m = memory(layer);
  const Tensor out = outputs_[layer], stream = has.attention && has.mlp ? m.mlp_x : out;
  Tensor in = StreamInto(layer);
  Tensor saved = has.skip_from < 0 ? Tensor() : outputs_[has.skip_from];
  if (HasGatedSkip(layer)) {
    kernels::GatedSkip(GatedSkip(layer, weights), queue);
    in = m.skipped;
    saved = Tensor();
  }
  const bool plain = has.attention && !NormsBeforeAttention();
  const Tensor mixed = plain ? m.u : stream;
  kernels::MixNorm({.x = in,
                    .x0 = embedding_.x0(),
                    .saved = saved,
                    .scalars = weights.scalars.value,
                    .which = Mix(layer),
                    .mixed = mixed,
                    .u = plain ? Tensor() : m.u,
                    .inv_rms = plain ? Tensor() : m.inv_rms},
                   queue);
  if (has.attention) {
    attention_[layer].Forward(input, w.attention, m.u, mixed, m.attention, scratch_.attention,
                              stream, queue);
  }
  if (has.mlp) {
    if (has.attention) kernels::RmsNorm(stream, m.mlp_u, m.mlp_inv_rms, queue);
    MlpForward(w.mlp, has.attention ? m.mlp_u : m.u, stream, m.mlp, out, queue);
  }
}

// And of a backward pass. scratch_.dx is the gradient of the residual stream, last layer first.
void Gpt::Backward(const PassInput& input, const PassWeights& weights, Queue& queue) {
  embedding_.ZeroGradients(queue);
  for (int layer = static_cast<int>(config_.layers.size()) - 1; layer >= 0; --layer) {
    if (config_.layers[layer].executed()) BackwardLayer(layer, input, weights, queue);
  }
  kernels::Add(scratch_.dx, embedding_.dx0(), queue);  // x0 is also the first layer's input
  embedding_.Backward(input, weights, queue);
}

void Gpt::BackwardLayer(int layer, const PassInput& input, const PassWeights& weights,
                        Queue& queue) {
  const LayerConfig& has = config_.layers[layer];
  const LayerWeights& w = weights.layers[layer];
  const LayerMemory& m = memory(layer);
  const Tensor dx = scratch_.dx, du = scratch_.du;

  if (has.mlp) {
    MlpBackward(w.mlp, has.attention ? m.mlp_u : m.u, m.mlp, dx, scratch_.da, du, queue);
    if (has.attention) {
      kernels::RmsNormGrad(
          {.dy = du, .x = m.mlp_x, .inv_rms = m.mlp_inv_rms, .residual = dx, .dx = dx}, queue);
    }
  }
  if (has.attention) {
    const bool split = config_.split_attention_banks;
    if (split) kernels::FillZero(w.attention.qkvo.grad, queue);
    attention_[layer].Backward(input, w.attention, m.u, m.attention, scratch_.attention, dx, du,
                               scratch_.du_head, embedding_.dvalue_rows(has.value_embedding),
                               queue);
    if (split) AddAttentionGradient(w, queue);
  }
  BackwardMix(layer, weights, queue);
}

void Gpt::BackwardMix(int layer, const PassWeights& weights, Queue& queue) {
  const LayerConfig& has = config_.layers[layer];
  const LayerMemory& m = memory(layer);
  const int previous = Previous(layer);
  // A skip from the layer just before is its second way into this one, and its gradient comes out
  // of the same op; all others were written by later layers.
  const bool skip_from_previous = has.skip_from >= 0 && has.skip_from == previous;

  kernels::MixNormGradArgs args;
  args.dresidual = scratch_.dx;
  if (has.attention && !NormsBeforeAttention()) {
    kernels::Add(scratch_.du, scratch_.dx, queue);  // both ways begin at the mixed stream
  } else {
    args.du = scratch_.du;
    if (HasAttentionGates(layer)) args.du_head = scratch_.du_head;
    args.inv_rms = m.inv_rms;
  }
  const bool gated = HasGatedSkip(layer);
  args.x = gated ? m.skipped : StreamInto(layer);
  args.x0 = embedding_.x0();
  if (has.skip_from >= 0 && !gated) args.saved = outputs_[has.skip_from];
  args.scalars = weights.scalars.value;
  args.which = Mix(layer);
  if (previous >= 0 && !skip_from_previous && !gated) args.dx_extra = dskip_[previous];
  args.dx = scratch_.dx;
  if (has.skip_from >= 0 && !gated) args.dsaved = dskip_[has.skip_from];
  args.dx0 = embedding_.dx0();
  args.dscalars = weights.scalars.grad;
  kernels::MixNormGrad(args, queue);
  if (gated) return BackwardGatedSkip(layer, weights, queue);
  if (skip_from_previous) kernels::Add(dskip_[previous], scratch_.dx, queue);
}

// scratch_.dx is the gradient of the stream after the skip connection, and of the stream before it
// as far as this layer is concerned.
void Gpt::BackwardGatedSkip(int layer, const PassWeights& weights, Queue& queue) {
  kernels::GatedSkipGradArgs grad;
  grad.dy = scratch_.dx;
  grad.dsaved = dskip_[config_.layers[layer].skip_from];
  grad.dx0 = embedding_.dx0();
  grad.dgate = weights.skip_gate.grad;
  grad.dscalars = weights.scalars.grad;
  kernels::GatedSkipGrad(GatedSkip(layer, weights), grad, queue);
  const int previous = Previous(layer);
  if (previous >= 0 && dskip_[previous]) kernels::Add(dskip_[previous], scratch_.dx, queue);
}

kernels::GatedSkipArgs Gpt::GatedSkip(int layer, const PassWeights& weights) {
  kernels::GatedSkipArgs args;
  args.x = StreamInto(layer);
  args.x0 = embedding_.x0();
  args.saved = outputs_[config_.layers[layer].skip_from];
  args.gate = weights.skip_gate.value;
  args.scalars = weights.scalars.value;
  args.skip = SkipScalar(config_, layer);
  args.y = memory(layer).skipped;
  return args;
}

void Gpt::UseWeightsOf(const Gpt& other) {
  CHECK(planned_.empty() && !shape_.train) << "before Plan, of a pass without backward";
  weights_of_ = &other;
}

void Gpt::PrepareWeights(const std::vector<Parameter>& parameters, Queue& queue) {
  CHECK(weights_of_ == this) << "another pass prepares the weights of this one";
  if (has_banks()) return PrepareBanks(parameters, queue);
  CHECK_EQ(parameters.size(), rounded_.size()) << "weights of another model?";
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (rounded_[i]) kernels::Copy(parameters[i].value, rounded_[i], queue);
  }
}

void Gpt::Loss(const PassInput& input, const std::vector<Parameter>& parameters, Tensor losses,
               Queue& queue) {
  const PassWeights weights = View(parameters, {});
  Forward(input, weights, queue);
  head_.Loss(input, weights.lm_head, losses, queue);
}

void Gpt::LossGrad(const PassInput& input, const std::vector<Parameter>& parameters,
                   int64_t leaf_begin, Tensor losses, Queue& queue) {
  CHECK(shape_.train) << "this pass was planned without backward";
  const bool one_leaf = parameters[layout_.scalars].grad.dim(0) == 1;
  CHECK(one_leaf || !has_banks() || shape_.slots == 1) << "several leaves and slots with banks";
  const LeafRange leaves = one_leaf ? LeafRange{0, 1} : LeafRange{leaf_begin, shape_.slots};
  const PassWeights weights = View(parameters, leaves);
  if (has_banks()) kernels::FillZero(banks_.scalars.grad, queue);
  Forward(input, weights, queue);
  head_.LossGrad(input, weights.lm_head, LastOutput(), BackoutOf(weights), losses, scratch_.dx,
                 queue);
  Backward(input, weights, queue);
  if (has_banks()) AddLambdaGradients(parameters, leaves.begin, queue);
}

Tensor Gpt::Hidden(const PassInput& input, const std::vector<Parameter>& parameters, Queue& queue) {
  Forward(input, View(parameters, {}), queue);
  return head_.hidden();
}

void Gpt::Logits(const std::vector<Parameter>& parameters, int64_t slot, int64_t position,
                 Tensor logits, Queue& queue) {
  head_.Logits(View(parameters, {}).lm_head, slot, position, logits, queue);
}

PassWeights Gpt::View(const std::vector<Parameter>& parameters, LeafRange leaves) const {
  return has_banks() ? ViewBanks(config_, layout_, parameters, weights_of_->banks_, leaves)
                     : ViewWeights(config_, layout_, parameters, weights_of_->rounded_, leaves);
}

kernels::MixScalars Gpt::Mix(int layer) const {
  kernels::MixScalars which;
  which.lambda_x = BlockLambda(config_, layer);
  which.lambda_x0 = X0Lambda(config_, layer);
  if (config_.layers[layer].skip_from >= 0 && !HasGatedSkips()) {
    which.skip = SkipScalar(config_, layer);
  }
  which.skip_is_weight = config_.skip_weight == SkipWeight::kPlain;
  return which;
}

bool Gpt::HasAttentionGates(int layer) const {
  const LayerConfig& has = config_.layers[layer];
  if (!has.attention) return false;
  return config_.attention_gate ||
         (config_.value_mix == ValueMix::kGate && has.value_embedding >= 0);
}

int Gpt::Previous(int layer) const {
  do {
    --layer;
  } while (layer >= 0 && !config_.layers[layer].executed());
  return layer;
}

Tensor Gpt::FinalStream() const { return config_.backout_layer < 0 ? LastOutput() : scratch_.left; }

Backout Gpt::BackoutOf(const PassWeights& weights) const {
  Backout backout;
  if (config_.backout_layer < 0) return backout;
  backout.from = outputs_[config_.backout_layer];
  backout.left = scratch_.left;
  backout.dfrom = dskip_[config_.backout_layer];
  backout.scalars = weights.scalars;
  backout.which = {.lambda_x0 = BackoutLambda(config_), .subtract_x0 = true};
  return backout;
}

Tensor Gpt::StreamInto(int layer) const {
  const int previous = Previous(layer);
  return previous < 0 ? embedding_.x0() : outputs_[previous];
}

}  // namespace model
