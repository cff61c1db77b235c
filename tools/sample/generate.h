// Text from a model, token by token.
#ifndef TOOLS_SAMPLE_GENERATE_H_
#define TOOLS_SAMPLE_GENERATE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sample/sampling.h"
#include "tools/sample/text_model.h"

namespace tools {

struct GenerateOptions {
  int64_t max_tokens = 100;
  SamplingOptions sampling = {};
  uint64_t seed = 0;
};

// Continues `prompt` until `stop` is drawn, which is not returned, or until there are max_tokens
// new ones. Only ids below `classes` are drawn: the padding of the vocabulary has no text.
// `on_token`, if not empty, is called with each token as it is drawn. InvalidArgument: an empty
// prompt, one that leaves no room in the model's context for max_tokens, an id that is no class,
// options that Validate(SamplingOptions) refuses. Internal: the model's logits are not finite.
absl::StatusOr<std::vector<int32_t>> Generate(TextModel& model, const std::vector<int32_t>& prompt,
                                              int32_t stop, int32_t classes,
                                              const GenerateOptions& options,
                                              const std::function<void(int32_t)>& on_token);

}  // namespace tools

#endif  // TOOLS_SAMPLE_GENERATE_H_
