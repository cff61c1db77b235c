// What a GPT of the speedrun is made of, as data: sizes, layers, how weights are stored, and which
// of several forms each part has. Records choose from these independently: see tools/recipes.
#ifndef MODEL_CONFIG_H_
#define MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/dtype.h"
#include "kernels/ops/head.h"

namespace model {

// Which parameters there are and in which order; their names and shapes: ParameterSpecs.
enum class Storage : uint8_t {
  kPerLayer,  // one for each part of each layer
  // One bank for the attention of all layers, one for their MLPs, one for each kind of gate, all in
  // bf16. x0's weights are a parameter of their own. `scalars` has the weight of one skip
  // connection.
  kBanks,
};

// The shape that a layer's Q, K, V and O have as a parameter of kPerLayer. In memory both are four
// row-major [out, in] matrices one after the other, but optimizers see the shape.
enum class QkvoShape : uint8_t {
  kWide,   // [D, 4 D]
  kStack,  // [4, D, D]
};

// How an MLP's two matrices are stored.
enum class MlpLayout : uint8_t {
  kDimHidden,  // both [D, hidden]: the first is [in, out], the second [out, in]
  kOutIn,      // each [out, in]: [hidden, D] and [D, hidden]
  kHiddenDim,  // both [hidden, D]: the first is [out, in], the second [in, out]
};

enum class HeadLayout : uint8_t {
  kVocabDim,  // [V, D]
  kDimVocab,  // [D, V]
};

// Which features of a head rotary turns together.
enum class RotaryPairs : uint8_t {
  kHalves,      // i and i + d/2: kernels::QkvSplitNormRotary
  kNeighbours,  // 2 i and 2 i + 1: kernels::GatedQkv
};

// How a layer's value embedding comes into v.
enum class ValueMix : uint8_t {
  kScalars,  // two learnt scalars a layer weigh v and the embedding
  kGate,     // the embedding is added, weighed by a gate per token and head
};

// What weighs the output that a skip connection adds to the stream.
enum class SkipWeight : uint8_t {
  kSigmoid,  // the sigmoid of a learnt scalar
  kPlain,    // a learnt scalar
  kGate,     // the sigmoid of a learnt scalar times a gate per token, which reads x0
};

// What a layer's attention reads. Its MLP reads the norm of the stream in any case.
enum class AttentionInput : uint8_t {
  kNormed,  // the norm of the stream
  kStream,  // the stream itself
};

// What records call differently: with kPerLayer an MLP's matrices, blocks.{i}.mlp.NAME; the head.
struct ParameterNames {
  std::string mlp_first = "c_fc", mlp_second = "c_proj";
  std::string mlp_first_label = "mlp", mlp_second_label = "mlp";
  std::string head = "lm_head.weight";
};

// A value for each kind of scalar in the parameters `scalars` and x0_lambdas.
struct ScalarValues {
  float skip = 0;                        // of a skip connection, before the sigmoid if it has one
  float stream = 1, x0 = 0;              // weights of the residual stream and of x0 at each layer
  float value = 1, value_embedding = 0;  // with ValueMix::kScalars: weights of v and of its table
  float qkv_factor = 1, o_factor = 1;    // with attention_factors
  float smear = 0, backout = 0;
};

// What a training begins with. Numbers are standard deviations; weights with 0, and those that are
// not named here, begin as zeros.
struct InitialWeights {
  double qkv = 0;               // of Q, K, V: uniform, in units of dim^(-1/2)
  double o = 0;                 // of O: likewise; 0 or, with split_attention_banks, that of Q, K, V
  double mlp = 0;               // of the MLPs' first matrices: likewise
  double head = 0;              // normal
  bool head_in_bf16 = false;    // drawn in bf16, see BF16Normal; needs a bf16 head and head > 0
  double value_embeddings = 0;  // normal
  double embedding = 0;         // normal; not with embedding_is_head
  bool embedding_is_head = false;  // the embedding begins as the transpose of a [D, V] head
  ScalarValues scalars;
};

// Scales of the fp8 products of training's head: see kernels::HeadPrecision.
struct Fp8HeadScales {
  // 0: sqrt(dim) / 448. 448 is e4m3's largest number, and no element of an rms-normalised vector is
  // larger than sqrt(dim), so that one never saturates.
  double x = 0;
  double w = 0, grad = 0;
};

struct LayerConfig {
  bool attention = true;
  bool mlp = true;
  bool long_window = false;
  // With RotaryPairs::kNeighbours. Heads h and h + heads/2 of a token are two neighbouring tokens
  // of one head.
  bool paired_heads = false;
  // With RotaryPairs::kNeighbours. Half of a key's features come from the token before: see
  // kernels::GatedQkvArgs.
  bool key_offset = false;
  int value_embedding = -1;  // which value embedding is mixed into v; -1: none
  int skip_from = -1;        // the layer whose output is added before this one; -1: none

