// The tokenizer of an exported model, for transformers' AutoTokenizer.
#ifndef TOOLS_EXPORT_HF_TOKENIZER_FILES_H_
#define TOOLS_EXPORT_HF_TOKENIZER_FILES_H_

#include <string>

#include "absl/status/statusor.h"

namespace tools {

// tokenizer.json, the format of the library tokenizers: byte-level BPE, with <|endoftext|> put in
// front of each text, as the models expect it.
//
// GPT-2's, from its merges file: id 50256 is <|endoftext|>. NotFound or InvalidArgument for a file
// that is not GPT-2's 50,000 merges.
absl::StatusOr<std::string> Gpt2TokenizerJson(const std::string& merges_path);
// GPT-2's 256 tokens of single bytes and <|endoftext|> as 256, for models of the built-in corpus.
std::string ByteTokenizerJson();

// tokenizer_config.json of either.
std::string TokenizerConfigJson();

}  // namespace tools

#endif  // TOOLS_EXPORT_HF_TOKENIZER_FILES_H_
