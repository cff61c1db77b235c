#include "kernels/cuda/card_memory.h"

#include <algorithm>

namespace kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kRowMultiple = 16;  // of the fp8 products' sizes
constexpr int64_t kTileRows = 32;     // of embedding_grad.cu

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t multiple) { return CeilDiv(a, multiple) * multiple; }

}  // namespace

int64_t HeadChunkRows(int64_t slot_tokens) {
  // Longer slots may have shorter chunks, but never need less memory.
  return std::min(RoundUp(slot_tokens, kRowMultiple), kHeadGradChunkRows);
}

HeadLayout LayOutHead(int64_t slot_tokens, int64_t vocab, int64_t dim, bool transposes_g8) {
  const int64_t rows = HeadChunkRows(slot_tokens);
  int64_t end = 0;
  const auto take = [&end](int64_t bytes) {
    const int64_t begin = end;
    end += RoundUp(bytes, kAlignment);
    return begin;
  };
  HeadLayout layout;
  layout.logits = take(rows * vocab * 2);
  layout.g8 = take(rows * vocab);
  layout.g8t = take(transposes_g8 ? rows * vocab : 0);
  layout.x8 = take(rows * dim);
  layout.x8t = take(rows * dim);
  layout.w8 = take(vocab * dim);
  layout.w8t = take(vocab * dim);
  layout.bytes = end;
  return layout;
}

int64_t EmbeddingSortBytes(int64_t positions) {
  // A radix sort keeps 256 counters of 4 bytes for each digit and each of its tiles, which have
  // 1024 keys or more; a MiB for all else.
  return (int64_t{1} << 20) + 2 * positions;
}

int64_t EmbeddingGradBytes(int64_t slots, int64_t slot_tokens, int64_t, int64_t dim) {
  const int64_t positions = slots * slot_tokens;
  // The most tiles are those of a leaf per slot.
  const int64_t tiles = slots * CeilDiv(slot_tokens, kTileRows);
  return 4 * RoundUp(positions * 4, kAlignment) + RoundUp(tiles * 2 * dim * 4, kAlignment) +
         RoundUp(EmbeddingSortBytes(positions), kAlignment);
}

}  // namespace kernels::cuda