  // A layer with neither half leaves the residual stream alone and is not run at all.
  bool executed() const { return attention || mlp; }
};

struct GptConfig {
  // Sizes.
  int64_t vocab_size = 0;      // padded: the padding ids take part in the softmax
  int64_t embedding_rows = 0;  // of embedding tables; 0: vocab_size
  int64_t dim = 0;
  int64_t mlp_dim = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t gate_features = 0;  // features that gates read
  int64_t value_embeddings = 0;
  std::vector<LayerConfig> layers;
  // The layer whose output, weighed by a scalar, is taken out of the stream again before the final
  // norm; -1: none.
  int backout_layer = -1;

  // How weights are stored.
  Storage storage = Storage::kPerLayer;
  ParameterNames names;
  kernels::DType matrix_dtype = kernels::DType::kF32;  // of Q, K, V, O and MLPs: f32 or bf16
  QkvoShape qkvo_shape = QkvoShape::kWide;
  MlpLayout mlp_layout = MlpLayout::kDimHidden;
  HeadLayout head_layout = HeadLayout::kVocabDim;
  kernels::DType head_dtype = kernels::DType::kBF16;  // or f32, of which products read a bf16 copy
  // kBanks only. Attention has two banks instead of one, of Q and K and of V and O, and what the
  // optimizer sees of Q and K are pairs of neighbouring heads.
  bool split_attention_banks = false;
  int64_t spare_scalars = 0;  // kPerLayer only: scalars behind the others that nothing reads
  InitialWeights initial;

  // What the parts compute.
  bool smear = false;  // a gate mixes the token before into the embedding
  AttentionInput attention_input = AttentionInput::kNormed;
  bool attention_gate = false;     // a gate per token and head behind attention
  bool attention_factors = false;  // kBanks only: two learnt scalars a layer multiply QKV and O
  RotaryPairs rotary_pairs = RotaryPairs::kHalves;
  kernels::DType rotary_dtype = kernels::DType::kBF16;  // of the tables; or f32
  bool value_norm = false;                              // v is normalised, as q and k are
  ValueMix value_mix = ValueMix::kScalars;
  SkipWeight skip_weight = SkipWeight::kSigmoid;
  // Tokens of the blocks that attention windows are made of; 0: windows are of single tokens. See
  // kernels::AttentionArgs.
  int64_t window_block = 0;

  // Head and loss.
  kernels::SoftCap softcap_kind = kernels::SoftCap::kSigmoid;
  float softcap = 0;  // positive
  float softcap_temperature = 1.0f;
  float softcap_shift = 0.0f;
  // Most loss weights of a training step (kernels::HeadArgs::loss_weights); 0: the next token
  // alone.
  int loss_weights = 0;
  bool fp8_head = false;  // training's head in fp8; validation is always bf16
  Fp8HeadScales fp8_scales;
};

// InvalidArgument, naming field and layer, if sizes do not fit together, or for a combination of
// parts that no code can run.
absl::Status Validate(const GptConfig& config);

// Of the embedding tables.
int64_t EmbeddingRows(const GptConfig& config);

// Whether some layer has paired heads, and rotary tables so twice as many positions as tokens.
bool HasPairedHeads(const GptConfig& config);

// Whether training's head is in fp8, and config.fp8_scales in f32.
kernels::HeadPrecision TrainingHeadPrecision(const GptConfig& config);

// Where things stand in the parameter `scalars`. With n layers and kPerLayer, one after the other:
//   n       skip weights. That of layer n/2 + j is entry j; with SkipWeight::kPlain that of the
//           connection from layer i is entry i
//   2n      block lambdas, two a layer: weights of the residual stream and of x0
//   2n      attention lambdas, two a layer: weights of v and of the value embedding; absent with
//           ValueMix::kGate
//   1       smear lambda, with a smear
//   1       backout lambda, with a backout
//   spare_scalars
// With kBanks:
//   n       weights of the residual stream;  x0's are the parameter x0_lambdas
//   2n      attention factors, two a layer: of Q, K, V and of O; absent without
//   3       smear lambda, backout lambda, skip weight
//   2n      attention lambdas as above
// A pass of a model with banks reads `scalars` and x0_lambdas as one table, one after the other:
// the indices are places in it. -1 for what is absent.
int SkipScalar(const GptConfig& config, int layer);
int BlockLambda(const GptConfig& config, int layer);   // of the residual stream
int X0Lambda(const GptConfig& config, int layer);      // of x0
int WeightFactor(const GptConfig& config, int layer);  // of Q, K, V; that of O follows
int AttentionLambda(const GptConfig& config, int layer);
int SmearLambda(const GptConfig& config);
int BackoutLambda(const GptConfig& config);
// Rounded up to a multiple of `multiple`. The padding holds ones.
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
