// What ShardedOptimizer does about tables of which few rows are read.
#include <memory>
#include <vector>

#include "optim/sharded_optimizer.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace optim {

using kernels::Queue;
using kernels::Tensor;

void ShardedOptimizer::MakeSparse(RowReads* reads, kernels::ArenaPlan* plan) {
  std::vector<SparseTables::Table> tables;
  const ParamRow* row = nullptr;
  for (size_t i = 0; i < layout_.adam.size(); ++i) {  // Adam's buffers are the layout's first
    if (!layout_.adam[i].sparse_rows) continue;
    tables.push_back({.number = static_cast<int>(i), .buffer = &units_[i].buffer()});
    row = &config_.table[layout_.row_of_spec[layout_.adam[i].members[0]]];
  }
  if (row == nullptr) return;
  CHECK(reads != nullptr);
  sparse_ = std::make_unique<SparseTables>(*row, tables, comm_, *reads, plan);
}

absl::Status ShardedOptimizer::RunSparse(const ScheduleEntry& entry, Tensor guard, Queue& queue) {
  const Unit& unit = units_[entry.buffer];
  switch (entry.action) {
    case ScheduleEntry::Action::kReduce:
      sparse_->LaunchReduce(entry.buffer, queue);
      break;
    case ScheduleEntry::Action::kUpdate:
      ABSL_RETURN_IF_ERROR(sparse_->WaitReduce(entry.buffer, queue));
      unit.buffer().LoadOwnValue(queue);
      unit.part->Update(unit.index, guard, queue);
      sparse_->LaunchGather(entry.buffer, queue);
      break;
    case ScheduleEntry::Action::kFinish:
      return sparse_->FinishGather(entry.buffer, queue);
    case ScheduleEntry::Action::kFinishLater:
    case ScheduleEntry::Action::kAddTied:
    case ScheduleEntry::Action::kCopyTied:
      CHECK(false) << unit.buffer().layout().label << " is sparse, and tied or deferred";
  }
  return absl::OkStatus();
}

absl::Status ShardedOptimizer::GatherTables(Queue& queue) {
  return sparse_ == nullptr ? absl::OkStatus() : sparse_->GatherTables(queue);
}

}  // namespace optim
