#include "data/bpe/encoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "data/bpe/pretokenizer.h"

namespace data {
namespace {

// Pieces are cut this many ahead of the search for their ids, so that the sets are fetched from
// memory while the next ones are cut.
constexpr size_t kAhead = 32;

constexpr uint64_t LowBytes(size_t count) {
  return count >= 8 ? UINT64_MAX : (uint64_t{1} << 8 * count) - 1;
}

}  // namespace

BpeEncoder::BpeEncoder(const Bpe* bpe)
    : bpe_(*bpe), merger_(&bpe->pairs()), sets_(size_t{1} << kLogSets) {}

BpeEncoder::Piece BpeEncoder::MakePiece(absl::string_view text, size_t begin) {
  const size_t length = PieceLength(text, begin);
  Piece piece = {text.substr(begin, length), {0, 0}, nullptr};
  if (length > kKeyBytes) return piece;
  if (text.size() - begin >= kKeyBytes) {
    std::memcpy(&piece.key, text.data() + begin, kKeyBytes);
    piece.key.low &= LowBytes(length);
    piece.key.high &= LowBytes(length > 8 ? length - 8 : 0);
  } else {
    std::memcpy(&piece.key, text.data() + begin, length);
  }
  // Two rounds of multiply and fold, as in wyhash: all bits of the key reach the high ones.
  constexpr uint64_t kFactor = 0xD6E8FEB86659FD93;
  uint64_t hash = (piece.key.low ^ (piece.key.high * 0x9E3779B97F4A7C15)) * kFactor;
  hash = (hash ^ (hash >> 32)) * kFactor;
  piece.set = &sets_[hash >> (64 - kLogSets)];
  __builtin_prefetch(piece.set);
  return piece;
}

void BpeEncoder::AppendNewPiece(const Piece& piece, std::vector<uint16_t>* ids) {
  const size_t before = ids->size();
  bpe_.AppendPiece(piece.bytes, &merger_, ids);
  const size_t count = ids->size() - before;
  if (piece.set == nullptr || count > kMaxIds) return;
  Entry* entries = piece.set->entries;
  entries[1] = entries[0];
  entries[0].key = piece.key;
  entries[0].length = static_cast<uint8_t>(piece.bytes.size());
  entries[0].count = static_cast<uint8_t>(count);
  std::copy(ids->end() - count, ids->end(), entries[0].ids);
}

void BpeEncoder::AppendPiece(const Piece& piece, std::vector<uint16_t>* ids) {
  if (piece.set == nullptr) return AppendNewPiece(piece, ids);
  Entry* entries = piece.set->entries;
  // The length tells "a" from "a\0".
  const auto is_piece = [&piece](const Entry& entry) {
    return entry.key == piece.key && entry.length == piece.bytes.size();
  };
  if (!is_piece(entries[0])) {
    if (!is_piece(entries[1])) return AppendNewPiece(piece, ids);
    std::swap(entries[0], entries[1]);
  }
  const size_t before = ids->size();
  ids->resize(before + kMaxIds);  // a copy of fixed size is faster
  std::memcpy(ids->data() + before, entries[0].ids, sizeof(entries[0].ids));
  ids->resize(before + entries[0].count);
}

void BpeEncoder::Append(absl::string_view text, std::vector<uint16_t>* ids) {
  std::array<Piece, kAhead> pieces;
  for (size_t begin = 0; begin < text.size();) {
    size_t count = 0;
    for (; count < kAhead && begin < text.size(); ++count) {
      pieces[count] = MakePiece(text, begin);
      begin += pieces[count].bytes.size();
    }
    for (size_t i = 0; i < count; ++i) AppendPiece(pieces[i], ids);
  }
}

}  // namespace data
