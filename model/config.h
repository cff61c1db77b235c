// What a GPT of the speedrun is made of, as data: sizes, layer table, places of the scalars.
#ifndef MODEL_CONFIG_H_
#define MODEL_CONFIG_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/ops/head.h"

namespace model {

struct LayerConfig {
  bool attention = true;
  bool mlp = true;
  bool long_window = false;
  int value_embedding = -1;  // which value embedding is mixed into v; -1: none
  int skip_from = -1;        // the layer whose output is added before this one; -1: none

  // A layer with neither half leaves the residual stream alone and is not run at all.
  bool executed() const { return attention || mlp; }
};

struct GptConfig {
  int64_t vocab_size = 0;  // padded: the padding ids take part in the softmax
  int64_t dim = 0;
  int64_t mlp_dim = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t gate_features = 12;  // features that the smear gate and the attention gates read
  int64_t value_embeddings = 3;
  std::vector<LayerConfig> layers;
  float softcap = 30.0f;
  float softcap_temperature = 7.5f;
  bool fp8_head = true;  // training's head in fp8; validation is always bf16
  // The layer whose output, weighed by a scalar, is taken out of the stream again before the final
  // norm; -1: none.
  int backout_layer = -1;
};

// InvalidArgument, naming field and layer, if the parts do not fit together.
absl::Status Validate(const GptConfig& config);

struct GptSize {
  int64_t vocab_size = 50304;
  int64_t dim = 768;
  int64_t heads = 6;
  int64_t head_dim = 128;
  int64_t mlp_dim = 3072;
  int64_t layers = 12;
};

// The record of 2025-09-23, Muon Custom Sizing, at any width. Its layer table (windows, value
// embeddings, skips 6<-5 ... 10<-1) is written for 12 layers: others are InvalidArgument.
absl::StatusOr<GptConfig> MuonCustomSizingConfig(const GptSize& size);

// The record of 2025-10-27, FixMuonLR: the same layers, with a backout of layer 8's output.
absl::StatusOr<GptConfig> FixMuonLRConfig(const GptSize& size);

// The scales of the fp8 head: an rms-normalised vector has |x| <= sqrt(dim), so x_scale =
// sqrt(dim) / 448 never saturates; gradients of a summed loss are at most 1.
kernels::HeadPrecision TrainingHeadPrecision(const GptConfig& config);

// Where things stand in the parameter `scalars`. With n layers:
//   [0, n)      skip weights; the layer n/2 + j is gated by entry j
//   [n, 3n)     block lambdas, two a layer: weights of the residual stream and of x0
//   [3n, 5n)    attention lambdas, two a layer: weights of v and of the value embedding
//   [5n]        smear lambda
//   [5n + 1]    backout lambda, with a backout;  else (5n, 6n) is spare
int SkipScalar(const GptConfig& config, int layer);
int BlockLambda(const GptConfig& config, int layer);
int AttentionLambda(const GptConfig& config, int layer);
int SmearLambda(const GptConfig& config);
int BackoutLambda(const GptConfig& config);
// 5n + 2 with a backout, else 6n, rounded up to a multiple of `multiple`; the padding holds ones.
int64_t ScalarCount(const GptConfig& config, int64_t multiple = 1);

// Elements of the f32 matrices: QKVO of each attention layer, two of each MLP.
int64_t HiddenMatrixParameters(const GptConfig& config);
// Those and the head, which take part in a dense product for each token.
int64_t DenseParametersPerToken(const GptConfig& config);
// Two a multiply-add; without gates and attention. Backward is twice the forward.
int64_t ForwardFlopsPerToken(const GptConfig& config);
int64_t TrainingFlopsPerToken(const GptConfig& config);

}  // namespace model

#endif  // MODEL_CONFIG_H_
