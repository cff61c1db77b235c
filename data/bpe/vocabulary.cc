#include "data/bpe/vocabulary.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "data/bpe/byte_tokens.h"
#include "third_party/absl_compat/status_macros.h"

namespace data {
namespace {

constexpr size_t kMaxTokens = 50256;  // that id is the end of a text

absl::Status ErrorAt(int64_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(line, ": ", what));
}

// Cuts the first line off `rest`. False at the end.
bool NextLine(absl::string_view* rest, absl::string_view* line) {
  if (rest->empty()) return false;
  const size_t end = std::min(rest->find('\n'), rest->size());
  *line = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return true;
}

// A line's two words. False unless exactly one space stands between them.
bool TwoWords(absl::string_view line, absl::string_view* first, absl::string_view* second) {
  const size_t space = line.find(' ');
  if (space == absl::string_view::npos || line.find(' ', space + 1) != absl::string_view::npos) {
    return false;
  }
  *first = line.substr(0, space);
  *second = line.substr(space + 1);
  return true;
}

// vocab.bpe writes a byte as a printable character: itself if it is printable Latin-1, else the
// next of U+0100, U+0101, ... This is the inverse; -1 for another character.
int ByteOfCharacter(char32_t character) {
  if (character >= 0x100) {
    const size_t token = 188 + (character - 0x100);  // 188 bytes are printable
    return token < kByteTokens ? kByteOfToken[token] : -1;
  }
  return internal::IsPrintableLatin1(static_cast<int>(character)) ? static_cast<int>(character)
                                                                  : -1;
}

// The bytes that a word of vocab.bpe stands for. All its characters are below U+0800, one or two
// bytes of UTF-8.
absl::StatusOr<std::string> BytesOfWord(absl::string_view word) {
  std::string bytes;
  for (size_t i = 0; i < word.size(); ++i) {
    char32_t character = static_cast<uint8_t>(word[i]);
    if ((character & 0xE0) == 0xC0 && i + 1 < word.size() &&
        (static_cast<uint8_t>(word[i + 1]) & 0xC0) == 0x80) {
      character = (character & 0x1F) << 6 | (static_cast<uint8_t>(word[++i]) & 0x3F);
    } else if (character >= 0x80) {
      character = 0;  // stands for no byte
    }
    const int byte = ByteOfCharacter(character);
    if (byte < 0) {
      return absl::InvalidArgumentError(absl::StrCat("\"", absl::Utf8SafeCEscape(word),
                                                     "\" has a character that stands for no byte"));
    }
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

std::vector<std::string> SingleBytes() {
  std::vector<std::string> tokens;
  for (const uint8_t byte : kByteOfToken) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

using IdOfBytes = absl::flat_hash_map<std::string, size_t>;

absl::Status AddMerge(absl::string_view line, std::vector<std::string>* tokens,
                      IdOfBytes* id_of_bytes) {
  absl::string_view left, right;
  if (!TwoWords(line, &left, &right)) {
    return absl::InvalidArgumentError("not two words with one space between them");
  }
  if (tokens->size() == kMaxTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMaxTokens - kByteTokens, " merges"));
  }
  std::string both;
  for (const absl::string_view word : {left, right}) {
    ABSL_ASSIGN_OR_RETURN(const std::string bytes, BytesOfWord(word));
    if (!id_of_bytes->contains(bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", word, "\" is neither a byte nor the result of a merge above"));
    }
    both += bytes;
  }
  if (!id_of_bytes->emplace(both, tokens->size()).second) {
    return absl::InvalidArgumentError("gives a token that a line above gave already");
  }
  tokens->push_back(std::move(both));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ParseMerges(absl::string_view rest) {
  std::vector<std::string> tokens = SingleBytes();
  IdOfBytes id_of_bytes;
  for (size_t id = 0; id < tokens.size(); ++id) id_of_bytes[tokens[id]] = id;
  absl::string_view line;
  NextLine(&rest, &line);  // "#version"
  int64_t number = 1;
  while (NextLine(&rest, &line)) {
    const absl::Status status = AddMerge(line, &tokens, &id_of_bytes);
    if (!status.ok()) return ErrorAt(number + 1, status.message());
    ++number;
  }
  if (tokens.size() == kByteTokens) return ErrorAt(number, "has no merges");
  return tokens;
}

// The id that a tiktoken line gives to its bytes.
absl::StatusOr<size_t> ParseRank(absl::string_view line, std::string* bytes) {
  absl::string_view base64, rank;
  uint64_t id = 0;
  // SimpleAtoi takes white space and signs as well.
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!TwoWords(line, &base64, &rank) || !std::all_of(rank.begin(), rank.end(), is_digit) ||
      !absl::SimpleAtoi(rank, &id) || !absl::Base64Unescape(base64, bytes) || bytes->empty()) {
    return absl::InvalidArgumentError("not a token's bytes in base64, a space and its id");
  }
  if (id >= kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat("id ", id, " is not below ", kMaxTokens,
                                                   ": another model's vocabulary, not GPT-2's"));
  }
  if (id < kByteTokens && *bytes != std::string(1, static_cast<char>(kByteOfToken[id]))) {
    return absl::InvalidArgumentError(
        absl::StrCat("id ", id, " is not the single byte that it is in GPT-2's vocabulary"));
  }
  return id;
}

absl::StatusOr<std::vector<std::string>> ParseTiktoken(absl::string_view rest) {
  std::vector<std::string> tokens;
  IdOfBytes id_of_bytes;
  absl::string_view line;
  int64_t number = 1;
  for (; NextLine(&rest, &line); ++number) {
    std::string bytes;
    const absl::StatusOr<size_t> id = ParseRank(line, &bytes);
    if (!id.ok()) return ErrorAt(number, id.status().message());
    if (*id >= tokens.size()) tokens.resize(*id + 1);
    if (!tokens[*id].empty()) return ErrorAt(number, absl::StrCat("id ", *id, " comes twice"));
    if (!id_of_bytes.emplace(bytes, *id).second) {
      return ErrorAt(number, "gives an id to bytes that a line above gave one already");
    }
    tokens[*id] = std::move(bytes);
  }
  const auto gap = std::find(tokens.begin(), tokens.end(), "");
  if (gap != tokens.end()) {
    return ErrorAt(number - 1, absl::StrCat("the file ends, and no line gave the id ",
                                            gap - tokens.begin(), ": it is cut or damaged"));
  }
  if (tokens.size() <= kByteTokens) {
    return ErrorAt(number - 1, absl::StrCat("the file ends after ", tokens.size(),
                                            " ids; more than ", kByteTokens, " are needed"));
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseVocabulary(absl::string_view contents) {
  if (absl::StartsWith(contents, "#version")) return ParseMerges(contents);
  absl::string_view rest = contents, line;
  std::string bytes;
  if (NextLine(&rest, &line) && ParseRank(line, &bytes).ok()) return ParseTiktoken(contents);
  if (absl::StartsWith(contents, "{")) {
    return ErrorAt(1, "is JSON, which does not say in which order tokens are merged");
  }
  return ErrorAt(1, "begins neither with \"#version\" nor with a token in base64 and its id");
}

}  // namespace data
