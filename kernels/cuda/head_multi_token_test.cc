// The head with losses of several tokens; see head_test.cc for the kinds of test.
#include <cstdint>
#include <vector>

#include "kernels/cuda/head_problem.h"
#include "kernels/ops/head.h"

namespace kernels {
namespace {

class HeadMultiTokenTest : public HeadTest {};

// Among a row's three or four targets some are the same class, and others lie in the same 16 bytes.
TEST_F(HeadMultiTokenTest, RepeatedTargetsAddUp) {
  const HeadShape s = {2, 48, 384, 64};
  for (HeadSetting head : {kUnifiedBf16Head, kUnifiedFp8Head, kIsruWeightsHead}) {
    for (const std::vector<double>& weights :
         {std::vector<double>{1, 0.5, 0.25}, {0.25, 1, 0, 0.5}, {0, 0}}) {
      head.loss_weights = weights;
      Problem p = SingleEntries(s, head, 2, 2, UniformWeight(s, head));
      p.targets = Ints({s.slots, s.tokens}, 124, 128);
      Grad(p);
      ExpectEachClose(p.losses, 2e-6, 1e-5, "losses, " + head.name);
      if (head.precision.fp8) {
        ExpectNormClose(p.dw, 0.02, "dw, " + head.name);
      } else {
        ExpectEachClose(p.dw, 1.0 / 128 + 1e-3, 2e-6, "dw, " + head.name);
      }
    }
  }
}

// One weight of 1 takes another path through the kernel than no weights.
TEST_F(HeadMultiTokenTest, OneWeightOfOneIsNoWeights) {
  const HeadShape s = {1, 208, 384, 128};
  for (const HeadSetting& head : {kBf16Head, kFp8Head, kIsruHead, kIsruFp8Head}) {
    const Problem p = Random(s, head, 1);
    Grad(p);
    const std::vector<uint8_t> dx = Bytes(p.dx.cuda), dw = Bytes(p.dw.cuda);
    Problem q = p;
    q.loss_weights = Of(DType::kF32, {1}, {1});
    q.dw = Zeros(DType::kF32, GradDims(1, s, head));
    Grad(q);
    EXPECT_EQ(Bytes(q.dx.cuda) == dx, true) << head.name;
    EXPECT_EQ(Bytes(q.dw.cuda) == dw, true) << head.name;
  }
}

// Two chunks of rows: the first one's last targets lie in the second.
TEST_F(HeadMultiTokenTest, TargetsAcrossChunks) {
  const HeadShape s = {1, 24592, 128, 64};
  for (const HeadSetting& head : {kUnifiedBf16Head, kUnifiedFp8Head}) {
    const Problem p = Random(s, head, 1);
    Grad(p);
    ExpectClose(p.losses, 1e-5, 0.125, head.name);
    ExpectNormClose(p.losses, head.precision.fp8 ? 5e-3 : 2e-3, head.name);
    ExpectNormClose(p.dx, head.precision.fp8 ? 0.08 : 1.0 / 128, head.name);
  }
}

}  // namespace
}  // namespace kernels
