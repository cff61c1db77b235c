#include "optim/muon_part.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ops/optimizer.h"

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
    std::vector<ParamRow> rows;
    for (int index : buffer.members) {
      rows.push_back(RowOf(config.table[layout.row_of_spec[index]], parameters[index].spec));
    }
    items_.push_back(MakeItem(buffer, parameters, rows, slots, comm, plan));
    const Item& item = items_.back();
    largest_chunk = std::max(largest_chunk, item.buffer->chunk());
    for (const Run& run : item.runs) {
      workspace =
          std::max(workspace, orthogonalizer_->WorkspaceElements(run.batch, run.rows, run.cols));
    }
  }
  if (items_.empty()) return;
  const int64_t rates = FirstMatrixRate() + 2 * static_cast<int64_t>(matrices_.size());
  host_rates_.resize(rates);
  rates_id_ = plan->Add("muon.rates", DType::kF32, {rates});
  direction_id_ = plan->Add("muon.direction", DType::kBF16, {largest_chunk});
  orthogonal_id_ = plan->Add("muon.orthogonal", DType::kBF16, {largest_chunk});
  // A rank that owns nothing orthogonalises nothing, but an entry has at least one element.
  workspace_id_ = plan->Add("muon.workspace", DType::kBF16, {std::max<int64_t>(1, workspace)});
}

MuonPart::Item MuonPart::MakeItem(const BufferLayout& layout,
                                  const std::vector<Parameter>& parameters,
                                  const std::vector<ParamRow>& rows, const SlotPlan& slots,
                                  comm::Communicator& comm, kernels::ArenaPlan* plan) {
  std::vector<const Parameter*> members;
  for (int index : layout.members) members.push_back(&parameters[index]);
  Item item;
  item.row = rows[0];
  item.buffer = std::make_unique<ShardedBuffer>(layout, std::move(members), slots, comm, plan);
  const int64_t chunk = item.buffer->chunk();
  // PlanStep has seen to it that the members agree on rule, mantissa, rails, dtype and number of
  // values.
  item.momentum_id = plan->Add(absl::StrCat("muon.momentum/", layout.label),
                               rows[0].mantissa ? DType::kF32 : layout.dtype, {chunk});
  if (rows[0].rule == Rule::kAnvil) {
    item.slow_rail_id =
        plan->Add(absl::StrCat("anvil.slow_rail/", layout.label), DType::kF32, {chunk});
  }
  if (rows[0].mantissa) {
    item.mantissa_id = plan->Add(absl::StrCat(Name(rows[0].rule), ".mantissa/", layout.label),
                                 DType::kU16, {chunk});
  }
  if (rows[0].rule != Rule::kMuon) {
    const int64_t values = Elements(
        SecondMomentShape(parameters[layout.members[0]].spec, rows[0].second_moment_as_stored));
    item.second_moment_id = plan->Add(
        absl::StrCat(Name(rows[0].rule), ".second_moment/", layout.label), rows[0].moment_dtype,
        {chunk / layout.unit * values / (layout.member_size / layout.unit)});
  }
  item.runs = OwnRuns(*item.buffer, rows);
  return item;
}

std::vector<MuonPart::Run> MuonPart::OwnRuns(const ShardedBuffer& buffer,
                                             const std::vector<ParamRow>& rows) {
  std::vector<Run> runs;
  const BufferLayout& layout = buffer.layout();
  const int64_t units_of_member = layout.member_size / layout.unit;
  const int64_t first = buffer.own_begin() / layout.unit;
  const int64_t owned = buffer.own_size() / layout.unit;
  for (int64_t i = 0; i < owned; ++i) {
    const int64_t member = (first + i) / units_of_member;
    const ParameterSpec& spec = buffer.members()[member]->spec;
    const ParamRow& row = rows[member];
    const bool as_stored = row.second_moment_as_stored;
    const int64_t batch = spec.matrices / units_of_member;
    const Run next{.begin = i * layout.unit,
                   .batch = 0,
                   .rows = spec.rows,
                   .cols = spec.cols,
                   .cautious = row.cautious_decay,
                   .beta2 = row.beta2,
                   .moment_floor = row.second_moment_floor,
                   .per_row = SecondMomentPerRow(spec),
                   .moment_rows = as_stored ? spec.shape[spec.shape.size() - 2] : spec.rows,
                   .moment_cols = as_stored ? spec.shape.back() : spec.cols,
                   .moment = i * Elements(SecondMomentShape(spec, as_stored)) / units_of_member,
                   .rate = static_cast<int64_t>(matrices_.size())};
    if (runs.empty() || !runs.back().GoesWith(next)) runs.push_back(next);
    runs.back().batch += batch;
    const int64_t matrix = (first + i) % units_of_member * batch;
    for (int64_t j = 0; j < batch; ++j) matrices_.push_back({row, spec, matrix + j});
  }
  return runs;
}

