// What a run says: the reference's log lines on standard output, one JSON object a step in the
// metrics file, the same numbers in TensorBoard's.
//
//   step:250/1680 val_loss:4.1234 train_time:14532ms step_avg:58.13ms
//   step:251/1680 train_time:14590ms step_avg:58.13ms
#ifndef TOOLS_TRAINER_RUN_LOG_H_
#define TOOLS_TRAINER_RUN_LOG_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/trainer/event_file.h"

namespace tools {

// One training step, as the metrics file has it.
struct StepRecord {
  int64_t step = 0;  // updates done, the step itself included
  double loss = 0;   // mean over the step's tokens, nats
  double lr = 0;     // multiplier of all learning rates
  double momentum = 0;
  int64_t tokens = 0;  // trained on so far
  double step_ms = 0;
  double tokens_per_s = 0;
  int64_t window_tokens = 0;  // the long window
};

class RunLog {
 public:
  // `metrics_path` empty: no metrics file. `append`: a resumed run goes on in the same file.
  // `out` null: nothing is printed. `events` null: nothing for TensorBoard.
  static absl::StatusOr<std::unique_ptr<RunLog>> Create(
      const std::string& metrics_path, bool append, int64_t total_steps, std::FILE* out,
      std::unique_ptr<EventFile> events = nullptr);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // A line of free text at the head or end of the log.
  void Text(absl::string_view text);
  // Before the first Step and Validation: `first_step` updates are done, by a run before this one.
  void Begin(int64_t first_step);
  // `train_ms`: time spent in training so far, validation excluded.
  void Step(const StepRecord& record, double train_ms);
  // A step that was left out, and the `skipped` so far with it.
  void Skipped(int64_t step, absl::string_view why, int64_t skipped);
  void Validation(int64_t step, double val_loss, double train_ms);
  // Unavailable if one of the outputs could not be written in full. A run is worth more than its
  // log: when a line of `out` or of the metrics fails, standard error has a warning at once, and
  // the run goes on.
  absl::Status Close();

 private:
  struct Output {
    std::FILE* file;  // null: none
    std::string name;
    std::string error = "";  // the system's words when a line first failed

    void Line(absl::string_view text);
  };

  RunLog(std::FILE* metrics, std::string path, int64_t total_steps, std::FILE* out,
         std::unique_ptr<EventFile> events)
      : out_{out, "standard output"},
        metrics_{metrics, std::move(path)},
        total_steps_(total_steps),
        events_(std::move(events)) {}

  Output out_;
  Output metrics_;
  const int64_t total_steps_;
  const std::unique_ptr<EventFile> events_;  // null: none
};

}  // namespace tools

#endif  // TOOLS_TRAINER_RUN_LOG_H_
