#include "optim/sharded_optimizer.h"

#include <algorithm>
#include <initializer_list>
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

ShardedOptimizer::~ShardedOptimizer() {
  if (gathers_in_flight()) Drain(*queue_);
}

absl::StatusOr<std::unique_ptr<ShardedOptimizer>> ShardedOptimizer::Create(
    const OptimizerConfig& config, const std::vector<Parameter>& parameters,
    comm::Communicator& comm, int slots, comm::SlotRange run, bool deterministic,
    kernels::Backend& backend, RowReads* reads) {
  if (comm.size() > slots) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer: ", comm.size(), " ranks, but only ",
                                                   slots, " slots; use fewer ranks or more slots"));
  }
  CHECK(run == comm::SlotsOfRank(slots, comm.size(), comm.rank()))
      << "rank " << comm.rank() << " runs slots " << run.begin << " to " << run.end;
  const OptimizerConfig as_run =
      reads == nullptr ? WithoutSparseRows(config) : RowsAsRun(config, comm.size(), deterministic);
  ABSL_ASSIGN_OR_RETURN(StepLayout layout, PlanStep(as_run, Specs(parameters)));
  std::unique_ptr<Orthogonalizer> orthogonalizer;
  if (!layout.muon.empty()) {
    ABSL_ASSIGN_OR_RETURN(orthogonalizer, MakeOrthogonalizer(config.orthogonalizer));
  }

  const SlotPlan slot_plan{
      .slots = slots, .local_slots = run.count(), .deterministic = deterministic};
  std::unique_ptr<ShardedOptimizer> self(
      new ShardedOptimizer(as_run, parameters, std::move(layout), comm, slot_plan));
  self->pending_ =
      std::make_unique<PendingGradients>(self->config_, self->layout_, parameters, slot_plan, comm);
  kernels::ArenaPlan plan;
  self->MakeParts(std::move(orthogonalizer), &plan);
  self->MakeSparse(reads, &plan);
  const kernels::TensorId stage =
      plan.Add("state stage", DType::kF32, {LargestBuffer(self->layout_, comm.size())});
  const int64_t places = static_cast<int64_t>(parameters.size()) * (1 + slot_plan.leaves());
  const kernels::TensorId found = plan.Add("first non-finite", DType::kI64, {places});
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
  if (self->pair_ != nullptr) self->pair_->Bind(self->arena_);
  if (self->sparse_ != nullptr) self->sparse_->Bind(self->arena_);
  return self;
}

void ShardedOptimizer::MakeParts(std::unique_ptr<Orthogonalizer> orthogonalizer,
                                 kernels::ArenaPlan* plan) {
  adam_ = std::make_unique<AdamPart>(config_, layout_, parameters_, slots_, comm_, plan);
  muon_ = std::make_unique<MuonPart>(config_, layout_, parameters_, slots_,
                                     std::move(orthogonalizer), comm_, plan);
  for (UpdatePart* part : std::initializer_list<UpdatePart*>{adam_.get(), muon_.get()}) {
    for (int i = 0; i < part->buffers(); ++i) units_.push_back({part, i});
  }
  CHECK_EQ(static_cast<int>(units_.size()), layout_.buffers());
  if (!layout_.tied.has_value()) return;
  const int source = layout_.adam[layout_.tied->source].members[0];
  pair_ = std::make_unique<TiedPair>(*layout_.tied, *adam_, slots_.leaves(),
                                     config_.table[layout_.row_of_spec[source]].moment_dtype, plan);
}

