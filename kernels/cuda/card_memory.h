// Memory that ops of the CUDA backend ask of a card, as functions of shapes and of what the card
// is. Plans for a card that is not there call them, so nothing here asks CUDA.
#ifndef KERNELS_CUDA_CARD_MEMORY_H_
#define KERNELS_CUDA_CARD_MEMORY_H_

#include <cstdint>

namespace kernels::cuda {

// Shared memory in bytes that a block of the largest of attention's portable kernels takes:
// attention_forward.cu and attention_backward.cu are compiled against it.
constexpr int kAttentionSharedBytes64 = 54784;    // heads of 64
constexpr int kAttentionSharedBytes128 = 103936;  // heads of 128

// Whether the shape suits the kernel of fp8_grad_gemm.h, which runs on Hopper.
constexpr bool Fp8GradGemmFits(int64_t rows, int64_t classes, int64_t dim) {
  return rows != 0 && rows % 16 == 0 && classes % 16 == 0 && dim % 16 == 0;
}

// Where the parts of the head's workspace begin, in bytes from its start; see head.cu.
struct HeadLayout {
  int64_t logits;   // bf16 [R, V]
  int64_t g8, g8t;  // e5m2 [R, V], [V, R]
  int64_t x8, x8t;  // e4m3 [R, D], [D, R]
  int64_t w8, w8t;  // e4m3 [V, D], [D, V]
  int64_t bytes;    // of all
};
// R: rows of a chunk of gradients.
constexpr int64_t kHeadGradChunkRows = 24576;  // two to a slot of 49,152
int64_t HeadChunkRows(int64_t slot_tokens);
// `transposes_g8`: g8t is stored, since no kernel makes dw from g8 itself.
HeadLayout LayOutHead(int64_t slot_tokens, int64_t vocab, int64_t dim, bool transposes_g8);

// Bytes of EmbeddingGrad's workspace: sorted positions, partial rows, and the sort's own memory.
int64_t EmbeddingGradBytes(int64_t slots, int64_t slot_tokens, int64_t vocab, int64_t dim);
// The share of it that the sort of `positions` gets. What CUB asks for differs by card and version;
// this is more than any of them, and the embedding's ops CHECK so before the first step.
int64_t EmbeddingSortBytes(int64_t positions);

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_CARD_MEMORY_H_
