#include "tools/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {

using kernels::DType;

int32_t DrawToken(const float* logits, int32_t classes, double temperature, double uniform) {
  const float* best = std::max_element(logits, logits + classes);
  if (temperature == 0) return static_cast<int32_t>(best - logits);
  std::vector<double> cumulative(classes);
  double sum = 0;
  for (int32_t i = 0; i < classes; ++i) {
    sum += std::exp((double{logits[i]} - *best) / temperature);
    cumulative[i] = sum;
  }
  const auto drawn = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * sum);
  return static_cast<int32_t>(std::min<int64_t>(drawn - cumulative.begin(), classes - 1));
}

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(
    const model::GptConfig& config, const sched::Schedules& schedules, int64_t step,
    const std::vector<kernels::Parameter>& parameters, int64_t context_tokens, int32_t classes,
    kernels::Backend& backend, kernels::Queue& queue) {
  ABSL_ASSIGN_OR_RETURN(RotaryTable rotary, RotaryTable::Create(config, context_tokens, backend));
  std::unique_ptr<Sampler> sampler(new Sampler(parameters, classes, std::move(rotary), queue));
  sampler->rotary_.Set(sched::RotaryAt(schedules.rotary, schedules.window, schedules.run, step),
                       queue);
  sampler->windows_ = sched::WindowsAt(schedules.window, schedules.run, step);
  constexpr int64_t kBoundaries = 2;  // one document
  const model::PassShape shape{
      .slots = 1, .slot_tokens = context_tokens, .max_boundaries = kBoundaries, .train = false};
  sampler->gpt_ = std::make_unique<model::Gpt>(config, shape);
  kernels::ArenaPlan plan;
  sampler->gpt_->Plan(plan, queue);
  sampler->input_.Plan(config, shape, plan);
  const kernels::TensorId logits = plan.Add("logits", DType::kF32, {1, 1, config.vocab_size});
  ABSL_ASSIGN_OR_RETURN(sampler->arena_, kernels::Arena::Create(plan, backend));
  sampler->gpt_->Bind(sampler->arena_);
  sampler->input_.Bind(sampler->arena_);
  sampler->logits_ = sampler->arena_.Get(logits);
  sampler->input_.UploadBoundaries(0, {0, static_cast<int32_t>(context_tokens)}, queue);
  sampler->gpt_->PrepareWeights(parameters, queue);
  return sampler;
}

absl::StatusOr<std::vector<int32_t>> Sampler::Generate(const std::vector<int32_t>& prompt,
                                                       int32_t stop, const SampleOptions& options) {
  const int64_t room = input_.tokens().size();
  if (prompt.empty() || static_cast<int64_t>(prompt.size()) >= room) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", prompt.size(), " tokens: must have 1 to ", room - 1));
  }
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    return absl::InvalidArgumentError(
        absl::StrCat("temperature ", options.temperature, ": must be 0 or a positive number"));
  }
  for (int32_t token : prompt) {
    if (token < 0 || token >= classes_) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, " of the prompt: the model has ids 0 to ", classes_ - 1));
    }
  }
  std::mt19937_64 random(options.seed);
  std::vector<int32_t> context = prompt;
  while (static_cast<int64_t>(context.size()) < room &&
         static_cast<int64_t>(context.size() - prompt.size()) < options.max_tokens) {
    const int32_t token = Next(context, options.temperature, random);
    if (token == stop) break;
    context.push_back(token);
  }
  return std::vector<int32_t>(context.begin() + prompt.size(), context.end());
}

int32_t Sampler::Next(const std::vector<int32_t>& context, double temperature,
                      std::mt19937_64& random) {
  // What stands behind the context does not matter: attention and smear look back only.
  std::vector<int32_t> padded = context;
  padded.resize(input_.tokens().size(), 0);
  queue_.Upload(padded.data(), input_.tokens());
  gpt_->Hidden(input_.Input(windows_, rotary_), parameters_, queue_);
  gpt_->Logits(parameters_, 0, static_cast<int64_t>(context.size()) - 1, logits_, queue_);
  std::vector<float> logits(logits_.size());
  queue_.Download(logits_, logits.data());
  queue_.Synchronize();
  // 53 random bits, so that the draw does not depend on the library's distributions.
  const double uniform = static_cast<double>(random() >> 11) * 0x1.0p-53;
  return DrawToken(logits.data(), classes_, temperature, uniform);
}

}  // namespace tools
