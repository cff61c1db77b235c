#include "optim/sharded_optimizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ops/elementwise.h"
#include "optim/orthogonalizer.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace optim {

using kernels::DType;
using kernels::Parameter;
using kernels::Queue;
using kernels::Tensor;

namespace {

std::vector<kernels::ParameterSpec> Specs(const std::vector<Parameter>& parameters) {
  std::vector<kernels::ParameterSpec> specs;
  for (const Parameter& parameter : parameters) specs.push_back(parameter.spec);
  return specs;
}

// Elements of the largest padded buffer.
int64_t LargestBuffer(const StepLayout& layout, int ranks) {
  int64_t largest = 1;
  for (const std::vector<BufferLayout>* part : {&layout.adam, &layout.muon}) {
    for (const BufferLayout& buffer : *part) largest = std::max(largest, buffer.Padded(ranks));
  }
  return largest;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(const OptimizerConfig& config,
                                   const std::vector<Parameter>& parameters, StepLayout layout,
                                   comm::Communicator& comm, const SlotPlan& slots)
    : config_(config),
      parameters_(parameters),
      layout_(std::move(layout)),
      comm_(comm),
      slots_(slots) {}

absl::StatusOr<std::unique_ptr<ShardedOptimizer>> ShardedOptimizer::Create(
    const OptimizerConfig& config, const std::vector<Parameter>& parameters,
    comm::Communicator& comm, int slots, comm::SlotRange run, bool deterministic,
    kernels::Backend& backend) {
  if (comm.size() > slots) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer: ", comm.size(), " ranks, but only ",
                                                   slots, " slots; use fewer ranks or more slots"));
  }
  CHECK(run == comm::SlotsOfRank(slots, comm.size(), comm.rank()))
      << "rank " << comm.rank() << " runs slots " << run.begin << " to " << run.end;
  ABSL_ASSIGN_OR_RETURN(StepLayout layout, PlanStep(config, Specs(parameters)));
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<Orthogonalizer> orthogonalizer,
                        MakeOrthogonalizer(config.orthogonalizer));

  const SlotPlan slot_plan{
      .slots = slots, .local_slots = run.count(), .deterministic = deterministic};
  std::unique_ptr<ShardedOptimizer> self(
      new ShardedOptimizer(config, parameters, std::move(layout), comm, slot_plan));
  self->pending_ =
      std::make_unique<PendingGradients>(self->config_, self->layout_, parameters, slot_plan, comm);
  kernels::ArenaPlan plan;
  self->adam_ =
      std::make_unique<AdamPart>(config, self->layout_, parameters, slot_plan, comm, &plan);
  self->muon_ = std::make_unique<MuonPart>(config, self->layout_, parameters, slot_plan,
                                           std::move(orthogonalizer), comm, &plan);
  const kernels::TensorId stage =
      plan.Add("state stage", DType::kF32, {LargestBuffer(self->layout_, comm.size())});
  const int64_t leaves = static_cast<int64_t>(parameters.size()) * slot_plan.leaves();
  const kernels::TensorId found = plan.Add("first non-finite", DType::kI64, {leaves});
  const kernels::TensorId agreed = plan.Add("agreed non-finite", DType::kI64, {comm.size(), 3});
  const kernels::TensorId scratch =
      plan.Add("slot tree", DType::kF32,
               {deterministic ? comm::DeterministicScratchElements(slots, comm.size()) : 1});
  ABSL_ASSIGN_OR_RETURN(self->arena_, kernels::Arena::Create(std::move(plan), backend));
  self->state_stage_ = self->arena_.Get(stage);
  self->found_ = self->arena_.Get(found);
  self->agreed_ = self->arena_.Get(agreed);
  self->adam_->Bind(self->arena_, self->arena_.Get(scratch));
  self->muon_->Bind(self->arena_, self->arena_.Get(scratch));
  return self;
}

absl::Status ShardedOptimizer::Step(const StepRates& rates, Tensor guard, Queue& queue) {
  const int64_t first = rates.step - updates_;
  CHECK_GE(first, 0) << "step " << rates.step << " after " << updates_ << " steps";
  adam_->SetRates(rates.lr_multiplier, rates.step, first, queue);
  muon_->SetRates(rates.lr_multiplier, rates.momentum, queue);
  const std::vector<bool> due = adam_->Due(rates.step);
  const auto ran = recordings_.find(due);
  if (recording_enabled_ && ran != recordings_.end() && comm_.size() == 1) {
    std::unique_ptr<kernels::Recording>& recording = ran->second;
    if (recording == nullptr) {
      recording = queue.Record([this, &due, guard, &queue] {
        const absl::Status status = Update(due, guard, queue);
        CHECK(status.ok()) << status;  // the only rank waits for nobody
      });
    }
    CHECK(guard.data() == recorded_guard_) << "the recorded update has another guard";
    recording->Replay();
  } else {
    const absl::Status status = Update(due, guard, queue);
    if (!status.ok()) {
      adam_->Drain(queue);
      muon_->Drain(queue);
      return status;
    }
    recordings_.try_emplace(due);
    recorded_guard_ = guard.data();
  }
  pending_->AfterStep(rates.step);
  ++updates_;
  return absl::OkStatus();
}

absl::Status ShardedOptimizer::Update(const std::vector<bool>& adam_due, Tensor guard,
                                      Queue& queue) {
  ABSL_RETURN_IF_ERROR(adam_->Step(adam_due, guard, queue));
  return muon_->Step(guard, queue);
}

