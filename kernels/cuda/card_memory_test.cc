#include "kernels/cuda/card_memory.h"

#include "gtest/gtest.h"

namespace kernels::cuda {
namespace {

TEST(CardMemory, TheHeadsPartsLieOneAfterTheOther) {
  // Record 2026-01-18: slots of 49,152 tokens, 50,304 classes, 768 features.
  const int64_t rows = 24576, vocab = 50304, dim = 768;
  const HeadLayout hopper = LayOutHead(49152, vocab, dim, /*transposes_g8=*/false);
  EXPECT_EQ(hopper.logits, 0);
  EXPECT_EQ(hopper.g8, rows * vocab * 2);
  EXPECT_EQ(hopper.g8t, hopper.g8 + rows * vocab);
  EXPECT_EQ(hopper.x8, hopper.g8t);
  EXPECT_EQ(hopper.w8, hopper.x8t + rows * dim);
  EXPECT_EQ(hopper.bytes, 3 * rows * vocab + 2 * rows * dim + 2 * vocab * dim);
  const HeadLayout other = LayOutHead(49152, vocab, dim, /*transposes_g8=*/true);
  EXPECT_EQ(other.bytes - hopper.bytes, rows * vocab);
}

TEST(CardMemory, AShortSlotsChunkIsTheSlot) {
  EXPECT_EQ(HeadChunkRows(16), 16);
  EXPECT_EQ(HeadChunkRows(17), 32);
  EXPECT_EQ(HeadChunkRows(24577), kHeadGradChunkRows);
}

TEST(CardMemory, PartsAreAligned) {
  const HeadLayout layout = LayOutHead(16, 384, 40, /*transposes_g8=*/true);
  for (const int64_t part :
       {layout.g8, layout.g8t, layout.x8, layout.x8t, layout.w8, layout.w8t, layout.bytes}) {
    EXPECT_EQ(part % 256, 0) << part;
  }
}

TEST(CardMemory, AnEmbeddingsGradientHoldsPositionsPartialRowsAndTheSort) {
  const int64_t positions = 2 * 48, tiles = 2 * 2, dim = 64;
  EXPECT_EQ(EmbeddingGradBytes(2, 48, 1000, dim),
            4 * 512 + tiles * 2 * dim * 4 + (int64_t{1} << 20) + 256);
  EXPECT_GT(EmbeddingSortBytes(positions), positions);
}

TEST(CardMemory, TheFp8KernelWantsMultiplesOf16) {
  EXPECT_TRUE(Fp8GradGemmFits(48, 384, 64));
  EXPECT_FALSE(Fp8GradGemmFits(0, 384, 64));
  EXPECT_FALSE(Fp8GradGemmFits(40, 384, 64));
  EXPECT_FALSE(Fp8GradGemmFits(48, 257, 64));
  EXPECT_FALSE(Fp8GradGemmFits(48, 384, 100));
}

}  // namespace
}  // namespace kernels::cuda
