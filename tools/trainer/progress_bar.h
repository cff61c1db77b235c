// A progress bar on standard error, only when that is a terminal.
#ifndef TOOLS_TRAINER_PROGRESS_BAR_H_
#define TOOLS_TRAINER_PROGRESS_BAR_H_

#include <cstdint>
#include <string>

namespace tools {

// "[=====>      ] 42/120  loss 3.214  5,120 tok/s  0:18 left"
std::string ProgressText(int64_t step, int64_t total, double loss, double tokens_per_s,
                         double seconds_left);

class ProgressBar {
 public:
  // Draws nothing unless standard error is a terminal.
  explicit ProgressBar(int64_t total_steps);
  ~ProgressBar();
  // After step `step` (1-based).
  void Update(int64_t step, double loss, double tokens_per_s, double seconds_left);
  // Removes the bar, so that a log line can be printed.
  void Clear();

 private:
  const int64_t total_steps_;
  const bool terminal_;
  bool drawn_ = false;
};

}  // namespace tools

#endif  // TOOLS_TRAINER_PROGRESS_BAR_H_
