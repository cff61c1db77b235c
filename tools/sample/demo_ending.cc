#include "tools/sample/demo_ending.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/bpe/byte_tokens.h"
#include "data/shard.h"
#include "data/unigram.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/sample/generate.h"
#include "tools/sample/whole_context.h"
#include "tools/trainer/interrupt.h"

namespace tools {
namespace {

constexpr int64_t kContextTokens = 160;
constexpr double kTemperature = 0.8;

// On one line: line ends and tabs become spaces, other control bytes a question mark.
std::string OneLine(const std::vector<int32_t>& tokens) {
  std::string text;
  for (int32_t token : tokens) {
    const unsigned char byte = data::kByteOfToken[token];
    if (byte == '\n' || byte == '\t') {
      text += ' ';
    } else {
      text += byte < 0x20 || byte >= 0x7F ? '?' : static_cast<char>(byte);
    }
  }
  return text;
}

}  // namespace

absl::Status LogDemoEnding(const TrainConfig& config, const TrainedModel& trained, int lines,
                           RunLog& log) {
  ABSL_ASSIGN_OR_RETURN(const data::Shard shard, data::Shard::Open(config.train_files.front()));
  log.Text(absl::StrFormat(
      "validation loss %.4f nats a token; ln(vocabulary) %.4f, unigram entropy of the corpus %.4f",
      trained.val_loss, std::log(static_cast<double>(config.recipe.model.vocab_size)),
      data::UnigramEntropy(shard)));
  if (config.token_map.is_identity()) {
    log.Text("these shards hold GPT-2 tokens: //tools/sample with --merges turns them into text");
    return absl::OkStatus();
  }
  const ModelState state = StateAt(config.recipe.model, config.recipe.schedules,
                                   config.total_steps(), trained.parameters);
  // Not by way of the cache, which is the CPU's alone.
  ABSL_ASSIGN_OR_RETURN(
      const std::unique_ptr<WholeContext> model,
      WholeContext::Create(state, kContextTokens, trained.backend, trained.queue));
  for (int line = 0; line < lines; ++line) {
    if (Interrupted()) {
      return absl::CancelledError("interrupted while sampling; the training itself is complete");
    }
    const double temperature = line == 0 ? 0 : kTemperature;
    const GenerateOptions options = {.max_tokens = kContextTokens,
                                     .sampling = {.temperature = temperature},
                                     .seed = config.seed + line};
    ABSL_ASSIGN_OR_RETURN(
        const std::vector<int32_t> tokens,
        Generate(*model, {config.token_map.bos()}, config.token_map.bos(),
                 static_cast<int32_t>(config.token_map.vocab_size()), options, nullptr));
    log.Text(absl::StrCat("sample, temperature ", temperature, ": ", OneLine(tokens)));
  }
  return absl::OkStatus();
}

}  // namespace tools
