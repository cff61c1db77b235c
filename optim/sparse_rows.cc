#include "optim/sparse_rows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/embedding.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace optim {

using kernels::DType;
using kernels::MoveRows;
using kernels::Queue;
using kernels::RowMove;
using kernels::Tensor;

namespace {

// The leading `rows` rows of a stage, with values of `dtype`.
Tensor Leading(const Tensor& stage, int64_t rows, DType dtype) {
  return Tensor(stage.data(), dtype, {rows, stage.cols()}, stage.device());
}

// All rows of it, since a collective takes no empty tensor.
Tensor Whole(const Tensor& stage, DType dtype) { return Leading(stage, stage.dim(0), dtype); }

Tensor Value(const ShardedBuffer& buffer) { return buffer.members()[0]->value; }

}  // namespace

SparseTables::SparseTables(const ParamRow& row, const std::vector<Table>& tables,
                           comm::Communicator& comm, RowReads& reads, kernels::ArenaPlan* plan)
    : row_(row), comm_(comm), reads_(reads) {
  for (const Table& table : tables) {
    const kernels::ParameterSpec& spec = table.buffer->members()[0]->spec;
    const int64_t rows = spec.shape[0], dim = spec.shape[1];
    const int64_t shard = table.buffer->chunk() / dim;
    CHECK(rows_ == 0 || rows == rows_) << spec.name;
    CHECK_EQ(shard * dim, table.buffer->chunk()) << spec.name;
    rows_ = rows;
    shard_ = shard;
    const auto stage = [&](const char* name, int64_t count) {
      return plan->Add(absl::StrCat(name, spec.name), DType::kF32, {count, dim});
    };
    tables_[table.number] = {.buffer = table.buffer,
                             .dim = dim,
                             .wanted_stage_id = stage("rows wanted/", rows),
                             .owned_stage_id = stage("rows owned/", comm.size() * shard),
                             .wanted_stage = {},
                             .owned_stage = {},
                             .future = {}};
  }
  for (Lists* lists : {&gradients_, &weights_}) {
    lists->wanted_id = plan->Add("rows wanted", DType::kI32, {rows_});
    lists->owned_id = plan->Add("rows owned", DType::kI32, {comm.size() * shard_});
  }
  current_.assign(comm.size(), RowSet(rows_));
}

void SparseTables::Bind(const kernels::Arena& arena) {
  for (auto& [number, table] : tables_) {
    table.wanted_stage = arena.Get(table.wanted_stage_id);
    table.owned_stage = arena.Get(table.owned_stage_id);
  }
  for (Lists* lists : {&gradients_, &weights_}) {
    lists->wanted = arena.Get(lists->wanted_id);
    lists->owned = arena.Get(lists->owned_id);
  }
}

void SparseTables::MakeLists(const std::vector<RowSet>& rows, Lists* lists, Queue& queue) const {
  std::vector<std::vector<int32_t>> wanted;
  for (const RowSet& set : rows) wanted.push_back(set.Ascending());
  lists->moves = MovesOf(wanted, shard_, comm_.rank());
  if (!lists->moves.wanted.empty()) queue.Upload(lists->moves.wanted.data(), lists->Wanted());
  if (!lists->moves.owned.empty()) queue.Upload(lists->moves.owned.data(), lists->Owned());
}

absl::Status SparseTables::BeginStep(int64_t step, Queue& queue) {
  // After a start, or a state that was loaded: what the event before would have asked for.
  if (step >= known_before_) {
    ABSL_RETURN_IF_ERROR(reads_.Add(step, &current_));
    known_before_ = step + 1;
  }
  if (!IsDue(row_, step)) return absl::OkStatus();
  MakeLists(current_, &gradients_, queue);
  for (RowSet& rows : current_) rows.Clear();
  int64_t next = step;
  do {
    ABSL_RETURN_IF_ERROR(reads_.Add(++next, &current_));
  } while (!IsDue(row_, next));
  known_before_ = next + 1;
  MakeLists(current_, &weights_, queue);
  return absl::OkStatus();
}

