#include "tools/sample/whole_context.h"

#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {

using kernels::DType;

absl::StatusOr<std::unique_ptr<WholeContext>> WholeContext::Create(const ModelState& state,
                                                                   int64_t context_tokens,
                                                                   kernels::Backend& backend,
                                                                   kernels::Queue& queue) {
  ABSL_ASSIGN_OR_RETURN(RotaryTable rotary,
                        RotaryTable::Create(state.config, context_tokens, backend));
  std::unique_ptr<WholeContext> whole(new WholeContext(state, std::move(rotary), queue));
  whole->rotary_.Set(state.rotary, queue);
  constexpr int64_t kBoundaries = 2;  // one document
  const model::PassShape shape{
      .slots = 1, .slot_tokens = context_tokens, .max_boundaries = kBoundaries, .train = false};
  whole->gpt_ = std::make_unique<model::Gpt>(state.config, shape);
  kernels::ArenaPlan plan;
  whole->gpt_->Plan(plan, queue);
  whole->input_.Plan(state.config, shape, plan);
  const kernels::TensorId logits = plan.Add("logits", DType::kF32, {1, 1, state.config.vocab_size});
  const kernels::TensorId losses = plan.Add("losses", DType::kF32, {1, context_tokens});
  ABSL_ASSIGN_OR_RETURN(whole->arena_, kernels::Arena::Create(plan, backend));
  whole->gpt_->Bind(whole->arena_);
  whole->input_.Bind(whole->arena_);
  whole->logits_ = whole->arena_.Get(logits);
  whole->losses_ = whole->arena_.Get(losses);
  whole->input_.UploadBoundaries(0, {0, static_cast<int32_t>(context_tokens)}, queue);
  whole->gpt_->PrepareWeights(*state.parameters, queue);
  return whole;
}

// What stands behind the sequence does not matter: attention and smear look back only.
void WholeContext::Upload(const std::vector<int32_t>& tokens, int64_t begin, int64_t end,
                          kernels::Tensor to) {
  std::vector<int32_t> padded(tokens.begin() + begin, tokens.begin() + end);
  padded.resize(to.size(), 0);
  queue_.Upload(padded.data(), to);
}

std::vector<float> WholeContext::Logits(const std::vector<int32_t>& tokens) {
  const auto size = static_cast<int64_t>(tokens.size());
  CHECK(size >= 1 && size <= context_tokens()) << size << " tokens";
  Upload(tokens, 0, size, input_.tokens());
  gpt_->Hidden(input_.Input(state_.windows, rotary_), *state_.parameters, queue_);
  gpt_->Logits(*state_.parameters, 0, size - 1, logits_, queue_);
  std::vector<float> logits(logits_.size());
  queue_.Download(logits_, logits.data());
  queue_.Synchronize();
  return logits;
}

std::vector<float> WholeContext::Losses(const std::vector<int32_t>& tokens, int64_t from) {
  const auto size = static_cast<int64_t>(tokens.size());
  CHECK(from >= 1 && from < size && size <= context_tokens() + 1)
      << size << " tokens from " << from;
  const model::PassInput input = input_.Input(state_.windows, rotary_);
  Upload(tokens, 0, size - 1, input.tokens);
  Upload(tokens, 1, size, input.targets);
  gpt_->Loss(input, *state_.parameters, losses_, queue_);
  std::vector<float> losses(losses_.size());
  queue_.Download(losses_, losses.data());
  queue_.Synchronize();
  return std::vector<float>(losses.begin() + (from - 1), losses.begin() + (size - 1));
}

}  // namespace tools
