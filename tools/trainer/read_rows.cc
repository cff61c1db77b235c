#include "tools/trainer/read_rows.h"

#include "comm/slot_tree.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {

absl::Status ReadRows::Add(int64_t step, std::vector<optim::RowSet>* rows) {
  if (step >= total_steps_) return absl::OkStatus();
  CHECK(batches_ != nullptr);
  ABSL_ASSIGN_OR_RETURN(const BatchSource::Batch batch, batches_->Peek(step));
  const int ranks = static_cast<int>(rows->size());
  for (int rank = 0; rank < ranks; ++rank) {
    const comm::SlotRange run = comm::SlotsOfRank(slots_, ranks, rank);
    for (int slot = run.begin; slot < run.end; ++slot) {
      for (const int32_t token : batch->slots[slot].inputs) (*rows)[rank].Add(token);
    }
  }
  return absl::OkStatus();
}

}  // namespace tools