void ShardedOptimizer::ForgetUpdates(int64_t steps) {
  updates_ -= steps;
  pending_->Forget();
}

void ShardedOptimizer::Reset(Queue& queue) {
  adam_->Reset(queue);
  muon_->Reset(queue);
  pending_->Forget();
  updates_ = 0;
}

void ShardedOptimizer::LaunchFiniteCheck(Queue& queue) {
  const int leaves = slots_.leaves();
  int64_t place = 0;
  for (const Parameter& parameter : parameters_) {
    const Tensor grad = parameter.grad.Reshape({leaves, -1});
    for (int leaf = 0; leaf < leaves; ++leaf, ++place) {
      kernels::FirstNonFinite(grad.At(leaf), found_.Slice(place, 1), queue);
    }
  }
}

std::optional<NonFinite> ShardedOptimizer::DecodeFound(const int64_t* found) const {
  const int leaves = slots_.leaves();
  const int64_t* const end = found + found_.size();
  const int64_t* const first = std::find_if(found, end, [](int64_t at) { return at >= 0; });
  if (first == end) return std::nullopt;
  const int64_t at = first - found;
  return NonFinite{.name = parameters_[at / leaves].spec.name,
                   .parameter = static_cast<int>(at / leaves),
                   .leaf = static_cast<int>(at % leaves),
                   .index = *first};
}

std::optional<NonFinite> ShardedOptimizer::FirstNonFiniteGradient(Queue& queue) {
  LaunchFiniteCheck(queue);
  std::vector<int64_t> found(found_.size());
  queue.Download(found_, found.data());
  queue.Synchronize();
  return DecodeFound(found.data());
}

absl::Status ShardedOptimizer::AgreeOnNonFinite(const std::optional<NonFinite>& local,
                                                Queue& queue) {
  const Tensor mine = agreed_.Slice(comm_.rank(), 1);
  int64_t row[3] = {-1, 0, 0};
  if (local.has_value()) {
    row[0] = local->parameter;
    row[1] = local->leaf;
    row[2] = local->index;
  }
  queue.Upload(row, mine);
  ABSL_RETURN_IF_ERROR(comm_.AllGather("finite gradients", mine, agreed_, queue).Wait(queue));
  std::vector<int64_t> rows(agreed_.size());
  queue.Download(agreed_, rows.data());
  queue.Synchronize();
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const int64_t* found = &rows[3 * rank];
    if (found[0] < 0) continue;
    const comm::SlotRange run = comm::SlotsOfRank(slots_.slots, comm_.size(), rank);
    const std::string slot = slots_.deterministic
                                 ? absl::StrCat("slot ", run.begin + found[1])
                                 : absl::StrCat("slots ", run.begin, " to ", run.end - 1);
    return absl::FailedPreconditionError(
        absl::StrCat("gradient of ", parameters_[found[0]].spec.name, " is not finite at element ",
                     found[2], " (rank ", rank, ", ", slot, "); no weight was changed"));
  }
  return absl::OkStatus();
}

std::set<std::string> ShardedOptimizer::StateNames(int64_t updates) const {
  std::set<std::string> names = pending_->StateNames(updates);
  for (const BufferLayout& buffer : layout_.adam) {
    names.insert(absl::StrCat("adam.m/", buffer.label));
    names.insert(absl::StrCat("adam.v/", buffer.label));
  }
  for (const BufferLayout& buffer : layout_.muon) {
    for (int index : buffer.members) {
      const std::string& name = parameters_[index].spec.name;
      names.insert(absl::StrCat("muon.momentum/", name));
      if (config_.table[layout_.row_of_spec[index]].rule == Rule::kNorMuon) {
        names.insert(absl::StrCat("normuon.second_moment/", name));
      }
    }
  }
  return names;
}

absl::StatusOr<OptimizerState> ShardedOptimizer::GatherState(Queue& queue) {
  OptimizerState state;
  state.updates = updates_;
  ABSL_RETURN_IF_ERROR(adam_->GatherState(state_stage_, queue, &state.tensors));
  ABSL_RETURN_IF_ERROR(muon_->GatherState(state_stage_, queue, &state.tensors));
  ABSL_RETURN_IF_ERROR(pending_->GatherState(state_stage_, queue, &state.tensors));
  return state;
}

absl::Status ShardedOptimizer::LoadState(const OptimizerState& state, Queue& queue) {
  if (state.updates < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("optimizer state: ", state.updates, " updates, which is negative"));
  }
  const std::set<std::string> names = StateNames(state.updates);
  for (const StateTensor& tensor : state.tensors) {
    if (names.count(tensor.name) > 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("optimizer state ", tensor.name,
                     ": the checkpoint has it, this run does not; was it written by another "
                     "recipe?"));
  }
  ABSL_RETURN_IF_ERROR(adam_->CheckState(state));
  ABSL_RETURN_IF_ERROR(muon_->CheckState(state));
  ABSL_RETURN_IF_ERROR(pending_->CheckState(state));
  adam_->LoadState(state, queue);
  muon_->LoadState(state, queue);
  pending_->LoadState(state, queue);
  updates_ = state.updates;
  return absl::OkStatus();
}

std::string ShardedOptimizer::PlanText() const {
  return absl::StrCat(DescribeStep(layout_, config_, Specs(parameters_), comm_.size()),
                      "Optimizer memory on rank ", comm_.rank(), ": ", bytes(), " B\n");
}

}  // namespace optim