void SparseTables::LaunchReduce(int number, Queue& queue) {
  Exchange& table = tables_.at(number);
  const kernels::Parameter& parameter = *table.buffer->members()[0];
  const RowMoves& moves = gradients_.moves;
  const Tensor out = table.wanted_stage, in = table.owned_stage;
  MoveRows(RowMove::kGather, gradients_.Wanted(), parameter.grad.Reshape({rows_, table.dim}),
           Leading(out, Lists::Size(moves.wanted), DType::kF32), queue);
  table.future = comm_.AllToAllRows(table.buffer->layout().label, out, moves.from_owner, in,
                                    moves.for_rank, queue);
}

absl::Status SparseTables::WaitReduce(int number, Queue& queue) {
  Exchange& table = tables_.at(number);
  ABSL_RETURN_IF_ERROR(table.future.Wait(queue));
  // The own rows of this rank's gradient, which may lie here, have been sent as well.
  const Tensor sum = table.buffer->own_gradient();
  kernels::FillZero(sum, queue);
  int64_t begin = 0;
  for (const int64_t count : gradients_.moves.for_rank) {
    MoveRows(RowMove::kAdd, gradients_.owned.Slice(begin, count), sum.Reshape({shard_, table.dim}),
             table.owned_stage.Slice(begin, count), queue);
    begin += count;
  }
  table.buffer->TakeMean(queue);
  return absl::OkStatus();
}

void SparseTables::LaunchGather(int number, Queue& queue) {
  Exchange& table = tables_.at(number);
  const Tensor own = table.buffer->own_value(), value = Value(*table.buffer);
  const Tensor in_place =
      value.Reshape({-1}).Slice(table.buffer->own_begin(), table.buffer->own_size());
  if (table.buffer->own_size() > 0 && in_place.data() != own.data()) {
    kernels::Copy(own.Slice(0, table.buffer->own_size()), in_place, queue);
  }
  // Gradients have been read from both stages.
  const RowMoves& moves = weights_.moves;
  MoveRows(RowMove::kGather, weights_.Owned(), own.Reshape({shard_, table.dim}),
           Leading(table.owned_stage, Lists::Size(moves.owned), own.dtype()), queue);
  table.future = comm_.AllToAllRows(
      table.buffer->layout().label, Whole(table.owned_stage, own.dtype()), moves.for_rank,
      Whole(table.wanted_stage, own.dtype()), moves.from_owner, queue);
  stale_ = true;
}

absl::Status SparseTables::FinishGather(int number, Queue& queue) {
  Exchange& table = tables_.at(number);
  ABSL_RETURN_IF_ERROR(table.future.Wait(queue));
  const Tensor value = Value(*table.buffer);
  MoveRows(RowMove::kScatter, weights_.Wanted(), value,
           Leading(table.wanted_stage, Lists::Size(weights_.moves.wanted), value.dtype()), queue);
  return absl::OkStatus();
}

void SparseTables::Drain(Queue& queue) {
  for (auto& [number, table] : tables_) {
    if (table.future.valid()) table.future.Wait(queue).IgnoreError();
  }
}

absl::Status SparseTables::GatherTables(Queue& queue) {
  if (!stale_) return absl::OkStatus();
  for (auto& [number, table] : tables_) {
    table.buffer->LoadOwnValue(queue);
    table.buffer->LaunchGather(queue);
    ABSL_RETURN_IF_ERROR(table.buffer->FinishGather(queue));
  }
  stale_ = false;
  return absl::OkStatus();
}

void SparseTables::Forget() {
  for (RowSet& rows : current_) rows.Clear();
  known_before_ = 0;
}

void SparseTables::LoadState(const OptimizerState& state) {
  Forget();
  stale_ = false;
  for (const auto& [number, table] : tables_) {
    const std::string& name = table.buffer->members()[0]->spec.name;
    const StateTensor* tensor = FindState(state, absl::StrCat("adam.pending/", name));
    if (tensor == nullptr) continue;
    const auto* row = reinterpret_cast<const float*>(tensor->bytes.data());
    for (int64_t i = 0; i < rows_; ++i, row += table.dim) {
      if (std::any_of(row, row + table.dim, [](float g) { return g != 0; })) current_[0].Add(i);
    }
  }
}

}  // namespace optim
