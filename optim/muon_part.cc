#include "optim/muon_part.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/optimizer.h"
#include "third_party/absl_compat/status_macros.h"

namespace optim {

using kernels::DType;
using kernels::Parameter;
using kernels::ParameterSpec;
using kernels::Queue;
using kernels::Tensor;

MuonPart::MuonPart(const OptimizerConfig& config, const StepLayout& layout,
                   const std::vector<Parameter>& parameters, const SlotPlan& slots,
                   std::unique_ptr<Orthogonalizer> orthogonalizer, comm::Communicator& comm,
                   kernels::ArenaPlan* plan)
    : orthogonalizer_(std::move(orthogonalizer)) {
  int64_t largest_chunk = 0, workspace = 0;
  for (const BufferLayout& buffer : layout.muon) {
    std::vector<const Parameter*> members;
    std::vector<ParamRow> rows;
    for (int index : buffer.members) {
      members.push_back(&parameters[index]);
      rows.push_back(RowOf(config.table[layout.row_of_spec[index]], parameters[index].spec));
    }
    Item item;
    item.buffer = std::make_unique<ShardedBuffer>(buffer, std::move(members), slots, comm, plan);
    item.momentum_id = plan->Add(absl::StrCat("muon.momentum/", buffer.label), buffer.dtype,
                                 {item.buffer->chunk()});
    if (rows[0].rule == Rule::kNorMuon) {
      // PlanStep has seen to it that the members agree on rule, dtype and number of values.
      const int64_t values = Elements(SecondMomentShape(parameters[buffer.members[0]].spec));
      item.second_moment_id =
          plan->Add(absl::StrCat("normuon.second_moment/", buffer.label), rows[0].moment_dtype,
                    {item.buffer->chunk() / buffer.member_size * values});
    }
    item.runs = OwnRuns(*item.buffer, rows, comm.rank());
    largest_chunk = std::max(largest_chunk, item.buffer->chunk());
    for (const Run& run : item.runs) {
      workspace =
          std::max(workspace, orthogonalizer_->WorkspaceElements(run.batch, run.rows, run.cols));
    }
    items_.push_back(std::move(item));
  }
  if (items_.empty()) return;
  const int64_t rates = 1 + 2 * static_cast<int64_t>(matrices_.size());
  host_rates_.resize(rates);
  rates_id_ = plan->Add("muon.rates", DType::kF32, {rates});
  direction_id_ = plan->Add("muon.direction", DType::kBF16, {largest_chunk});
  orthogonal_id_ = plan->Add("muon.orthogonal", DType::kBF16, {largest_chunk});
  // A rank that owns nothing orthogonalises nothing, but an entry has at least one element.
  workspace_id_ = plan->Add("muon.workspace", DType::kBF16, {std::max<int64_t>(1, workspace)});
}

std::vector<MuonPart::Run> MuonPart::OwnRuns(const ShardedBuffer& buffer,
                                             const std::vector<ParamRow>& rows, int rank) {
  std::vector<Run> runs;
  const BufferLayout& layout = buffer.layout();
  const int64_t first = rank * buffer.chunk() / layout.member_size;
  const int64_t owned = buffer.own_size() / layout.member_size;
  for (int64_t i = 0; i < owned; ++i) {
    const ParameterSpec& spec = buffer.members()[first + i]->spec;
    const Run next{.begin = i * layout.member_size,
                   .batch = 0,
                   .rows = spec.rows,
                   .cols = spec.cols,
                   .beta2 = rows[first + i].beta2,
                   .per_row = SecondMomentPerRow(spec),
                   .moment = i * Elements(SecondMomentShape(spec)),
                   .rate = static_cast<int64_t>(matrices_.size())};
    if (runs.empty() || !runs.back().GoesWith(next)) runs.push_back(next);
    runs.back().batch += spec.matrices;
    matrices_.insert(matrices_.end(), spec.matrices, MatrixRow{rows[first + i], spec});
  }
  return runs;
}

void MuonPart::Bind(const kernels::Arena& arena, Tensor tree_scratch) {
  if (items_.empty()) return;
  for (Item& item : items_) {
    item.buffer->Bind(arena, tree_scratch);
    item.momentum = arena.Get(item.momentum_id);
    if (item.second_moment_id.index >= 0) item.second_moment = arena.Get(item.second_moment_id);
  }
  const Tensor rates = arena.Get(rates_id_);
  const int64_t matrices = static_cast<int64_t>(matrices_.size());
  rates_ = rates;
  step_rates_ = rates.Slice(1, matrices);
  decay_rates_ = rates.Slice(1 + matrices, matrices);
  direction_ = arena.Get(direction_id_);
  orthogonal_ = arena.Get(orthogonal_id_);
  workspace_ = arena.Get(workspace_id_);
}

void MuonPart::SetRates(double lr_multiplier, double momentum, Queue& queue) {
  if (items_.empty()) return;
  host_rates_[0] = static_cast<float>(momentum);
  for (size_t i = 0; i < matrices_.size(); ++i) {
    const Rates rates = MuonRates(matrices_[i].row, matrices_[i].spec, lr_multiplier);
    host_rates_[1 + i] = static_cast<float>(rates.step);
    host_rates_[1 + matrices_.size() + i] = static_cast<float>(rates.decay);
  }
  queue.Upload(host_rates_.data(), rates_);
}

void MuonPart::Update(const Item& item, Tensor guard, Queue& queue) const {
  const ShardedBuffer& buffer = *item.buffer;
  const int64_t n = buffer.own_size();
  if (n == 0) return;
  kernels::MomentumUpdate(buffer.own_gradient().Slice(0, n), item.momentum.Slice(0, n),
                          rates_.Slice(0, 1), guard, direction_.Slice(0, n), queue);
  for (const Run& run : item.runs) {
    const auto view = [&run](const Tensor& flat) {
      return flat.Slice(run.begin, run.size()).Reshape({run.batch, run.rows, run.cols});
    };
    orthogonalizer_->Orthogonalize(view(direction_), workspace_, view(orthogonal_), queue);
    if (item.second_moment) {
      const int64_t values = run.per_row ? run.rows : run.cols;
      kernels::NormalizeBySecondMoment(
          {.o = view(orthogonal_),
           .w = item.second_moment.Slice(run.moment, run.batch * values)
                    .Reshape({run.batch, values}),
           .guard = guard,
           .p = view(orthogonal_),
           .beta2 = static_cast<float>(run.beta2),
           .per_row = run.per_row},
          queue);
    }
    kernels::MatrixUpdate(view(buffer.own_value()), view(orthogonal_),
                          step_rates_.Slice(run.rate, run.batch),
                          decay_rates_.Slice(run.rate, run.batch), guard, queue);
  }
}

absl::Status MuonPart::Step(Tensor guard, Queue& queue) {
  for (Item& item : items_) item.buffer->LaunchReduce(queue);
  for (Item& item : items_) {
    ABSL_RETURN_IF_ERROR(item.buffer->WaitReduce(queue));
    item.buffer->LoadOwnValue(queue);
    Update(item, guard, queue);
    item.buffer->LaunchGather(queue);
  }
  for (Item& item : items_) ABSL_RETURN_IF_ERROR(item.buffer->FinishGather(queue));
  return absl::OkStatus();
}

void MuonPart::Drain(Queue& queue) {
  for (Item& item : items_) item.buffer->Drain(queue);
}

void MuonPart::Reset(Queue& queue) {
  for (const Item& item : items_) {
    for (const ShardedBuffer::Kept& kept : KeptOf(item)) kernels::FillZero(kept.own, queue);
  }
}

std::vector<ShardedBuffer::Kept> MuonPart::KeptOf(const Item& item) {
  std::vector<ShardedBuffer::Kept> kept = {{.prefix = "muon.momentum", .own = item.momentum}};
  if (item.second_moment) {
    kept.push_back(
        {.prefix = "normuon.second_moment", .own = item.second_moment, .shape = SecondMomentShape});
  }
  return kept;
}

absl::Status MuonPart::GatherState(Tensor stage, Queue& queue, std::vector<StateTensor>* out) {
  for (const Item& item : items_) {
    for (const ShardedBuffer::Kept& kept : KeptOf(item)) {
      const Tensor typed(stage.data(), kept.own.dtype(), {stage.size()}, stage.device());
      ABSL_RETURN_IF_ERROR(item.buffer->GatherState(kept, typed, queue, out));
    }
  }
  return absl::OkStatus();
}

absl::Status MuonPart::CheckState(const OptimizerState& state) const {
  for (const Item& item : items_) {
    for (const ShardedBuffer::Kept& kept : KeptOf(item)) {
      ABSL_RETURN_IF_ERROR(item.buffer->CheckState(kept, state));
    }
  }
  return absl::OkStatus();
}

void MuonPart::LoadState(const OptimizerState& state, Queue& queue) {
  for (const Item& item : items_) {
    for (const ShardedBuffer::Kept& kept : KeptOf(item)) {
      item.buffer->LoadState(kept, state, queue);
    }
  }
}

}  // namespace optim
