// With a cache of keys and values: of a sequence only those tokens go through the model that the
// one before did not begin with. On the CPU (kernels::CachedAttention).
#ifndef TOOLS_SAMPLE_DECODER_H_
#define TOOLS_SAMPLE_DECODER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/arena.h"
#include "kernels/queue.h"
#include "model/gpt.h"
#include "model/kv_cache.h"
#include "tools/sample/text_model.h"
#include "tools/trainer/pass_input.h"
#include "tools/trainer/rotary_table.h"

namespace tools {

// Logits and losses are those of WholeContext but for the order of sums in f32, which now and then
// moves a rounding to bf16.
class Decoder : public TextModel {
 public:
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(const ModelState& state,
                                                         int64_t context_tokens,
                                                         kernels::Backend& backend,
                                                         kernels::Queue& queue);

  int64_t context_tokens() const override { return context_tokens_; }
  std::vector<float> Logits(const std::vector<int32_t>& tokens) override;
  std::vector<float> Losses(const std::vector<int32_t>& tokens, int64_t from) override;

  // Tokens that have gone through the model since the start, those counted again that were only
  // looked back at.
  int64_t rows_run() const { return rows_run_; }

 private:
  // A pass has a fixed number of rows. There is one of each power of two, and what a chunk of
  // tokens does not fill of the smallest that holds it is computed for nothing.
  struct Pass {
    int64_t rows;
    std::unique_ptr<model::Gpt> gpt;
    PassInputTensors input;
    kernels::TensorId losses_id, logits_id;
    kernels::Arena arena;
    kernels::Tensor losses, logits;
  };

  Decoder(const ModelState& state, int64_t context_tokens, RotaryTable rotary,
          kernels::Queue& queue);
  absl::Status Allocate(kernels::Backend& backend);

  // Leaves in the cache what `tokens` begins with, but no more than `most` of it.
  void KeepCommon(const std::vector<int32_t>& tokens, int64_t most);
  // Runs the tokens from known_.size() to `end`, and returns the pass that ran the last of them,
  // which is its row `*last_row`. With losses: appends those of each token's successor.
  Pass& Run(const std::vector<int32_t>& tokens, int64_t end, std::vector<float>* losses,
            int64_t* last_row);
  Pass& PassOf(int64_t rows);
  void RunChunk(const std::vector<int32_t>& tokens, int64_t begin, int64_t kept_from, int64_t end,
                bool losses, Pass& pass);

  const ModelState state_;
  const int64_t context_tokens_;
  const int64_t looked_back_;
  RotaryTable rotary_;
  kernels::Queue& queue_;
  std::vector<Pass> passes_;  // by rising rows; the first one prepares the weights
  model::KvCache cache_;
  kernels::Arena cache_arena_;
  std::vector<int32_t> known_;  // the tokens whose keys and values are in the cache
  int64_t rows_run_ = 0;
};

}  // namespace tools

#endif  // TOOLS_SAMPLE_DECODER_H_
