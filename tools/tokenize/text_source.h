// Text files in pieces of bounded size.
#ifndef TOOLS_TOKENIZE_TEXT_SOURCE_H_
#define TOOLS_TOKENIZE_TEXT_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

enum class TextFormat { kText, kJsonLines };

struct Input {
  std::string path;  // "-": standard input
  TextFormat format;
  // Whether the user said the format. If not, text that begins as JSON or holds zero bytes is
  // refused: it would become training text with all its syntax.
  bool format_given = true;
};

// What the name says, whatever its case: lines of JSON if it ends in .jsonl or .ndjson, else text.
TextFormat FormatOfName(absl::string_view path);

struct TextSourceOptions {
  // Text files: documents are what stands between these strings, which belong to none; a file
  // that ends with one has no document after it. Empty: a file is a document.
  std::string split_on = "";
  int64_t chunk_bytes = 1 << 20;  // about as much is read at once
  // The longest line of JSONL, and the longest stretch of other text that cannot be cut.
  int64_t max_line_bytes = 16 << 20;
};

// A piece of an input.
struct Chunk {
  // The next part of a document, chunk.bytes[begin, end).
  struct Part {
    size_t begin, end;
    bool new_document;
  };

  size_t input = 0;         // its number
  int64_t offset = 0;       // where it begins in the input
  std::string bytes;        // JSONL: whole lines
  std::vector<Part> parts;  // of text; none in JSONL
};

// Reads the inputs one after the other. Holds about chunk_bytes, or max_line_bytes where lines are
// so long.
class TextSource {
 public:
  TextSource(std::vector<Input> inputs, TextSourceOptions options);
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;
  ~TextSource();

  // OK if each input is a file that can be opened and does not begin as what Next() refuses; to be
  // called before a long run. Of what is no regular file the beginning is not read.
  absl::Status CheckInputs() const;

  // The next chunk; false at the end of the last input. A document's text is cut only where the
  // pieces of GPT-2's pre-tokenizer end, between two well-formed characters. NotFound,
  // InvalidArgument: an input that cannot be read, is compressed or no UTF-8 at all (UTF-16), has
  // too long a line, or is no text as far as Input::format_given tells. Cancelled: interrupted
  // (tools/trainer/interrupt.h).
  absl::StatusOr<bool> Next(Chunk* chunk);

  // The sum of the sizes of all inputs; -1 if one is not a regular file.
  int64_t TotalBytes() const;

 private:
  absl::Status OpenNext();
  absl::Status ReadMore();
  absl::Status TooLong() const;
  absl::StatusOr<size_t> CutLines();
  absl::StatusOr<size_t> CutText(std::vector<Chunk::Part>* parts);
  void CutAtSeparators(size_t* position, std::vector<Chunk::Part>* parts);
  const std::string& path() const { return inputs_[input_].path; }

  const std::vector<Input> inputs_;
  const TextSourceOptions options_;

  size_t input_ = 0;
  int fd_ = -1;  // of the input, -1: not open
  int64_t offset_ = 0;
  bool at_end_ = false;
  std::string pending_;  // read, and not in a chunk yet
  bool new_document_ = true;
  bool any_document_ = false;  // in this input
};

}  // namespace tools

#endif  // TOOLS_TOKENIZE_TEXT_SOURCE_H_
