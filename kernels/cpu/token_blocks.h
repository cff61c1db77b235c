// How the CPU's ops on [slots, T, ...] cut their tokens into tasks, and how the tasks' sums of
// gradients are added, so that no bit depends on threads or on the other slots of a pass.
#ifndef KERNELS_CPU_TOKEN_BLOCKS_H_
#define KERNELS_CPU_TOKEN_BLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/tensor.h"

namespace kernels {

// Enough bytes for a task to outweigh its start; sums over a slot's tokens are cut here too.
constexpr int64_t kTokenBlock = 64;

// The tokens [begin, end) of one slot.
struct TokenBlock {
  static int64_t PerSlot(int64_t tokens) { return (tokens + kTokenBlock - 1) / kTokenBlock; }
  static int64_t Count(int64_t slots, int64_t tokens) { return slots * PerSlot(tokens); }

  TokenBlock(int64_t tokens, int64_t task)
      : slot(task / PerSlot(tokens)),
        begin(task % PerSlot(tokens) * kTokenBlock),
        end(std::min(begin + kTokenBlock, tokens)) {}

  int64_t slot, begin, end;
};

// Adds the blocks' sums, [slots * blocks, size], to leaves[.., offset + i]: each slot's blocks in
// order, then the slots in order.
template <typename T>
void AddToLeaves(const std::vector<T>& sums, int64_t slots, int64_t size, Tensor leaves,
                 int64_t offset) {
  const int64_t blocks = static_cast<int64_t>(sums.size()) / size / slots;
  for (int64_t slot = 0; slot < slots; ++slot) {
    float* leaf = leaves.f32() + (leaves.dim(0) == 1 ? 0 : slot) * leaves.dim(1) + offset;
    for (int64_t i = 0; i < size; ++i) {
      double sum = 0;
      for (int64_t block = 0; block < blocks; ++block) {
        sum += sums[(slot * blocks + block) * size + i];
      }
      leaf[i] += static_cast<float>(sum);
    }
  }
}

}  // namespace kernels

#endif  // KERNELS_CPU_TOKEN_BLOCKS_H_
