// The validation loss of a saved model, as the training that wrote it computes its own.
#ifndef TOOLS_EVAL_VALIDATION_H_
#define TOOLS_EVAL_VALIDATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/queue.h"
#include "sched/window.h"
#include "tools/sample/saved_model.h"

namespace tools {

// The windows of the model's step or, if `long_tokens` is not 0, a long one of so many tokens and a
// short one of half as many, rounded down to whole blocks as in the schedules. InvalidArgument
// where that is no whole number of the record's blocks. The rotary table stays as it was trained.
absl::StatusOr<sched::Windows> EvaluationWindows(const SavedModel& saved, int64_t long_tokens);

// The shards of the validation: what `globs` match or, if that is empty, FineWeb's where
// fetch_fineweb puts them; for a model of single bytes, the demo's own.
absl::StatusOr<std::vector<std::string>> ValidationFiles(const SavedModel& saved,
                                                         const std::string& globs);

struct ValidationLoss {
  double loss = 0;  // nats a token
  int64_t tokens = 0;
};
// Of the first `tokens` tokens of the files (0: as many as the record takes), in the record's
// slots or one smaller slot, like the trainer's --val_tokens. On the CPU. Bits are those of a
// training's own validation at the same windows.
absl::StatusOr<ValidationLoss> Validate(const SavedModel& saved,
                                        const std::vector<std::string>& files, int64_t tokens,
                                        const sched::Windows& windows, kernels::Queue& queue);

}  // namespace tools

#endif  // TOOLS_EVAL_VALIDATION_H_
