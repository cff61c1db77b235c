// Text from a trained model, token by token.
#ifndef TOOLS_SAMPLE_SAMPLER_H_
#define TOOLS_SAMPLE_SAMPLER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/arena.h"
#include "kernels/parameter.h"
#include "kernels/queue.h"
#include "model/gpt.h"
#include "sched/schedules.h"
#include "tools/trainer/pass_input.h"
#include "tools/trainer/rotary_table.h"

namespace tools {

struct SampleOptions {
  int max_tokens = 100;
  double temperature = 0;  // 0: always the most probable token
  uint64_t seed = 0;
};

// Runs the whole context again for each token: simple, and fast enough for a few lines.
class Sampler {
 public:
  // `step` of `schedules` says which windows and rotary table the weights were trained to.
  // `context_tokens`: what prompt and answer may have together.
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(
      const model::GptConfig& config, const sched::Schedules& schedules, int64_t step,
      const std::vector<kernels::Parameter>& parameters, int64_t context_tokens, int32_t classes,
      kernels::Backend& backend, kernels::Queue& queue);

  // Continues `prompt` (at least one token) until `stop` is drawn, which is not returned, or until
  // there are max_tokens new ones or the context is full. Only ids below `classes` are drawn: the
  // padding of the vocabulary has no text. InvalidArgument: empty or too long a prompt, an id
  // that is no class, a negative temperature.
  absl::StatusOr<std::vector<int32_t>> Generate(const std::vector<int32_t>& prompt, int32_t stop,
                                                const SampleOptions& options);

 private:
  Sampler(const std::vector<kernels::Parameter>& parameters, int32_t classes, RotaryTable rotary,
          kernels::Queue& queue)
      : parameters_(parameters), classes_(classes), rotary_(std::move(rotary)), queue_(queue) {}
  int32_t Next(const std::vector<int32_t>& context, double temperature, std::mt19937_64& random);

  const std::vector<kernels::Parameter>& parameters_;
  const int32_t classes_;
  RotaryTable rotary_;
  kernels::Queue& queue_;
  sched::Windows windows_;
  std::unique_ptr<model::Gpt> gpt_;
  kernels::Arena arena_;
  PassInputTensors input_;
  kernels::Tensor logits_;
};

// Draws an index with probability proportional to exp(logit / temperature), or the first of the
// largest for temperature 0. `uniform` is in [0, 1).
int32_t DrawToken(const float* logits, int32_t classes, double temperature, double uniform);

}  // namespace tools

#endif  // TOOLS_SAMPLE_SAMPLER_H_
