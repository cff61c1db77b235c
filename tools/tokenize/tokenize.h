// Text to token shards.
#ifndef TOOLS_TOKENIZE_TOKENIZE_H_
#define TOOLS_TOKENIZE_TOKENIZE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/bpe/bpe.h"
#include "tools/tokenize/chunk_encoder.h"
#include "tools/tokenize/shard_set.h"
#include "tools/tokenize/text_source.h"

namespace tools {

struct TokenizeConfig {
  std::vector<Input> inputs;
  TextSourceOptions source;
  EncodeOptions encode;
  ShardSetOptions shards;
  int threads = 1;
};

struct TokenizeSummary {
  int64_t bytes = 0;  // read
  int64_t tokens = 0;
  int64_t documents = 0, empty_documents = 0;
  int64_t blank_lines = 0;
  int64_t written_marks = 0;  // at least
  int64_t malformed = 0;
  std::string first_malformed;  // "FILE: byte 17"
  double seconds = 0;
  int threads = 1;
  std::vector<ShardSet::File> files;
  std::vector<std::string> removed;  // shards of an older run
};

// Writes the shards of all inputs' documents, in their order, each with end-of-text before it. The
// shards do not depend on the number of threads, nor on how the inputs are cut into chunks. Besides
// the vocabulary and 2 MiB a thread, memory is bounded by about 2 threads + 4 chunks with their
// tokens, up to three times TextSourceOptions::chunk_bytes each.
//
// `progress` is called after each chunk with what is written so far. An error names the input and
// the place in it, and leaves no shard.
absl::StatusOr<TokenizeSummary> Tokenize(
    const TokenizeConfig& config, const data::Bpe& bpe,
    const std::function<void(const TokenizeSummary&)>& progress);

// What is to be said at the end, for standard output.
std::string SummaryText(const TokenizeSummary& summary);
// What is to be noted about the input, a line each; empty if all is as usual.
std::string NotesText(const TokenizeSummary& summary);
// "[=====>    ]  41 %  12.3 MB/s  2.8 M tokens/s  0:18 left"; total_bytes is -1 if unknown.
std::string ProgressText(const TokenizeSummary& summary, int64_t total_bytes);

}  // namespace tools

#endif  // TOOLS_TOKENIZE_TOKENIZE_H_
