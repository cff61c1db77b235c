// The plain way: all tokens of a sequence go through the model each time. Works on any backend.
#ifndef TOOLS_SAMPLE_WHOLE_CONTEXT_H_
#define TOOLS_SAMPLE_WHOLE_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/arena.h"
#include "kernels/queue.h"
#include "model/gpt.h"
#include "tools/sample/text_model.h"
#include "tools/trainer/pass_input.h"
#include "tools/trainer/rotary_table.h"

namespace tools {

class WholeContext : public TextModel {
 public:
  // ResourceExhausted if the device has not the memory for a pass of `context_tokens`.
  static absl::StatusOr<std::unique_ptr<WholeContext>> Create(const ModelState& state,
                                                              int64_t context_tokens,
                                                              kernels::Backend& backend,
                                                              kernels::Queue& queue);

  int64_t context_tokens() const override { return input_.tokens().size(); }
  std::vector<float> Logits(const std::vector<int32_t>& tokens) override;
  std::vector<float> Losses(const std::vector<int32_t>& tokens, int64_t from) override;

 private:
  WholeContext(const ModelState& state, RotaryTable rotary, kernels::Queue& queue)
      : state_(state), rotary_(std::move(rotary)), queue_(queue) {}
  // Uploads the tokens [begin, end) to the start of a row of zeros.
  void Upload(const std::vector<int32_t>& tokens, int64_t begin, int64_t end, kernels::Tensor to);

  const ModelState state_;
  RotaryTable rotary_;
  kernels::Queue& queue_;
  std::unique_ptr<model::Gpt> gpt_;
  kernels::Arena arena_;
  PassInputTensors input_;
  kernels::Tensor logits_, losses_;
};

}  // namespace tools

#endif  // TOOLS_SAMPLE_WHOLE_CONTEXT_H_
