#include "data/bpe/merger.h"

#include <algorithm>
#include <cstddef>
#include <functional>

#include "data/bpe/byte_tokens.h"

namespace data {
namespace {

// Up to here a search through all neighbours at each merge is faster than a heap.
constexpr size_t kShortPiece = 128;

constexpr uint32_t kEnd = UINT32_MAX;

}  // namespace

void Merger::Append(absl::string_view piece, std::vector<uint16_t>* ids) {
  if (piece.size() <= kShortPiece) {
    AppendShort(piece, ids);
  } else {
    AppendLong(piece, ids);
  }
}

void Merger::AppendShort(absl::string_view piece, std::vector<uint16_t>* ids) {
  ids_.clear();
  for (const char c : piece) ids_.push_back(kTokenOfByte[static_cast<uint8_t>(c)]);
  merged_.clear();
  for (size_t i = 0; i + 1 < ids_.size(); ++i) {
    merged_.push_back(pairs_.Find(ids_[i], ids_[i + 1]));
  }
  while (!merged_.empty()) {
    const size_t best = std::min_element(merged_.begin(), merged_.end()) - merged_.begin();
    if (merged_[best] == PairTable::kNone) break;
    ids_[best] = merged_[best];
    ids_.erase(ids_.begin() + best + 1);
    merged_.erase(merged_.begin() + best);
    if (best > 0) merged_[best - 1] = pairs_.Find(ids_[best - 1], ids_[best]);
    if (best < merged_.size()) merged_[best] = pairs_.Find(ids_[best], ids_[best + 1]);
  }
  ids->insert(ids->end(), ids_.begin(), ids_.end());
}

void Merger::UpdateMerged(uint32_t left) {
  Symbol& symbol = symbols_[left];
  symbol.merged =
      symbol.next == kEnd ? PairTable::kNone : pairs_.Find(symbol.id, symbols_[symbol.next].id);
  if (symbol.merged == PairTable::kNone) return;
  heap_.push_back(uint64_t{symbol.merged} << 32 | left);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<uint64_t>());
}

void Merger::MergeSymbols() {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<uint64_t>());
    const uint16_t merged = static_cast<uint16_t>(heap_.back() >> 32);
    const uint32_t position = static_cast<uint32_t>(heap_.back());
    heap_.pop_back();
    Symbol& left = symbols_[position];
    if (left.merged != merged) continue;
    Symbol& right = symbols_[left.next];
    right.merged = PairTable::kNone;
    left.id = merged;
    left.next = right.next;
    if (left.next != kEnd) symbols_[left.next].previous = position;
    UpdateMerged(position);
    if (left.previous != kEnd) UpdateMerged(left.previous);
  }
}

void Merger::AppendLong(absl::string_view piece, std::vector<uint16_t>* ids) {
  const uint32_t size = static_cast<uint32_t>(piece.size());
  symbols_.resize(size);
  for (uint32_t i = 0; i < size; ++i) {
    symbols_[i] = {kTokenOfByte[static_cast<uint8_t>(piece[i])], PairTable::kNone, i - 1, i + 1};
  }
  symbols_[0].previous = kEnd;
  symbols_[size - 1].next = kEnd;
  heap_.clear();
  for (uint32_t i = 0; i < size; ++i) UpdateMerged(i);
  MergeSymbols();
  for (uint32_t i = 0; i != kEnd; i = symbols_[i].next) ids->push_back(symbols_[i].id);
}

}  // namespace data