void MuonPart::Bind(const kernels::Arena& arena, Tensor tree_scratch) {
  if (items_.empty()) return;
  for (Item& item : items_) {
    item.buffer->Bind(arena, tree_scratch);
    item.momentum = arena.Get(item.momentum_id);
    if (item.slow_rail_id.index >= 0) item.slow_rail = arena.Get(item.slow_rail_id);
    if (item.second_moment_id.index >= 0) item.second_moment = arena.Get(item.second_moment_id);
    if (item.mantissa_id.index >= 0) item.mantissa = arena.Get(item.mantissa_id);
  }
  const Tensor rates = arena.Get(rates_id_);
  const int64_t matrices = static_cast<int64_t>(matrices_.size());
  rates_ = rates;
  step_rates_ = rates.Slice(FirstMatrixRate(), matrices);
  decay_rates_ = rates.Slice(FirstMatrixRate() + matrices, matrices);
  direction_ = arena.Get(direction_id_);
  orthogonal_ = arena.Get(orthogonal_id_);
  workspace_ = arena.Get(workspace_id_);
}

void MuonPart::SetRates(double lr_multiplier, double momentum, int64_t step, Queue& queue) {
  if (items_.empty()) return;
  auto rate = host_rates_.begin();
  for (const Item& item : items_) {
    const RailRates rails = RailRatesAt(item.row.rails, momentum, step);
    for (double value : {rails.lookahead, rails.fast_beta, rails.fast_weight}) {
      *rate++ = static_cast<float>(value);
    }
  }
  for (size_t i = 0; i < matrices_.size(); ++i, ++rate) {
    const auto& [row, spec, matrix] = matrices_[i];
    const Rates rates = MuonRates(row, spec, lr_multiplier, matrix);
    *rate = static_cast<float>(rates.step);
    *(rate + static_cast<int64_t>(matrices_.size())) = static_cast<float>(rates.decay);
  }
  queue.Upload(host_rates_.data(), rates_);
}

void MuonPart::Update(int i, Tensor guard, Queue& queue) {
  const Item& item = items_[i];
  const ShardedBuffer& buffer = *item.buffer;
  const int64_t n = buffer.own_size();
  if (n == 0) return;
  const Tensor gradient = buffer.own_gradient().Slice(0, n);
  if (item.slow_rail) {
    kernels::TwinRailUpdate({.g = gradient,
                             .fast = item.momentum.Slice(0, n),
                             .slow = item.slow_rail.Slice(0, n),
                             .rates = rates_.Slice(3 * i, 3),
                             .guard = guard,
                             .u = direction_.Slice(0, n),
                             .slow_rate = static_cast<float>(1 - item.row.rails.slow_beta),
                             .gradient = buffer.layout().dtype},
                            queue);
  } else {
    kernels::MomentumUpdate({.g = gradient,
                             .m = item.momentum.Slice(0, n),
                             .mu = rates_.Slice(3 * i, 1),
                             .guard = guard,
                             .u = direction_.Slice(0, n),
                             .gradient = buffer.layout().dtype},
                            queue);
  }
  for (const Run& run : item.runs) UpdateRun(item, run, guard, queue);
}

void MuonPart::UpdateRun(const Item& item, const Run& run, Tensor guard, Queue& queue) const {
  const auto view = [&run](const Tensor& flat) {
    return flat.Slice(run.begin, run.size()).Reshape({run.batch, run.rows, run.cols});
  };
  orthogonalizer_->Orthogonalize(view(direction_), workspace_, view(orthogonal_), queue);
  if (item.second_moment) {
    const int64_t matrices = run.size() / (run.moment_rows * run.moment_cols);
    const int64_t values = run.per_row ? run.moment_rows : run.moment_cols;
    const Tensor o = view(orthogonal_).Reshape({matrices, run.moment_rows, run.moment_cols});
    kernels::NormalizeBySecondMoment(
        {.o = o,
         .w = item.second_moment.Slice(run.moment, matrices * values).Reshape({matrices, values}),
         .guard = guard,
         .p = o,
         .beta2 = static_cast<float>(run.beta2),
         .floor = static_cast<float>(run.moment_floor),
         .per_row = run.per_row},
        queue);
  }
  const Tensor value = view(item.buffer->own_value());
  const Tensor steps = step_rates_.Slice(run.rate, run.batch);
  const Tensor decays = decay_rates_.Slice(run.rate, run.batch);
  if (item.mantissa) {
    kernels::SplitMatrixUpdate({.p = value,
                                .mantissa = view(item.mantissa),
                                .o = view(orthogonal_),
                                .gate = item.slow_rail ? view(item.slow_rail) : Tensor(),
                                .lr = steps,
                                .decay = decays,
                                .guard = guard,
                                .cautious = run.cautious},
                               queue);
  } else {
    kernels::MatrixUpdate(
        {.p = value, .o = view(orthogonal_), .lr = steps, .decay = decays, .guard = guard}, queue);
  }
}

std::vector<ShardedBuffer::Kept> MuonPart::KeptOf(int i) const {
  const Item& item = items_[i];
  const std::string rule = Name(item.row.rule);
  std::vector<ShardedBuffer::Kept> kept = {{.prefix = "muon.momentum", .own = item.momentum}};
  if (item.slow_rail) kept.push_back({.prefix = rule + ".slow_rail", .own = item.slow_rail});
  if (item.second_moment) {
    const auto shape = item.row.second_moment_as_stored
                           ? [](const ParameterSpec& s) { return SecondMomentShape(s, true); }
                           : [](const ParameterSpec& s) { return SecondMomentShape(s, false); };
    kept.push_back({.prefix = rule + ".second_moment", .own = item.second_moment, .shape = shape});
  }
  if (item.mantissa) kept.push_back({.prefix = rule + ".mantissa", .own = item.mantissa});
  return kept;
}

}  // namespace optim
