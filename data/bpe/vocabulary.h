// The files that GPT-2's vocabulary comes in.
#ifndef DATA_BPE_VOCABULARY_H_
#define DATA_BPE_VOCABULARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace data {

// The bytes of each token, by id: first the 256 single bytes (byte_tokens.h), then at least one and
// at most 50,000 longer ones, each of other bytes than all before.
//
// `contents` is, whichever it looks like,
//   - vocab.bpe, also called merges.txt: a line "#version: ...", then for each token, in the order
//     of ids, a line "left right" of two tokens above it, or
//   - a tiktoken file (gpt2.tiktoken, r50k_base.tiktoken): for each token, in any order, a line of
//     its bytes in base64, a space and its id. Ids leave no gap, and end before 50256.
//
// InvalidArgument begins with the number of the line: "3: not two words ...".
absl::StatusOr<std::vector<std::string>> ParseVocabulary(absl::string_view contents);

}  // namespace data

#endif  // DATA_BPE_VOCABULARY_H_
