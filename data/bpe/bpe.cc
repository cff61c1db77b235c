#include "data/bpe/bpe.h"

#include <cstddef>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "data/bpe/pretokenizer.h"
#include "data/bpe/vocabulary.h"

namespace data {
namespace {

constexpr char kEndOfTextText[] = "<|endoftext|>";
constexpr size_t kMaxFileBytes = 16 << 20;  // GPT-2's have less than 1 MiB
constexpr size_t kReadBytes = 64 << 10;     // at once

using IdOfBytes = absl::flat_hash_map<std::string, uint16_t>;

IdOfBytes Invert(const std::vector<std::string>& bytes_of_id) {
  IdOfBytes id_of_bytes;
  id_of_bytes.reserve(bytes_of_id.size());
  for (size_t id = 0; id < bytes_of_id.size(); ++id) {
    id_of_bytes.emplace(bytes_of_id[id], static_cast<uint16_t>(id));
  }
  return id_of_bytes;
}

// Each way to cut a token into two tokens is a pair that merges into it.
PairTable IndexPairs(const std::vector<std::string>& bytes_of_id, const IdOfBytes& id_of_bytes) {
  struct Pair {
    uint16_t left, right, merged;
  };
  std::vector<Pair> pairs;
  for (size_t id = 0; id < bytes_of_id.size(); ++id) {
    const absl::string_view bytes = bytes_of_id[id];
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = id_of_bytes.find(bytes.substr(0, cut));
      if (left == id_of_bytes.end()) continue;
      const auto right = id_of_bytes.find(bytes.substr(cut));
      if (right == id_of_bytes.end()) continue;
      pairs.push_back({left->second, right->second, static_cast<uint16_t>(id)});
    }
  }
  PairTable table(pairs.size());
  for (const Pair& pair : pairs) table.Insert(pair.left, pair.right, pair.merged);
  return table;
}

}  // namespace

Bpe::Bpe(std::vector<std::string> bytes_of_id)
    : bytes_of_id_(std::move(bytes_of_id)),
      id_of_bytes_(Invert(bytes_of_id_)),
      pairs_(IndexPairs(bytes_of_id_, id_of_bytes_)) {}

absl::StatusOr<Bpe> Bpe::Load(const std::string& path) {
  constexpr char kRemedy[] = "; give GPT-2's vocab.bpe (merges.txt) or gpt2.tiktoken";
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot open", kRemedy));
  std::string contents;
  while (file && contents.size() <= kMaxFileBytes) {
    const size_t before = contents.size();
    contents.resize(before + kReadBytes);
    file.read(contents.data() + before, kReadBytes);
    contents.resize(before + static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot read", kRemedy));
  if (contents.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": more than ", kMaxFileBytes, " bytes, not a vocabulary", kRemedy));
  }
  absl::StatusOr<std::vector<std::string>> tokens = ParseVocabulary(contents);
  if (!tokens.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":", tokens.status().message(), kRemedy));
  }
  return Bpe(*std::move(tokens));
}

void Bpe::AppendPiece(absl::string_view piece, Merger* merger, std::vector<uint16_t>* ids) const {
  const auto whole = id_of_bytes_.find(piece);
  if (whole != id_of_bytes_.end()) {
    ids->push_back(whole->second);
  } else {
    merger->Append(piece, ids);
  }
}

std::vector<uint16_t> Bpe::Encode(absl::string_view text) const {
  std::vector<uint16_t> ids;
  Merger merger(&pairs_);
  for (size_t begin = 0; begin < text.size();) {
    const size_t length = PieceLength(text, begin);
    AppendPiece(text.substr(begin, length), &merger, &ids);
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
