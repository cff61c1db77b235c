// The backward pass of attention on CUDA: what its kernels for Hopper could do wrong and the small
// cases of attention_test.cc would not show.
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_testing.h"
#include "kernels/cuda/cuda_queue.h"

namespace kernels {
namespace {

// Or the tests of both ways would test one of them twice.
TEST_F(AttentionTest, HopperGradTakesHeadsOf128OnHopperOnly) {
  int device = 0, major = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  for (const int64_t head_dim : {64, 128}) {
    const Case c = {16, 2, head_dim, 8, {{0, 16}}};
    EXPECT_EQ(cuda::AttentionGradHopperSupports(Make(c).Args(c, Side::kCuda)),
              major == 9 && head_dim == 128);
  }
}

// Of 128 neighbouring keys the first 64 have all their queries close by, the others far away, or
// the reverse for queries: one warpgroup passes many steps of the other's, more than are loaded at
// a time.
TEST_F(AttentionTest, GradOfADocumentThatEndsBesideALongOne) {
  for (const int end : {10, 63, 64, 65, 127}) {
    ExpectSameAsCpu({1040, 2, 128, 4096, {{0, end, 1040}, {0, 1040 - end, 1040}}});
    ExpectSameAsCpu({1040, 1, 128, 512, {{0, 512, 512 + end, 1040}}});
  }
}

// More items than a card has multiprocessors, taken in another order each time; items of keys wait
// for those of queries.
TEST_F(AttentionTest, GradRepeatsWhereBlocksTakeManyItems) {
  for (const Case& c : {Case{6000, 6, 128, 300, RandomDocuments(3, 6000, 700)},
                        Case{6000, 3, 128, 2048, RandomDocuments(2, 6000, 4000)},
                        Case{4096, 8, 128, 128, RandomDocuments(1, 4096, 900), 128}}) {
    const Data data = Make(c);
    data.Forward(c, Side::kCuda, cuda());
    for (int i = 0; i < 5; ++i) {
      ExpectRepeats([&](Queue& queue) { data.Backward(c, Side::kCuda, queue); },
                    {data.delta.cuda, data.dq.cuda, data.dk.cuda, data.dv.cuda});
    }
  }
}

// Behind a slot's end is the next slot, and behind the last row of a table what another op left.
TEST_F(AttentionTest, GradOfASlotIsUntouchedByNanInItsNeighbours) {
  constexpr int kTokens = 208;
  const Case c = {kTokens, 2, 128, 90, RandomDocuments(3, kTokens, 150)};
  Data data = Make(c);
  data.Forward(c, Side::kCuda, cuda());
  data.Backward(c, Side::kCuda, cuda());
  const std::vector<Tensor> outputs = {data.delta.cuda, data.dq.cuda, data.dk.cuda, data.dv.cuda};
  std::vector<std::vector<uint8_t>> before;
  for (const Tensor& output : outputs) before.push_back(Bytes(output.Slice(1, 1)));
  for (const Twin* input : {&data.q, &data.k, &data.v, &data.do_, &data.o, &data.lse}) {
    for (const int64_t slot : {0, 2}) {
      const Tensor bad = input->cuda.Slice(slot, 1);
      Set(bad, std::vector<double>(bad.size(), std::nan("")));
    }
  }
  data.Backward(c, Side::kCuda, cuda());
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE(Bytes(outputs[i].Slice(1, 1)) == before[i]) << "output " << i;
    for (const double x : OnHost(outputs[i].Slice(0, 1))) ASSERT_TRUE(std::isnan(x)) << i;
  }
}

}  // namespace
}  // namespace kernels