absl::Status ShardedOptimizer::Step(const StepRates& rates, Tensor guard, Queue& queue) {
  CheckFinished("Step");  // or its gradients are not those of any weights
  queue_ = &queue;
  const int64_t first = rates.step - updates_;
  CHECK_GE(first, 0) << "step " << rates.step << " after " << updates_ << " steps";
  ABSL_RETURN_IF_ERROR(FollowTie(rates.tied, queue));
  if (sparse_ != nullptr) ABSL_RETURN_IF_ERROR(sparse_->BeginStep(rates.step, queue));
  adam_->SetRates(rates.lr_multiplier, rates.step, first, queue);
  muon_->SetRates(rates.lr_multiplier, rates.momentum, rates.step, queue);
  const StepKind kind = KindOfStep(layout_, rates.step, rates.tied);
  const auto ran = recordings_.find(kind);
  if (recording_enabled_ && ran != recordings_.end() && comm_.size() == 1) {
    std::unique_ptr<kernels::Recording>& recording = ran->second;
    if (recording == nullptr) {
      recording = queue.Record([this, &kind, guard, &queue] {
        const absl::Status status = Update(kind, guard, queue);
        CHECK(status.ok()) << status;  // the only rank waits for nobody
      });
    }
    CHECK(guard.data() == recorded_guard_) << "the recorded update has another guard";
    recording->Replay();
  } else {
    const absl::Status status = Update(kind, guard, queue);
    if (!status.ok()) {
      Drain(queue);
      return status;
    }
    recordings_.try_emplace(kind);
    recorded_guard_ = guard.data();
  }
  pending_->AfterStep(rates.step);
  ++updates_;
  return absl::OkStatus();
}

absl::Status ShardedOptimizer::FollowTie(bool tied, Queue& queue) {
  if (tied && pair_ == nullptr) {
    return absl::InvalidArgumentError(
        "optimizer: this step is tied, but no row of the param table is tied to another");
  }
  if (tied && tie_ == Tie::kUntied) {
    return absl::FailedPreconditionError(absl::StrCat(
        "optimizer: tied again at step ", updates_,
        ": the pair has been updated apart before, and its moments differ; is the step at which it "
        "is untied another one than in the run that wrote the checkpoint?"));
  }
  if (!tied && tie_ == Tie::kTied) {
    ABSL_RETURN_IF_ERROR(pair_->CopyMoments(state_stage_, queue));
  }
  tie_ = tied ? Tie::kTied : Tie::kUntied;
  return absl::OkStatus();
}

absl::Status ShardedOptimizer::Update(const StepKind& kind, Tensor guard, Queue& queue) {
  for (const ScheduleEntry& entry : MakeSchedule(layout_, kind)) {
    ABSL_RETURN_IF_ERROR(Run(entry, guard, queue));
  }
  return absl::OkStatus();
}

absl::Status ShardedOptimizer::Run(const ScheduleEntry& entry, Tensor guard, Queue& queue) {
  if (sparse_ != nullptr && sparse_->Has(entry.buffer)) return RunSparse(entry, guard, queue);
  const Unit& unit = units_[entry.buffer];
  ShardedBuffer& buffer = unit.buffer();
  switch (entry.action) {
    case ScheduleEntry::Action::kAddTied:
      pair_->AddGradient(queue);
      break;
    case ScheduleEntry::Action::kReduce:
      buffer.LaunchReduce(queue);
      break;
    case ScheduleEntry::Action::kUpdate:
      ABSL_RETURN_IF_ERROR(buffer.WaitReduce(queue));
      buffer.LoadOwnValue(queue);
      unit.part->Update(unit.index, guard, queue);
      buffer.LaunchGather(queue);
      break;
    case ScheduleEntry::Action::kFinish:
      return buffer.FinishGather(queue);
    case ScheduleEntry::Action::kFinishLater:
      if (comm_.size() == 1) return buffer.FinishGather(queue);
      in_flight_.push_back(&buffer);
      break;
    case ScheduleEntry::Action::kCopyTied:
      pair_->CopyWeight(queue);
      break;
  }
  return absl::OkStatus();
}

absl::Status ShardedOptimizer::FinishGathers(Queue& queue) {
  for (ShardedBuffer* const buffer : in_flight_) {
    const absl::Status status = buffer->FinishGather(queue);
    if (!status.ok()) {
      Drain(queue);
      return status;
    }
  }
  in_flight_.clear();
  return absl::OkStatus();
}

void ShardedOptimizer::Drain(Queue& queue) {
  for (const Unit& unit : units_) unit.buffer().Drain(queue);
  if (sparse_ != nullptr) sparse_->Drain(queue);
  in_flight_.clear();
}

void ShardedOptimizer::CheckFinished(const char* method) const {
  CHECK(in_flight_.empty()) << method << " before FinishGathers: the gather of "
                            << in_flight_.front()->layout().label << " is in flight";
}

