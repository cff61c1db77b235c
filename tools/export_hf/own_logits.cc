#include "tools/export_hf/own_logits.h"

#include "absl/strings/str_cat.h"
#include "kernels/arena.h"
#include "model/gpt.h"
#include "sched/schedules.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/pass_input.h"
#include "tools/trainer/rotary_table.h"

namespace tools {
namespace {

absl::Status CheckTokens(const model::GptConfig& config, const std::vector<int32_t>& tokens) {
  if (tokens.empty()) return absl::InvalidArgumentError("no tokens; give at least one");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < model::EmbeddingRows(config)) continue;
    return absl::InvalidArgumentError(absl::StrCat("token ", i, " is ", tokens[i],
                                                   ": the model has ids 0 to ",
                                                   model::EmbeddingRows(config) - 1));
  }
  return absl::OkStatus();
}

// 0, each BOS but one at 0, and the end.
std::vector<int32_t> Boundaries(const std::vector<int32_t>& tokens, int32_t bos) {
  std::vector<int32_t> boundaries = {0};
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i] == bos) boundaries.push_back(static_cast<int32_t>(i));
  }
  boundaries.push_back(static_cast<int32_t>(tokens.size()));
  return boundaries;
}

}  // namespace

absl::StatusOr<HostTensor> OwnLogits(const SavedModel& saved, const std::vector<int32_t>& tokens,
                                     kernels::Backend& backend, kernels::Queue& queue) {
  const model::GptConfig& config = saved.recipe.model;
  const sched::Schedules& schedules = saved.recipe.schedules;
  ABSL_RETURN_IF_ERROR(CheckTokens(config, tokens));
  const std::vector<int32_t> boundaries = Boundaries(tokens, saved.token_map.bos());
  const auto count = static_cast<int64_t>(tokens.size());
  const model::PassShape shape{.slots = 1,
                               .slot_tokens = count,
                               .max_boundaries = static_cast<int64_t>(boundaries.size()),
                               .train = false};
  model::Gpt gpt(config, shape);
  PassInputTensors input;
  kernels::ArenaPlan plan;
  gpt.Plan(plan, queue);
  input.Plan(config, shape, plan);
  const kernels::TensorId id = plan.Add("logits", kernels::DType::kF32, {1, 1, config.vocab_size});
  ABSL_ASSIGN_OR_RETURN(const kernels::Arena arena, kernels::Arena::Create(plan, backend));
  ABSL_ASSIGN_OR_RETURN(RotaryTable rotary, RotaryTable::Create(config, count, backend));
  gpt.Bind(arena);
  input.Bind(arena);
  rotary.Set(sched::RotaryAt(schedules.rotary, schedules.window, schedules.run, saved.step), queue);
  input.UploadBoundaries(0, boundaries, queue);
  queue.Upload(tokens.data(), input.tokens());
  const std::vector<kernels::Parameter>& parameters = saved.weights->parameters();
  gpt.PrepareWeights(parameters, queue);
  const sched::Windows windows = sched::WindowsAt(schedules.window, schedules.run, saved.step);
  gpt.Hidden(input.Input(windows, rotary), parameters, queue);
  HostTensor logits{
      .dtype = kernels::DType::kF32, .shape = {count, config.vocab_size}, .bytes = ""};
  const kernels::Tensor row = arena.Get(id);
  logits.bytes.resize(count * row.bytes());
  for (int64_t i = 0; i < count; ++i) {
    gpt.Logits(parameters, 0, i, row, queue);
    queue.Download(row, logits.bytes.data() + i * row.bytes());
    queue.Synchronize();  // the next logits are written to the same place
  }
  return logits;
}

}  // namespace tools
