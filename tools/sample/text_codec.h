// Text to a saved model's tokens and back.
#ifndef TOOLS_SAMPLE_TEXT_CODEC_H_
#define TOOLS_SAMPLE_TEXT_CODEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/bpe/bpe.h"
#include "data/token_map.h"

namespace tools {

class TextCodec {
 public:
  // A model of GPT-2's tokens needs the merges file, `merges` or, if that is empty,
  // DefaultMergesPath(); a model of single bytes needs none. NotFound says how to get it.
  static absl::StatusOr<TextCodec> Create(const data::TokenMap& map, const std::string& merges);

  int32_t bos() const { return map_.bos(); }  // begins every document, and ends it
  int32_t classes() const { return static_cast<int32_t>(map_.vocab_size()); }
  // Without bos(). "<|endoftext|>" is text like any other, as in training data.
  std::vector<int32_t> Encode(absl::string_view text) const;
  // The bytes of one token, any part of a character. InvalidArgument for an id that the merges have
  // not.
  absl::StatusOr<std::string> Decode(int32_t token) const;

 private:
  explicit TextCodec(const data::TokenMap& map) : map_(map) {}

  data::TokenMap map_;
  std::optional<data::Bpe> bpe_;
};

// What to tell whoever wrote "<|endoftext|>" in a prompt and may have meant the token; empty if it
// is not in there.
std::string EndOfTextNote(absl::string_view prompt, const TextCodec& codec);

}  // namespace tools

#endif  // TOOLS_SAMPLE_TEXT_CODEC_H_
