// Which rows of the token tables the ranks read in a step: the tokens of their slots.
#ifndef TOOLS_TRAINER_READ_ROWS_H_
#define TOOLS_TRAINER_READ_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "optim/sparse_rows.h"
#include "tools/trainer/batch_source.h"

namespace tools {

class ReadRows : public optim::RowReads {
 public:
  // Of a run of so many steps whose batches have `slots` slots, shared as comm::SlotsOfRank says.
  ReadRows(int64_t total_steps, int slots) : total_steps_(total_steps), slots_(slots) {}
  // Before the first step. `batches` outlives the object.
  void SetSource(BatchSource& batches) { batches_ = &batches; }

  // Errors are BatchSource::Peek's.
  absl::Status Add(int64_t step, std::vector<optim::RowSet>* rows) override;

 private:
  const int64_t total_steps_;
  const int slots_;
  BatchSource* batches_ = nullptr;
};

}  // namespace tools

#endif  // TOOLS_TRAINER_READ_ROWS_H_
