#include "data/bpe/bpe.h"

#include <array>
#include <cstddef>
#include <fstream>
#include <functional>
#include <queue>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/bpe/byte_tokens.h"
#include "data/bpe/pretokenizer.h"

namespace data {
namespace {

constexpr int kMaxMerges = Bpe::kEndOfText - kByteTokens;
constexpr char kEndOfTextText[] = "<|endoftext|>";

// The file writes a byte as a printable character: itself if it is printable Latin-1, else the
// next of U+0100, U+0101, ... This is the inverse; -1 for another character.
int ByteOfCharacter(char32_t character) {
  if (character >= 0x100) {
    const size_t token = 188 + (character - 0x100);  // 188 bytes are printable
    return token < kByteTokens ? kByteOfToken[token] : -1;
  }
  return internal::IsPrintableLatin1(static_cast<int>(character)) ? static_cast<int>(character)
                                                                  : -1;
}

// The bytes that a word of the file stands for. All its characters are below U+0800, one or two
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
      return absl::InvalidArgumentError(
          absl::StrCat("\"", word, "\" has a character that stands for no byte"));
    }
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

// A symbol of a piece that is being merged; a linked list through positions in the piece. The
// symbol that was merged into its left neighbour has `id` kDead.
struct Symbol {
  uint32_t id;
  int64_t previous, next;  // -1 at the ends
};
constexpr uint32_t kDead = UINT32_MAX - 1;

struct Candidate {
  uint32_t merged;  // the token that symbols[left] and its right neighbour would become
  int64_t left;
  uint32_t left_id, right_id;  // as they were when this was pushed; stale if they changed

  bool operator>(const Candidate& other) const {
    return merged != other.merged ? merged > other.merged : left > other.left;
  }
};

}  // namespace

Bpe::Bpe() {
  for (int id = 0; id < kByteTokens; ++id) {
    bytes_of_id_.push_back(std::string(1, static_cast<char>(kByteOfToken[id])));
    id_of_bytes_[bytes_of_id_.back()] = id;
  }
}

absl::Status Bpe::AddMerge(absl::string_view line) {
  const size_t space = line.find(' ');
  if (space == absl::string_view::npos || line.find(' ', space + 1) != absl::string_view::npos) {
    return absl::InvalidArgumentError("not two words with one space between them");
  }
  if (merges() == kMaxMerges) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxMerges, " merges"));
  }
  std::string both;
  for (const absl::string_view word : {line.substr(0, space), line.substr(space + 1)}) {
    const absl::StatusOr<std::string> bytes = BytesOfWord(word);
    if (!bytes.ok()) return bytes.status();
    if (!id_of_bytes_.contains(*bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", word, "\" is neither a byte nor the result of a merge above"));
    }
    both += *bytes;
  }
  if (!id_of_bytes_.emplace(both, bytes_of_id_.size()).second) {
    return absl::InvalidArgumentError("gives a token that a line above gave already");
  }
  bytes_of_id_.push_back(both);
  return absl::OkStatus();
}

// Each way to cut a token into two tokens is a pair that merges into it.
void Bpe::IndexPairs() {
  for (uint32_t id = kByteTokens; id < bytes_of_id_.size(); ++id) {
    const std::string& bytes = bytes_of_id_[id];
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = id_of_bytes_.find(absl::string_view(bytes).substr(0, cut));
      if (left == id_of_bytes_.end()) continue;
      const auto right = id_of_bytes_.find(absl::string_view(bytes).substr(cut));
      if (right == id_of_bytes_.end()) continue;
      merged_[left->second << 16 | right->second] = id;
    }
  }
}

absl::StatusOr<Bpe> Bpe::Load(const std::string& merges_path) {
  constexpr char kRemedy[] = "; give GPT-2's vocab.bpe (merges.txt)";
  std::ifstream file(merges_path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(merges_path, ": cannot open", kRemedy));
  std::string line;
  if (!std::getline(file, line) || !absl::StartsWith(line, "#version")) {
    return absl::InvalidArgumentError(
        absl::StrCat(merges_path, ":1: does not begin with \"#version\"", kRemedy));
  }
  Bpe bpe;
  for (int number = 2; std::getline(file, line); ++number) {
    const absl::Status status = bpe.AddMerge(line);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(merges_path, ":", number, ": ", status.message(), kRemedy));
    }
  }
  if (bpe.merges() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(merges_path, ": has no merges", kRemedy));
  }
  bpe.IndexPairs();
  return bpe;
}

uint32_t Bpe::Merged(uint32_t left, uint32_t right) const {
  const auto found = merged_.find(left << 16 | right);
  return found == merged_.end() ? kNone : found->second;
}

void Bpe::EncodePiece(absl::string_view piece, std::vector<uint16_t>* ids) const {
  const auto whole = id_of_bytes_.find(piece);
  if (whole != id_of_bytes_.end()) {
    ids->push_back(static_cast<uint16_t>(whole->second));
    return;
  }
  const int64_t size = static_cast<int64_t>(piece.size());
  std::vector<Symbol> symbols(size);
  for (int64_t i = 0; i < size; ++i) {
    symbols[i] = {kTokenOfByte[static_cast<uint8_t>(piece[i])], i - 1, i + 1 < size ? i + 1 : -1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<Candidate>> candidates;
  const auto push = [&](int64_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const uint32_t right_id = symbols[symbols[left].next].id;
    const uint32_t merged = Merged(symbols[left].id, right_id);
    if (merged != kNone) candidates.push({merged, left, symbols[left].id, right_id});
  };
  for (int64_t i = 0; i + 1 < size; ++i) push(i);

  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (right.id != best.right_id) continue;
    left.id = best.merged;
    left.next = right.next;
    right.id = kDead;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    push(left.previous);
    push(best.left);
  }
  for (int64_t i = 0; i >= 0; i = symbols[i].next) {
    ids->push_back(static_cast<uint16_t>(symbols[i].id));
  }
}

std::vector<uint16_t> Bpe::Encode(absl::string_view text) const {
  std::vector<uint16_t> ids;
  for (size_t begin = 0; begin < text.size();) {
    const size_t length = PieceLength(text, begin);
    EncodePiece(text.substr(begin, length), &ids);
    begin += length;
  }
  return ids;
}

absl::StatusOr<std::string> Bpe::Decode(absl::Span<const uint16_t> ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kEndOfText) {
      text += kEndOfTextText;
    } else if (ids[i] < bytes_of_id_.size()) {
      text += bytes_of_id_[ids[i]];
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", ids[i], " at position ", i, " is not in the vocabulary of ",
                       bytes_of_id_.size(), " tokens and ", kEndOfText,
                       "; decode with the merges that the text was encoded with"));
    }
  }
  return text;
}

}  // namespace data
