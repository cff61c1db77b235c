// How a demo ends: what the loss means, and a few lines of the model's own.
#ifndef TOOLS_SAMPLE_DEMO_ENDING_H_
#define TOOLS_SAMPLE_DEMO_ENDING_H_

#include "absl/status/status.h"
#include "tools/trainer/run_log.h"
#include "tools/trainer/train.h"
#include "tools/trainer/train_config.h"

namespace tools {

// Logs the validation loss beside ln(vocabulary) and the corpus' unigram entropy, then `lines`
// generated documents (the first greedy, the others at temperature 0.8). Shards of full GPT-2
// tokens need merges to become text: there the log says how to sample instead. Cancelled if a
// signal asked to stop before the last line.
absl::Status LogDemoEnding(const TrainConfig& config, const TrainedModel& trained, int lines,
                           RunLog& log);

}  // namespace tools

#endif  // TOOLS_SAMPLE_DEMO_ENDING_H_
