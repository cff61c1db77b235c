#include "tools/tokenize/chunk_encoder.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/tokenize/json_line.h"
#include "tools/tokenize/utf8.h"

namespace tools {
namespace {

constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr absl::string_view kEndOfText = "<|endoftext|>";

void BeginDocument(bool empty, EncodedChunk* encoded) {
  encoded->tokens.push_back(data::Bpe::kEndOfText);
  ++encoded->documents;
  encoded->empty_documents += empty;
}

void CountMarks(absl::string_view text, EncodedChunk* encoded) {
  for (size_t at = text.find(kEndOfText); at != absl::string_view::npos;
       at = text.find(kEndOfText, at + kEndOfText.size())) {
    ++encoded->written_marks;
  }
}

}  // namespace

ChunkEncoder::ChunkEncoder(const data::Bpe* bpe, EncodeOptions options)
    : options_(std::move(options)), encoder_(bpe) {}

absl::Status ChunkEncoder::Check(absl::string_view text, int64_t offset,
                                 EncodedChunk* encoded) const {
  const Malformed malformed = FindMalformed(text);
  if (malformed.sequences == 0) return absl::OkStatus();
  const int64_t first = offset + static_cast<int64_t>(malformed.first);
  if (!options_.replace_malformed) {
    return absl::InvalidArgumentError(
        absl::StrCat("byte ", first, ": 0x",
                     absl::Hex(static_cast<uint8_t>(text[malformed.first]), absl::kZeroPad2),
                     " begins no UTF-8; recode the text, or give --invalid_utf8=replace"));
  }
  if (encoded->malformed == 0) encoded->first_malformed = first;
  encoded->malformed += malformed.sequences;
  return absl::OkStatus();
}

absl::Status ChunkEncoder::EncodePart(absl::string_view text, int64_t offset,
                                      EncodedChunk* encoded) {
  const int64_t before = encoded->malformed;
  ABSL_RETURN_IF_ERROR(Check(text, offset, encoded));
  CountMarks(text, encoded);
  if (encoded->malformed == before) {
    encoder_.Append(text, &encoded->tokens);
  } else {
    encoder_.Append(ReplaceMalformed(text), &encoded->tokens);
  }
  return absl::OkStatus();
}

// The line is decoded before its JSON is read, as by Python's open(..., errors="replace").
absl::Status ChunkEncoder::EncodeLine(absl::string_view line, int64_t offset,
                                      EncodedChunk* encoded) {
  if (static_cast<int64_t>(line.size()) > options_.max_line_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the line has ", line.size(),
                                                   " bytes, more than ", options_.max_line_bytes,
                                                   "; if that is meant, raise --max_line_mib"));
  }
  if (absl::StartsWith(line, kByteOrderMark)) {
    return absl::InvalidArgumentError(
        "the line begins with a byte order mark (EF BB BF), which only a file may; take it out");
  }
  const int64_t before = encoded->malformed;
  ABSL_RETURN_IF_ERROR(Check(line, offset, encoded));
  ABSL_ASSIGN_OR_RETURN(const std::string text,
                        encoded->malformed == before
                            ? StringField(line, options_.field)
                            : StringField(ReplaceMalformed(line), options_.field));
  BeginDocument(text.empty(), encoded);
  CountMarks(text, encoded);
  encoder_.Append(text, &encoded->tokens);
  return absl::OkStatus();
}

void ChunkEncoder::EncodeLines(const Chunk& chunk, EncodedChunk* encoded) {
  const absl::string_view bytes = chunk.bytes;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    absl::string_view line = bytes.substr(begin, end - begin);
    ++encoded->lines;
    // One at the input's beginning belongs to no line.
    if (chunk.offset == 0 && begin == 0) absl::ConsumePrefix(&line, kByteOrderMark);
    if (absl::StripAsciiWhitespace(line).empty()) {
      ++encoded->blank_lines;
    } else {
      const int64_t offset = chunk.offset + (line.data() - bytes.data());
      encoded->status = EncodeLine(line, offset, encoded);
      if (!encoded->status.ok()) {
        encoded->error_line = encoded->lines;
        return;
      }
    }
    begin = end + 1;
  }
}

EncodedChunk ChunkEncoder::Encode(const Chunk& chunk) {
  EncodedChunk encoded;
  encoded.tokens.reserve(chunk.bytes.size() / 3);  // English has about 4.4 bytes a token
  if (chunk.parts.empty()) EncodeLines(chunk, &encoded);
  for (const Chunk::Part& part : chunk.parts) {
    const absl::string_view text =
        absl::string_view(chunk.bytes).substr(part.begin, part.end - part.begin);
    if (part.new_document) BeginDocument(text.empty(), &encoded);
    encoded.status = EncodePart(text, chunk.offset + static_cast<int64_t>(part.begin), &encoded);
    if (!encoded.status.ok()) break;
  }
  return encoded;
}

}  // namespace tools
