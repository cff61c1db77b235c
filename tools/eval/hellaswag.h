// HellaSwag (Zellers et al., 2019): which of four endings of a text does a model find likeliest?
#ifndef TOOLS_EVAL_HELLASWAG_H_
#define TOOLS_EVAL_HELLASWAG_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sample/text_codec.h"
#include "tools/sample/text_model.h"

namespace tools {

inline constexpr int kEndings = 4;

struct HellaSwagExample {
  int64_t line = 0;  // of the file, from 1
  std::string context;
  std::array<std::string, kEndings> endings;
  int label = 0;  // the right one
};

// Reads the first `limit` examples, or all for 0, one a line: a JSON object with the fields "ctx"
// (text), "endings" (4 texts) and "label" (0 to 3, a number or a text); others are not read. A byte
// order mark at the beginning and blank lines at the end are passed over. NotFound;
// InvalidArgument, with file and line, for a line that is no such object or has an empty text, and
// for a file without such lines.
absl::StatusOr<std::vector<HellaSwagExample>> ReadHellaSwag(const std::string& path, int64_t limit);

// Completion style, as build-nanogpt and llm.c have it: the tokens of the context and, apart from
// them, those of " " + ending. An ending's loss are the nats of its tokens, each given all before.
struct HellaSwagTokens {
  std::vector<int32_t> context;
  std::array<std::vector<int32_t>, kEndings> endings;
  std::array<int64_t, kEndings> characters;  // of the endings, without the space
};
// With `bos` the context begins with a document's first token, as all that the model was trained on
// did; the evaluations of GPT-2 have none.
HellaSwagTokens Tokenize(const HellaSwagExample& example, const TextCodec& codec, bool bos);
// Tokens that a model reads for it: the longest ending's last is not read.
int64_t ContextTokens(const HellaSwagTokens& tokens);

struct EndingLosses {
  std::array<double, kEndings> sum;  // nats
  std::array<int64_t, kEndings> tokens;
  std::array<int64_t, kEndings> characters;
};
// The endings one after the other, so that a model that keeps keys and values reads the context
// once. Sums in float64, in the tokens' order.
EndingLosses ScoreEndings(TextModel& model, const HellaSwagTokens& tokens);

// The first ending of the least loss: in all (`acc` of the common evaluations), a token (`acc_norm`
// of build-nanogpt and llm.c), or a character of the ending (that of lm-evaluation-harness, which
// also puts the context together in another way).
int LeastLoss(const EndingLosses& losses);
int LeastLossPerToken(const EndingLosses& losses);
int LeastLossPerCharacter(const EndingLosses& losses);

struct HellaSwagScore {
  int64_t examples = 0;
  int64_t right = 0, right_per_token = 0, right_per_character = 0;
  void Add(const EndingLosses& losses, int label);
  double Accuracy(int64_t count) const { return static_cast<double>(count) / examples; }
};

}  // namespace tools

#endif  // TOOLS_EVAL_HELLASWAG_H_
