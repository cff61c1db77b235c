// The tokens of a chunk of an input.
#ifndef TOOLS_TOKENIZE_CHUNK_ENCODER_H_
#define TOOLS_TOKENIZE_CHUNK_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "data/bpe/bpe.h"
#include "data/bpe/encoder.h"
#include "tools/tokenize/text_source.h"

namespace tools {

struct EncodeOptions {
  std::string field = "text";     // of JSONL
  bool replace_malformed = true;  // false: malformed UTF-8 is an error
  int64_t max_line_bytes = 16 << 20;
};

struct EncodedChunk {
  std::vector<uint16_t> tokens;  // end-of-text before each document
  int64_t documents = 0, empty_documents = 0;
  int64_t lines = 0, blank_lines = 0;  // of JSONL
  int64_t malformed = 0;               // sequences that were replaced (utf8.h)
  int64_t first_malformed = 0;         // the first one's position in the input
  int64_t written_marks = 0;  // "<|endoftext|>" in the texts; one that a chunk cuts is missed
  // Where it ended early: what is wrong, and in which line of the chunk (from 1; 0: the message
  // says where).
  absl::Status status;
  int64_t error_line = 0;
};

// Not for several threads at once: each has its own.
class ChunkEncoder {
 public:
  // `bpe` must outlive this.
  ChunkEncoder(const data::Bpe* bpe, EncodeOptions options);

  EncodedChunk Encode(const Chunk& chunk);

 private:
  void EncodeLines(const Chunk& chunk, EncodedChunk* encoded);
  absl::Status EncodeLine(absl::string_view line, int64_t offset, EncodedChunk* encoded);
  absl::Status EncodePart(absl::string_view text, int64_t offset, EncodedChunk* encoded);
  // Counts what is malformed; an error if that is one.
  absl::Status Check(absl::string_view text, int64_t offset, EncodedChunk* encoded) const;

  const EncodeOptions options_;
  data::BpeEncoder encoder_;
};

}  // namespace tools

#endif  // TOOLS_TOKENIZE_CHUNK_ENCODER_H_
