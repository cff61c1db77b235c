// What is known of a training run, from its printed log, its metrics file, or both.
#ifndef TOOLS_RUN_LOGS_RUN_H_
#define TOOLS_RUN_LOGS_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tools {

// What a file does not say is absent; a training loss that was said but is not finite is NaN.
struct StepRow {
  int64_t step = 0;            // updates done, the step itself included
  int64_t line = 0;            // of its file, from 1; 0: unknown
  std::optional<double> loss;  // nats a token
  std::optional<double> lr;    // multiplier of all learning rates
  std::optional<double> momentum;
  std::optional<double> window_tokens;
  std::optional<double> tokens;  // trained on so far
  std::optional<double> batch_tokens;
  std::optional<double> step_ms;
  std::optional<double> tokens_per_s;
  std::optional<double> train_ms;  // since the start, validations excluded
};

struct ValidationRow {
  int64_t step = 0;
  double loss = 0;  // may be NaN or infinite
  std::optional<double> train_ms = {};
  std::optional<double> tokens = {};
  int64_t line = 0;  // of its file, from 1; 0: unknown
};

// A line of a run's file that could not be read, and was left out.
struct BrokenLine {
  int64_t line = 0;         // from 1
  bool last = false;        // nothing comes after it: the file may have been cut off there
  bool validation = false;  // it begins as a validation does
  std::string what;
};

struct TrainingRun {
  std::string name;
  std::string group;  // empty: of none
  std::vector<std::string> paths;
  std::vector<StepRow> steps;              // the step ascends
  std::vector<ValidationRow> validations;  // likewise
  std::optional<int64_t> planned_steps;    // a metrics file does not say
  std::optional<double> peak_mib;          // memory of a GPU; only the original's logs have it
  std::optional<double> batch_tokens;      // of every step
  std::vector<std::string> notes;          // what a reader has to know: cuts, NaN, resumptions
  std::vector<BrokenLine> broken_lines;
  int64_t trial = 0;  // of the runs of one file, from 1; 0: its only run

  int64_t last_step() const;
  // The validation after all of the run's steps, if it got there: of a metrics file the validation
  // that it ends with. Null otherwise.
  const ValidationRow* final_validation() const;
};

// Fills in what follows from the rest: times from step times and the other way round, tokens and
// tokens a second from the batch and the other way round.
void Complete(TrainingRun* run);

// Notes where the run ends early and which losses are not finite.
void NoteGaps(TrainingRun* run);

// "runs/1.txt", or "runs/1.txt#3" for the third run of a file that has several.
std::string RunText(const TrainingRun& run);

// Collects a file's rows. A resumed run goes back to the step of its checkpoint and says the steps
// from there on again: those that were there before are dropped, with a note.
class RunRows {
 public:
  explicit RunRows(TrainingRun* run) : run_(run) {}

  // `line` is the row's, from 1. InvalidArgument, without the file's name, if a second run begins
  // there: its curves would be mixed.
  absl::Status Add(int64_t line, StepRow row);
  absl::Status Add(int64_t line, const ValidationRow& row);

 private:
  absl::Status GoBack(int64_t line, int64_t to_step);

  TrainingRun* const run_;
};

}  // namespace tools

#endif  // TOOLS_RUN_LOGS_RUN_H_
