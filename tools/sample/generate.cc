#include "tools/sample/generate.h"

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

absl::Status CheckPrompt(const TextModel& model, const std::vector<int32_t>& prompt,
                         int32_t classes, const GenerateOptions& options) {
  const auto size = static_cast<int64_t>(prompt.size());
  if (prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens: give one");
  // The last token drawn is not read.
  if (options.max_tokens < 1 || size + options.max_tokens - 1 > model.context_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", size, " tokens and --max_tokens=", options.max_tokens,
                     ": at least one more, and with the prompt at most ",
                     model.context_tokens() + 1, " fit into the model's context"));
  }
  for (int64_t i = 0; i < size; ++i) {
    if (prompt[i] < 0 || prompt[i] >= classes) {
      return absl::InvalidArgumentError(absl::StrCat("token ", i, " of the prompt is ", prompt[i],
                                                     ": the model has ids 0 to ", classes - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> Generate(TextModel& model, const std::vector<int32_t>& prompt,
                                              int32_t stop, int32_t classes,
                                              const GenerateOptions& options,
                                              const std::function<void(int32_t)>& on_token) {
  ABSL_RETURN_IF_ERROR(Validate(options.sampling));
  ABSL_RETURN_IF_ERROR(CheckPrompt(model, prompt, classes, options));
  std::mt19937_64 random(options.seed);
  std::vector<int32_t> context = prompt;
  while (static_cast<int64_t>(context.size() - prompt.size()) < options.max_tokens) {
    std::vector<float> logits = model.Logits(context);
    logits.resize(classes);
    for (int32_t i = 0; i < classes; ++i) {
      if (!std::isfinite(logits[i])) {
        return absl::InternalError(absl::StrCat("after ", context.size(), " tokens the logit of ",
                                                i, " is ", logits[i],
                                                ": are the weights those of a finished step?"));
      }
    }
    // 53 random bits, so that the draw does not depend on the library's distributions.
    const double uniform = static_cast<double>(random() >> 11) * 0x1.0p-53;
    const int32_t token = Draw(Candidates(logits, options.sampling), uniform);
    if (token == stop) break;
    context.push_back(token);
    if (on_token) on_token(token);
  }
  return std::vector<int32_t>(context.begin() + prompt.size(), context.end());
}

}  // namespace tools
