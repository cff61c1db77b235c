#include "tools/trainer/evaluator.h"

#include <algorithm>
#include <utility>

#include "kernels/ops/elementwise.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {

using kernels::DType;
using kernels::Tensor;

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(const TrainConfig& config,
                                                             comm::Communicator& comm,
                                                             kernels::Backend& backend,
                                                             const kernels::Queue& queue) {
  const DataRule& rule = config.recipe.data;
  const int64_t tokens = rule.val_slot_tokens;
  const int slots = static_cast<int>(rule.val_tokens / tokens);
  const int64_t boundaries = config.val_max_documents();
  ABSL_ASSIGN_OR_RETURN(data::ValidationStream stream,
                        data::ValidationStream::Create(config.val_files, slots, tokens, boundaries,
                                                       config.token_map));
  ABSL_ASSIGN_OR_RETURN(RotaryTable rotary,
                        RotaryTable::Create(config.recipe.model, tokens, backend));
  std::unique_ptr<Evaluator> evaluator(
      new Evaluator(comm, std::move(stream), std::move(rotary), slots));
  const model::PassShape shape{
      .slots = 1, .slot_tokens = tokens, .max_boundaries = boundaries, .train = false};
  evaluator->gpt_ = std::make_unique<model::Gpt>(config.recipe.model, shape);
  kernels::ArenaPlan plan;
  evaluator->gpt_->Plan(plan, queue);
  evaluator->input_.Plan(config.recipe.model, shape, plan);
  const int64_t most = comm::SlotsOfRank(slots, comm.size(), 0).count();
  const kernels::TensorId losses_id = plan.Add("val losses", DType::kF32, {1, tokens});
  const kernels::TensorId sums_id = plan.Add("val sums", DType::kF32, {most});
  const kernels::TensorId all_id = plan.Add("all val sums", DType::kF32, {most * comm.size()});
  ABSL_ASSIGN_OR_RETURN(evaluator->arena_, kernels::Arena::Create(plan, backend));
  const kernels::Arena& arena = evaluator->arena_;
  evaluator->gpt_->Bind(arena);
  evaluator->input_.Bind(arena);
  evaluator->losses_ = arena.Get(losses_id);
  evaluator->sums_ = arena.Get(sums_id);
  evaluator->all_sums_ = arena.Get(all_id);
  return evaluator;
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
  input_.Upload(0, stream_.Slot(slot), queue);
  gpt_->Loss(input_.Input(windows, rotary_), parameters, losses_, queue);
  kernels::RowSums(losses_, sum, queue);
}

}  // namespace tools
