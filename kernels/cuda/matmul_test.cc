// Products. Sums in f32 differ between orders, and tensor cores cut off bits below 2^-24 of the
// largest term where a CPU rounds: about 3e-6 of the norm at k = 768. That may tip the rounding to
// bf16 over, to the neighbouring value, which is up to 2 kBf16Roundoff away.
#include "kernels/ops/matmul.h"

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_testing.h"

namespace kernels {
namespace {

class MatMulTest : public CudaTest {
 protected:
  // dims of a stored [rows, cols] matrix, transposed if asked
  static std::vector<int64_t> Stored(int64_t batch, int64_t rows, int64_t cols, bool trans) {
    std::vector<int64_t> dims = {rows, cols};
    if (trans) std::swap(dims[0], dims[1]);
    if (batch > 0) dims.insert(dims.begin(), batch);
    return dims;
  }
};

TEST_F(MatMulTest, AllTranspositionsShapesAndDtypes) {
  for (const auto& [m, n, k] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {16, 64, 128}, {48, 768, 64}, {208, 128, 768}, {6, 12, 6}, {1, 12, 1}, {8, 8, 8}}) {
    for (int trans = 0; trans < 4; ++trans) {
      for (const int64_t batch : {0, 1, 3}) {
        for (const DType dtype : {DType::kBF16, DType::kF32}) {
          const bool ta = trans & 1, tb = trans & 2;
          const Twin a = Normal(DType::kBF16, Stored(batch, m, k, ta));
          const Twin b = Normal(DType::kBF16, Stored(batch, k, n, tb));
          const Twin addend = Normal(dtype, Stored(batch, m, n, false));
          const Twin c = Output(dtype, Stored(batch, m, n, false));
          const MatMulOptions options{
              .trans_a = ta, .trans_b = tb, .alpha = 0.5f, .beta = batch == 1 ? 0.0f : -2.0f};
          Both([&](Side side, Queue& queue) {
            MatMul(a.on(side), b.on(side), c.on(side), options, addend.on(side), queue);
          });
          ExpectClose(c, dtype == DType::kBF16 ? 2 * kBf16Roundoff : 1e-5, 0,
                      absl::StrCat(m, "x", n, "x", k, " trans ", trans, " batch ", batch));
        }
      }
    }
  }
}

TEST_F(MatMulTest, SharedWeightInPlaceAddend) {
  const Twin x = Normal(DType::kBF16, {3, 48, 256}), w = Normal(DType::kBF16, {128, 256}, 0.1);
  const Twin y = Normal(DType::kBF16, {3, 48, 128});
  Both([&](Side side, Queue& queue) {
    MatMul(x.on(side), w.on(side), y.on(side), {.trans_b = true, .beta = 1.0f}, y.on(side), queue);
  });
  // The library may round the product before it adds: another half of a value that is up to
  // twice as large.
  ExpectClose(y, 4 * kBf16Roundoff);
}

TEST_F(MatMulTest, F32IsNotTf32) {
  const Twin a = Normal(DType::kF32, {64, 512}), b = Normal(DType::kF32, {512, 96});
  const Twin c = Output(DType::kF32, {64, 96});
  Both([&](Side side, Queue& queue) { MatMul(a.on(side), b.on(side), c.on(side), {}, queue); });
  ExpectClose(c, 3e-6);  // tf32 would be off by 3e-4
}

TEST_F(MatMulTest, WeightGradAddsToEachLeaf) {
  for (const int64_t slots : {1, 3}) {
    for (const int64_t leaves : {int64_t{1}, slots}) {
      const Twin dy = Normal(DType::kBF16, {slots, 208, 96});
      const Twin x = Normal(DType::kBF16, {slots, 208, 64});
      const Twin dw = Normal(DType::kF32, {leaves, 96, 64});
      Both([&](Side side, Queue& queue) {
        WeightGrad(dy.on(side), x.on(side), dw.on(side), queue);
      });
      ExpectClose(dw, 1e-5, 0, absl::StrCat(slots, " slots, ", leaves, " leaves"));
    }
  }
}

TEST_F(MatMulTest, DeterministicQueueGivesASlotTheSameBitsAloneAndInAPass) {
  const Twin x = Normal(DType::kBF16, {3, 512, 768}), w = Normal(DType::kBF16, {768, 1024}, 0.1);
  const Twin together = Output(DType::kBF16, {3, 512, 1024}),
             alone = Output(DType::kBF16, {3, 512, 1024});
  const Twin dw = Zeros(DType::kF32, {3, 768, 1024}), dw_alone = Zeros(DType::kF32, {3, 768, 1024});
  MatMul(x.cuda, w.cuda, together.cuda, {}, deterministic());
  WeightGrad(x.cuda, together.cuda, dw.cuda, deterministic());
  for (int slot = 0; slot < 3; ++slot) {
    MatMul(x.cuda.Slice(slot, 1), w.cuda, alone.cuda.Slice(slot, 1), {}, deterministic());
    WeightGrad(x.cuda.Slice(slot, 1), together.cuda.Slice(slot, 1), dw_alone.cuda.Slice(slot, 1),
               deterministic());
  }
  deterministic().Synchronize();
  EXPECT_TRUE(Bytes(together.cuda) == Bytes(alone.cuda));
  EXPECT_TRUE(Bytes(dw.cuda) == Bytes(dw_alone.cuda));
}

TEST_F(MatMulTest, Relu2AndItsGradient) {
  for (const int64_t slots : {1, 3}) {
    const Twin u = Normal(DType::kBF16, {slots, 48, 128}),
               w = Normal(DType::kBF16, {128, 512}, 0.1);
    const Twin a = Output(DType::kBF16, {slots, 48, 512}),
               b = Output(DType::kBF16, {slots, 48, 512});
    Both([&](Side side, Queue& queue) {
      LinearRelu2(u.on(side), w.on(side), HiddenDim::kColumns, a.on(side), b.on(side), queue);
    });
    ExpectClose(a, 2 * kBf16Roundoff);
    ExpectClose(b, 6 * kBf16Roundoff);  // an a off by one value counts twice in its square
    const Twin down = Normal(DType::kBF16, {128, 512}, 0.1),
               da = Output(DType::kBF16, {slots, 48, 512});
    const Twin same_a = Of(DType::kBF16, {slots, 48, 512}, OnHost(a.cpu));
    Both([&](Side side, Queue& queue) {
      LinearRelu2Grad(u.on(side), down.on(side), HiddenDim::kColumns, same_a.on(side), da.on(side),
                      queue);
    });
    ExpectClose(da, 4 * kBf16Roundoff);  // the product is rounded before and after the factor
  }
}

// The hidden dim as rows: as on the CPU, and as kColumns of the transposed weight. The library may
// sum in another order, so a value may round to a neighbour; b and da as above.
TEST_F(MatMulTest, Relu2WithTheHiddenDimAsRows) {
  for (const int64_t slots : {1, 3}) {
    for (const auto& [in, hidden] : {std::pair<int64_t, int64_t>{128, 512}, {768, 256}}) {
      const std::vector<int64_t> dims = {slots, 48, hidden};
      const Twin u = Normal(DType::kBF16, {slots, 48, in});
      const Twin w = Normal(DType::kBF16, {hidden, in}, 1 / std::sqrt(in));
      const Twin a = Output(DType::kBF16, dims), b = Output(DType::kBF16, dims);
      const auto forward = [&](Side side, Queue& queue) {
        LinearRelu2(u.on(side), w.on(side), HiddenDim::kRows, a.on(side), b.on(side), queue);
      };
      Both(forward);
      ExpectClose(a, 2 * kBf16Roundoff, 0, "a");
      ExpectClose(b, 6 * kBf16Roundoff, 0, "b");
      const Twin same_a = Of(DType::kBF16, dims, OnHost(a.cpu)), da = Output(DType::kBF16, dims);
      const auto backward = [&](Side side, Queue& queue) {
        LinearRelu2Grad(u.on(side), w.on(side), HiddenDim::kRows, same_a.on(side), da.on(side),
                        queue);
      };
      Both(backward);
      ExpectClose(da, 4 * kBf16Roundoff, 0, "da");

      const std::vector<double> from = OnHost(w.cuda);
      std::vector<double> to(from.size());
      for (int64_t i = 0; i < hidden; ++i) {
        for (int64_t j = 0; j < in; ++j) to[j * hidden + i] = from[i * in + j];
      }
      const Twin turned = Of(DType::kBF16, {in, hidden}, to);
      const Tensor other_a = Output(DType::kBF16, dims).cuda;
      const Tensor other_b = Output(DType::kBF16, dims).cuda;
      const Tensor other_da = Output(DType::kBF16, dims).cuda;
      LinearRelu2(u.cuda, turned.cuda, HiddenDim::kColumns, other_a, other_b, cuda());
      LinearRelu2Grad(u.cuda, turned.cuda, HiddenDim::kColumns, same_a.cuda, other_da, cuda());
      cuda().Synchronize();
      // In a Twin's place of the CPU's result.
      for (const auto& [got, other, bound] : {std::tuple{a, other_a, 2 * kBf16Roundoff},
                                              {b, other_b, 6 * kBf16Roundoff},
                                              {da, other_da, 4 * kBf16Roundoff}}) {
        Set(got.cpu, OnHost(other));
        ExpectClose(got, bound, 0, "columns");
      }
      ExpectRepeats(
          [&](Queue& queue) {
            forward(Side::kCuda, queue);
            backward(Side::kCuda, queue);
          },
          {a.cuda, b.cuda, da.cuda});
    }
  }
}

TEST_F(MatMulTest, Repeats) {
  const Twin dy = Normal(DType::kBF16, {2, 2048, 768}), x = Normal(DType::kBF16, {2, 2048, 768});
  const Twin dw = Zeros(DType::kF32, {1, 768, 768});
  ExpectRepeats([&](Queue& queue) { WeightGrad(dy.cuda, x.cuda, dw.cuda, queue); }, {dw.cuda});
}

}  // namespace
}  // namespace kernels