void ShardedOptimizer::ForgetUpdates(int64_t steps) {
  CheckFinished("ForgetUpdates");
  updates_ -= steps;
  pending_->Forget();
  if (sparse_ != nullptr) sparse_->Forget();
}

void ShardedOptimizer::Reset(Queue& queue) {
  CheckFinished("Reset");
  for (const Unit& unit : units_) {
    for (const ShardedBuffer::Kept& kept : unit.kept()) kernels::FillZero(kept.own, queue);
  }
  pending_->Forget();
  if (sparse_ != nullptr) sparse_->Forget();
  tie_ = Tie::kOpen;
  updates_ = 0;
}

void ShardedOptimizer::SkipUpdate(Queue& queue) {
  CheckFinished("SkipUpdate");
  for (const Parameter& parameter : parameters_) kernels::FillZero(parameter.grad, queue);
}

std::vector<ShardedOptimizer::Unit> ShardedOptimizer::UnitsWithState(Tie tie) const {
  std::vector<Unit> units = units_;
  // Adam's buffers are the layout's first.
  if (tie == Tie::kTied) units.erase(units.begin() + layout_.tied->source);
  return units;
}

std::set<std::string> ShardedOptimizer::StateNames(int64_t updates, Tie tie) const {
  std::set<std::string> names = pending_->StateNames(updates);
  for (const Unit& unit : UnitsWithState(tie)) {
    for (const ShardedBuffer::Kept& kept : unit.kept()) {
      for (const std::string& name : unit.buffer().StateNames(kept)) names.insert(name);
    }
  }
  return names;
}

absl::StatusOr<OptimizerState> ShardedOptimizer::GatherState(Queue& queue) {
  CheckFinished("GatherState");
  OptimizerState state;
  state.updates = updates_;
  for (const Unit& unit : UnitsWithState(tie_)) {
    for (const ShardedBuffer::Kept& kept : unit.kept()) {
      ABSL_RETURN_IF_ERROR(unit.buffer().GatherState(kept, state_stage_, queue, &state.tensors));
    }
  }
  ABSL_RETURN_IF_ERROR(pending_->GatherState(state_stage_, queue, &state.tensors));
  return state;
}

absl::Status ShardedOptimizer::LoadState(const OptimizerState& state, Queue& queue) {
  CheckFinished("LoadState");
  if (state.updates < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("optimizer state: ", state.updates, " updates, which is negative"));
  }
  const Tie tie = pair_ != nullptr && pair_->IsTied(state) ? Tie::kTied : Tie::kUntied;
  const std::set<std::string> names = StateNames(state.updates, tie);
  for (const StateTensor& tensor : state.tensors) {
    if (names.count(tensor.name) > 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("optimizer state ", tensor.name,
                     ": the checkpoint has it, this run does not; was it written by another "
                     "recipe?"));
  }
  const std::vector<Unit> units = UnitsWithState(tie);
  for (const Unit& unit : units) {
    for (const ShardedBuffer::Kept& kept : unit.kept()) {
      ABSL_RETURN_IF_ERROR(unit.buffer().CheckState(kept, state));
    }
  }
  ABSL_RETURN_IF_ERROR(pending_->CheckState(state));
  for (const Unit& unit : units) {
    for (const ShardedBuffer::Kept& kept : unit.kept()) {
      unit.buffer().LoadState(kept, state, queue);
    }
  }
  pending_->LoadState(state, queue);
  if (sparse_ != nullptr) sparse_->LoadState(state);
  updates_ = state.updates;
  // Before the first step all moments are zero, so it may go either way.
  if (tie == Tie::kTied) {
    for (const ShardedBuffer::Kept& kept : units_[layout_.tied->source].kept()) {
      kernels::FillZero(kept.own, queue);
    }
  }
  tie_ = updates_ == 0 ? Tie::kOpen : tie;
  return absl::OkStatus();
}

std::string ShardedOptimizer::PlanText() const {
  return absl::StrCat(DescribeStep(layout_, config_, Specs(parameters_), comm_.size()),
                      "Optimizer memory on rank ", comm_.rank(), ": ", bytes(), " B\n");
}

}  // namespace optim
