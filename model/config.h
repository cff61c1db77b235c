// What a GPT of the speedrun is made of, as data: sizes, layer table, places of the scalars.
#ifndef MODEL_CONFIG_H_
#define MODEL_CONFIG_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/ops/head.h"

namespace model {

// How the weights are stored, and what comes with it. Names, shapes: ParameterSpecs.
enum class WeightStyle : uint8_t {
  // A parameter for each part of each layer; hidden matrices in f32, products read bf16 copies.
  // Rotary turns features i and i + d/2; v and its value embedding are mixed by two scalars a
  // layer; the skip connection of layer n/2 + j is weighed by one scalar.
  kPerLayer,
  // modded-nanogpt's records from 2026-01 on. A bf16 bank for all layers' attention, one for their
  // MLPs, one for each kind of gate. Products of attention read weights that are multiplied by two
  // learnt scalars a layer. Rotary turns features 2 i and 2 i + 1; value embeddings are added to v
  // by a gate per token and head; the one skip connection has a gate per token. x0's weights are a
  // parameter of their own. The output head is stored [D, V].
  kBanks,
  // modded-nanogpt's track 2, record of 2025-04-16. A parameter for each part of each layer, hidden
  // matrices in bf16, the head in f32, of which products read a bf16 copy. Rotary and values as
  // with
  // kPerLayer, but v is normalised first and the tables are f32. Attention reads the stream without
  // a norm and has no gate, the embedding no smear; skip connections are weighed by plain scalars
  // of
  // their sources.
  kPerLayerBf16,
};

struct LayerConfig {
  bool attention = true;
  bool mlp = true;
  bool long_window = false;
  // kBanks only. Heads h and h + heads/2 of a token are two neighbouring tokens of one head.
  bool paired_heads = false;
  // kBanks only. Half of a key's features come from the token before: see kernels::GatedQkvArgs.
  bool key_offset = false;
  int value_embedding = -1;  // which value embedding is mixed into v; -1: none
  int skip_from = -1;        // the layer whose output is added before this one; -1: none

  // A layer with neither half leaves the residual stream alone and is not run at all.
  bool executed() const { return attention || mlp; }
};

struct GptConfig {
  WeightStyle style = WeightStyle::kPerLayer;
  int64_t vocab_size = 0;      // padded: the padding ids take part in the softmax
  int64_t embedding_rows = 0;  // of embedding tables; 0: vocab_size
  int64_t dim = 0;
  int64_t mlp_dim = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t gate_features = 12;  // features that the smear gate and the attention gates read
  int64_t value_embeddings = 3;
  std::vector<LayerConfig> layers;
  // Tokens of the blocks that attention windows are made of; 0: windows are of single tokens. See
  // kernels::AttentionArgs.
  int64_t window_block = 0;
  kernels::SoftCap softcap_kind = kernels::SoftCap::kSigmoid;
  float softcap = 30.0f;
  float softcap_temperature = 7.5f;
  float softcap_shift = 0.0f;
  // Most loss weights of a training step (kernels::HeadArgs::loss_weights); 0: the next token
  // alone.
  int loss_weights = 0;
  bool fp8_head = true;  // training's head in fp8; validation is always bf16
  // kBanks only. Attention has two banks instead of one, of Q and K and of V and O, and what the
  // optimizer sees of Q and K are pairs of neighbouring heads. Initial weights differ too.
  bool split_attention_banks = false;
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

// The record of 2026-01-18, Unified Optimizers, at any width; its layer table is written for 11
// layers. `layers` of the size is not read.
absl::StatusOr<GptConfig> UnifiedConfig(const GptSize& size);

// The record of 2025-04-16 of track 2 (GPT-2 Medium), at any width; its layer table is written for
// 16 layers. `embedding_rows`: as in GptConfig.
absl::StatusOr<GptConfig> Record7Config(const GptSize& size, int64_t embedding_rows);

// Of the embedding tables.
int64_t EmbeddingRows(const GptConfig& config);

// Whether some layer has paired heads, and rotary tables so twice as many positions as tokens.
bool HasPairedHeads(const GptConfig& config);

// The scales of the fp8 head. kPerLayer: an rms-normalised vector has |x| <= sqrt(dim), so x_scale
// = sqrt(dim) / 448 never saturates; gradients of a summed loss are at most 1. kBanks: 100, 1.6 and
// 0.75 over 448, the record's.
kernels::HeadPrecision TrainingHeadPrecision(const GptConfig& config);

// Where things stand in the parameter `scalars`. With n layers:
//   [0, n)      skip weights; the layer n/2 + j is gated by entry j
//   [n, 3n)     block lambdas, two a layer: weights of the residual stream and of x0
//   [3n, 5n)    attention lambdas, two a layer: weights of v and of the value embedding
//   [5n]        smear lambda
//   [5n + 1]    backout lambda, with a backout;  else (5n, 6n) is spare
// With banks:
//   [0, n)      weights of the residual stream;  x0's are the parameter x0_lambdas
//   [n, 3n)     two factors a layer: of Q, K, V and of O
//   [3n], [3n + 1], [3n + 2]   smear lambda, backout lambda, skip weight
// With kPerLayerBf16 as at the top, but [0, n) are skip weights by their source, and 5n is the end.
// A pass of a model with banks reads `scalars` and x0_lambdas as one table, one after the other:
// the indices are places in it.
int SkipScalar(const GptConfig& config, int layer);
int BlockLambda(const GptConfig& config, int layer);   // of the residual stream
int X0Lambda(const GptConfig& config, int layer);      // of x0
int WeightFactor(const GptConfig& config, int layer);  // kBanks: of Q, K, V; that of O follows
int AttentionLambda(const GptConfig& config, int layer);
int SmearLambda(const GptConfig& config);
int BackoutLambda(const GptConfig& config);
// 5n + 2 with a backout, else 6n, with banks 3n + 3, with kPerLayerBf16 5n; rounded up to a
// multiple of `multiple`. The padding holds ones.
int64_t ScalarCount(const GptConfig& config, int64_t multiple = 1);

// Elements of the hidden matrices: QKVO of each attention layer, two of each MLP.
int64_t HiddenMatrixParameters(const GptConfig& config);
// Those and the head, which take part in a dense product for each token.
int64_t DenseParametersPerToken(const GptConfig& config);
// Two a multiply-add; without gates and attention. Backward is twice the forward.
int64_t ForwardFlopsPerToken(const GptConfig& config);
int64_t TrainingFlopsPerToken(const GptConfig& config);

}  // namespace model

#endif  // MODEL_CONFIG_H_
