#include "tools/trainer/evaluator.h"

#include <algorithm>
#include <utility>

#include "kernels/ops/elementwise.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {

using kernels::DType;
using kernels::Tensor;

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Plan(const TrainConfig& config,
                                                           comm::Communicator& comm,
                                                           kernels::Backend& backend,
                                                           const kernels::Queue& queue,
                                                           kernels::ArenaPlan* plan) {
  const DataRule& rule = config.recipe.data;
  const int64_t tokens = rule.val_slot_tokens;
  const int slots = static_cast<int>(rule.val_tokens / tokens);
  ABSL_ASSIGN_OR_RETURN(RotaryTable rotary,
                        RotaryTable::Create(config.recipe.model, tokens, backend));
  std::unique_ptr<Evaluator> evaluator(new Evaluator(comm, std::move(rotary), slots));
  const model::PassShape shape{.slots = 1,
                               .slot_tokens = tokens,
                               .max_boundaries = config.val_max_documents(),
                               .train = false};
  evaluator->gpt_ = std::make_unique<model::Gpt>(config.recipe.model, shape);
  evaluator->gpt_->Plan(*plan, queue);
  evaluator->input_.Plan(config.recipe.model, shape, *plan);
  const int64_t most = comm::SlotsOfRank(slots, comm.size(), 0).count();
  evaluator->losses_id_ = plan->Add("val losses", DType::kF32, {1, tokens});
  evaluator->sums_id_ = plan->Add("val sums", DType::kF32, {most});
  evaluator->all_id_ = plan->Add("all val sums", DType::kF32, {most * comm.size()});
  return evaluator;
}

void Evaluator::Bind(kernels::Arena arena) {
  arena_ = std::move(arena);
  gpt_->Bind(arena_);
  input_.Bind(arena_);
  losses_ = arena_.Get(losses_id_);
  sums_ = arena_.Get(sums_id_);
  all_sums_ = arena_.Get(all_id_);
}

absl::Status Evaluator::Open(const TrainConfig& config) {
  ABSL_ASSIGN_OR_RETURN(stream_, data::ValidationStream::Create(
                                     config.val_files, slots_, config.recipe.data.val_slot_tokens,
                                     config.val_max_documents(), config.token_map));
  return absl::OkStatus();
}

absl::StatusOr<double> Evaluator::Run(const sched::Windows& windows,
                                      const std::vector<kernels::Parameter>& parameters,
                                      kernels::Queue& queue) {
  const comm::SlotRange run = comm::SlotsOfRank(slots_, comm_.size(), comm_.rank());
  gpt_->PrepareWeights(parameters, queue);
  for (int slot = run.begin; slot < run.end; ++slot) {
    RunSlot(slot, sums_.Slice(slot - run.begin, 1), windows, parameters, queue);
  }
  ABSL_RETURN_IF_ERROR(comm_.AllGather("validation", sums_, all_sums_, queue).Wait(queue));
  std::vector<float> sums(all_sums_.size());
  queue.Download(all_sums_, sums.data());
  queue.Synchronize();
  double total = 0;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const int count = comm::SlotsOfRank(slots_, comm_.size(), rank).count();
    for (int i = 0; i < count; ++i) total += sums[rank * sums_.size() + i];
  }
  return total / static_cast<double>(slots_ * losses_.size());
}

void Evaluator::RunSlot(int slot, Tensor sum, const sched::Windows& windows,
                        const std::vector<kernels::Parameter>& parameters, kernels::Queue& queue) {
  input_.Upload(0, stream_->Slot(slot), queue);
  gpt_->Loss(input_.Input(windows, rotary_), parameters, losses_, queue);
  kernels::RowSums(losses_, sum, queue);
}

}  // namespace tools
