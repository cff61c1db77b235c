// Attention: CUDA against the CPU.
#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_testing.h"
#include "kernels/cuda/cuda_queue.h"

namespace kernels {
namespace {

// Or the tests below would test one of the two ways twice.
TEST_F(AttentionTest, HopperKernelTakesHeadsOf128OnHopperOnly) {
  int device = 0, major = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  for (const int64_t head_dim : {64, 128}) {
    const Case c = {16, 2, head_dim, 8, {{0, 16}}};
    EXPECT_EQ(cuda::AttentionHopperSupports(Make(c).Args(c, Side::kCuda)),
              major == 9 && head_dim == 128);
  }
}

TEST_F(AttentionTest, HeadDimsHeadsAndTails) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int heads : {1, 2, 6}) {
      for (const int tokens : {16, 48, 128, 192, 208, 400}) {
        ExpectSameAsCpu({tokens, heads, head_dim, 40, RandomDocuments(1, tokens, tokens)});
      }
    }
  }
}

TEST_F(AttentionTest, Windows) {
  for (const int64_t window : {0, 1, 5, 16, 63, 64, 65, 128, 300, 4096}) {
    ExpectSameAsCpu({560, 1, 128, window, {{0, 560}}});
    ExpectSameAsCpu({560, 1, 64, window, RandomDocuments(2, 560, 250)});
    ExpectSameAsCpu({560, 2, 128, window, RandomDocuments(2, 560, 12)});
  }
}

TEST_F(AttentionTest, WindowsOfBlocks) {
  for (const int64_t block : {16, 48, 128, 256}) {
    for (const int64_t blocks : {0, 1, 2, 3, 14}) {
      const int64_t window = blocks * block;
      ExpectSameAsCpu({560, 1, 128, window, {{0, 560}}, block});
      ExpectSameAsCpu({560, 1, 64, window, RandomDocuments(2, 560, 250), block});
      ExpectSameAsCpu({560, 2, 128, window, RandomDocuments(2, 560, 12), block});
    }
  }
  ExpectSameAsCpu({16, 2, 128, 256, {{0, 5, 16}}, 128});  // blocks longer than the slot
}

TEST_F(AttentionTest, EmptyDocumentsAndEdgesOnTiles) {
  const Boundaries tables = {
      {0, 256, 256, 256, 256, 256, 256, 256}, {0, 0, 0, 0, 0, 0, 0, 256},
      {0, 0, 64, 64, 128, 192, 256, 256},     {0, 32, 128, 128, 128, 160, 160, 256},
      {0, 1, 127, 129, 255, 256, 256, 256},   {0, 63, 63, 65, 95, 97, 255, 256}};
  for (const std::vector<int>& table : tables) {
    for (const int64_t window : {7, 128}) {
      ExpectSameAsCpu({256, 1, 64, window, {table}});
      ExpectSameAsCpu({256, 1, 128, window, {table}});
    }
  }
}

TEST_F(AttentionTest, DocumentsOfOneToken) {
  std::vector<int> ends(177);
  for (int i = 0; i < 177; ++i) ends[i] = i;
  ExpectSameAsCpu({176, 2, 128, 128, {ends}});
}

TEST_F(AttentionTest, LongSlots) {
  ExpectSameAsCpu({1024, 2, 64, 4096, RandomDocuments(3, 1024, 700)});
  ExpectSameAsCpu({2048, 6, 128, 128, RandomDocuments(1, 2048, 900)});
  ExpectSameAsCpu({2048, 1, 128, 4096, {{0, 2048}}});
  ExpectSameAsCpu({2048, 1, 128, 300, RandomDocuments(2, 2048, 100, 256)});
}

TEST_F(AttentionTest, LongSlotsInBlocks) {
  ExpectSameAsCpu({2048, 8, 128, 256, RandomDocuments(1, 2048, 900), 128});
  ExpectSameAsCpu({2048, 1, 128, 1792, {{0, 2048}}, 128});
  ExpectSameAsCpu({2048, 1, 64, 384, RandomDocuments(2, 2048, 100, 256), 128});
  ExpectSameAsCpu({2048, 1, 128, 0, RandomDocuments(2, 2048, 3, 1500), 128});
}

TEST_F(AttentionTest, MoreBoundariesThanFitIntoSharedMemory) {
  ExpectSameAsCpu({2048, 1, 64, 128, RandomDocuments(2, 2048, 3, 1500)});
}

TEST_F(AttentionTest, RepeatsAndSlotsAreIndependent) {
  const Boundaries documents = RandomDocuments(3, 400, 160);
  for (const Case& c :
       {Case{400, 2, 64, 150, documents}, Case{400, 2, 128, 150, documents},
        Case{400, 2, 64, 256, documents, 128}, Case{400, 2, 128, 128, documents, 128}}) {
    Data data = Make(c);
    for (const Way way : Ways(c, data)) {
      Poison(c, data);
      data.way = way;
      const auto run = [&](Queue& queue) {
        data.Forward(c, Side::kCuda, queue);
        data.Backward(c, Side::kCuda, queue);
      };
      ExpectRepeats(run, data.CudaOutputs());
      run(cuda());
      const std::vector<Tensor> together = data.CudaOutputs();

      Poison(c, data);
      for (int64_t slot = 0; slot < c.slots(); ++slot) {
        const Data one = data.Slot(slot);
        one.Forward(c, Side::kCuda, cuda());
        one.Backward(c, Side::kCuda, cuda());
      }
      const std::vector<Tensor> alone = data.CudaOutputs();
      for (size_t i = 0; i < alone.size(); ++i) {
        EXPECT_TRUE(Bytes(together[i]) == Bytes(alone[i]))
            << "output " << i << ", d " << c.head_dim << ", blocks of " << c.window_block
            << (way == Way::kOp ? "" : ", portable");
      }
    }
  }
}

// More tiles than a card has multiprocessors: blocks take several, in an order of their own.
TEST_F(AttentionTest, RepeatsWhereBlocksTakeManyTiles) {
  const Case c = {6000, 6, 128, 300, RandomDocuments(3, 6000, 700)};
  Data data = Make(c);
  for (int i = 0; i < 5; ++i) {
    ExpectRepeats([&](Queue& queue) { data.Forward(c, Side::kCuda, queue); },
                  {data.o.cuda, data.lse.cuda});
  }
}

}  // namespace
}  // namespace kernels
