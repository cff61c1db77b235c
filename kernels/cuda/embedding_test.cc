#include "kernels/ops/embedding.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_testing.h"

namespace kernels {
namespace {

// A value next to a rounding boundary may fall to the other side, since sums have another order:
// one bf16 step, which is two kBf16Roundoff of a number just above a power of two.
constexpr double kStep = 2 * kBf16Roundoff;
// f32 sums over tokens and features of numbers of both signs, relative to the rms of the results.
constexpr double kSum = 1e-3;
constexpr int64_t kScalars = 4;
constexpr int kLambda = 2;

struct Shape {
  int64_t slots, tokens, dim, features;
};

// One token, ends inside a warp's run of rows, all numbers of vectors per lane.
const Shape kShapes[] = {{1, 1, 64, 12},   {2, 16, 128, 12}, {3, 33, 256, 3},   {2, 48, 512, 32},
                         {3, 80, 768, 12}, {1, 17, 1024, 1}, {1, 2048, 768, 12}};

class SmearTest : public CudaTest {
 protected:
  struct Data {
    Shape shape;
    Twin tokens, table, smear_w, scalars, x0, inv_rms, dx0, de, dsmear_w, dscalars;
  };

  Data Make(const Shape& s, int64_t leaves) {
    const std::vector<int64_t> dims = {s.slots, s.tokens, s.dim};
    return {s,
            Ints({s.slots, s.tokens}, 0, 37),
            Normal(DType::kBF16, {37, s.dim}),
            Normal(DType::kBF16, {1, s.features}, 0.5),
            Normal(DType::kF32, {kScalars}),
            Output(DType::kBF16, dims),
            Output(DType::kF32, {s.slots, s.tokens}),
            Normal(DType::kBF16, dims),
            Output(DType::kBF16, dims),
            Normal(DType::kF32, {leaves, s.features}),
            Normal(DType::kF32, {leaves, kScalars})};
  }
  static EmbedSmearNormArgs Args(const Data& d, Side side, int64_t first, int64_t count) {
    EmbedSmearNormArgs args;
    args.tokens = d.tokens.on(side).Slice(first, count);
    args.table = d.table.on(side);
    args.smear_w = d.smear_w.on(side);
    args.scalars = d.scalars.on(side);
    args.smear_lambda = kLambda;
    args.x0 = d.x0.on(side).Slice(first, count);
    args.inv_rms = d.inv_rms.on(side).Slice(first, count);
    return args;
  }
  static void Grad(const Data& d, Side side, int64_t first, int64_t count, Tensor dsmear_w,
                   Tensor dscalars, Queue& queue) {
    EmbedSmearNormGrad(Args(d, side, first, count), d.dx0.on(side).Slice(first, count),
                       d.de.on(side).Slice(first, count), dsmear_w, dscalars, queue);
  }
};

TEST_F(SmearTest, MatchesCpu) {
  for (const Shape& shape : kShapes) {
    for (const int64_t leaves : {int64_t{1}, shape.slots}) {
      SCOPED_TRACE(::testing::Message() << shape.slots << " slots, " << shape.tokens
                                        << " tokens, D " << shape.dim << ", leaves " << leaves);
      const Data d = Make(shape, leaves);
      Both([&](Side side, Queue& queue) { EmbedSmearNorm(Args(d, side, 0, shape.slots), queue); });
      // x is rounded before the norm and x0 after it: two steps at most.
      ExpectClose(d.x0, 2 * kStep, 0, "x0");
      // A flipped rounding of one x moves the mean square of D by at most 2^-7 of its share.
      ExpectClose(d.inv_rms, 1e-3, 0, "inv_rms");
      // The same inputs for the backward pass, so that forward steps do not add up in it.
      Set(d.x0.cuda, OnHost(d.x0.cpu));
      Set(d.inv_rms.cuda, OnHost(d.inv_rms.cpu));
      Both([&](Side side, Queue& queue) {
        Grad(d, side, 0, shape.slots, d.dsmear_w.on(side), d.dscalars.on(side), queue);
      });
      ExpectClose(d.de, kStep, 0, "de");
      ExpectClose(d.dsmear_w, kSum, 0, "dsmear_w");
      ExpectClose(d.dscalars, kSum, 0, "dscalars");
    }
  }
}

TEST_F(SmearTest, WithoutASmear) {
  for (const Shape& shape : {Shape{1, 1, 64, 1}, {3, 33, 768, 1}, {2, 80, 1024, 1}}) {
    const Data d = Make(shape, 1);
    const auto args = [&](Side side, int64_t first, int64_t count) {
      EmbedSmearNormArgs a = Args(d, side, first, count);
      a.smear_w = a.scalars = Tensor();
      a.smear_lambda = -1;
      return a;
    };
    Both([&](Side side, Queue& queue) { EmbedSmearNorm(args(side, 0, shape.slots), queue); });
    ExpectClose(d.x0, kStep, 0, "x0");
    ExpectClose(d.inv_rms, 1e-5, 0, "inv_rms");
    Set(d.x0.cuda, OnHost(d.x0.cpu));
    Both([&](Side side, Queue& queue) {
      EmbedSmearNormGrad(args(side, 0, shape.slots), d.dx0.on(side), d.de.on(side), {}, {}, queue);
    });
    ExpectClose(d.de, kStep, 0, "de");
    EmbedSmearNorm(args(Side::kCuda, 0, shape.slots), cuda());
    const std::vector<uint8_t> together = Bytes(d.x0.cuda);
    for (int64_t slot = 0; slot < shape.slots; ++slot) {
      EmbedSmearNorm(args(Side::kCuda, slot, 1), cuda());
    }
    EXPECT_EQ(Bytes(d.x0.cuda), together);
  }
}

// A gradient along x, of which the gate of 1/2 times lambda 2 makes e_t + e_{t-1}, is taken away.
// Its element is at most 4 sqrt(2), of which f32 leaves some 1e-6.
TEST_F(SmearTest, GradientAlongXVanishes) {
  const Data d = Make({2, 80, 768, 12}, 1);
  Set(d.smear_w.cuda, std::vector<double>(12));
  Set(d.scalars.cuda, std::vector<double>(kScalars, 2.0));
  Set(d.dscalars.cuda, std::vector<double>(kScalars));
  Set(d.dsmear_w.cuda, std::vector<double>(12));
  EmbedSmearNorm(Args(d, Side::kCuda, 0, 2), cuda());
  const std::vector<double> table = OnHost(d.table.cuda), tokens = OnHost(d.tokens.cuda);
  std::vector<double> x;
  for (int64_t row = 0; row < 2 * 80; ++row) {
    for (int64_t i = 0; i < 768; ++i) {
      const auto element = [&](int64_t r) {
        return table[static_cast<int64_t>(tokens[r]) * 768 + i];
      };
      x.push_back(element(row) + (row % 80 == 0 ? 0.0 : element(row - 1)));
    }
  }
  Set(d.dx0.cuda, x);
  Grad(d, Side::kCuda, 0, 2, d.dsmear_w.cuda, d.dscalars.cuda, cuda());
  for (double value : OnHost(d.de.cuda)) ASSERT_LT(std::fabs(value), 2e-5);
  for (double value : OnHost(d.dsmear_w.cuda)) EXPECT_LT(std::fabs(value), 1e-2);
}

TEST_F(SmearTest, Repeats) {
  const Data d = Make({2, 2048, 768, 12}, 1);
  const std::vector<float> zeros(std::max(d.dsmear_w.cuda.size(), d.dscalars.cuda.size()));
  ExpectRepeats(
      [&](Queue& queue) {
        queue.Upload(zeros.data(), d.dsmear_w.cuda);
        queue.Upload(zeros.data(), d.dscalars.cuda);
        EmbedSmearNorm(Args(d, Side::kCuda, 0, 2), queue);
        Grad(d, Side::kCuda, 0, 2, d.dsmear_w.cuda, d.dscalars.cuda, queue);
      },
      {d.x0.cuda, d.inv_rms.cuda, d.de.cuda, d.dsmear_w.cuda, d.dscalars.cuda});
}

TEST_F(SmearTest, SlotsAreIndependent) {
  const Data d = Make({3, 80, 768, 12}, 3);
  const std::vector<double> leaves_w = OnHost(d.dsmear_w.cuda), leaves = OnHost(d.dscalars.cuda);
  const auto run = [&](int64_t count) {
    Set(d.dsmear_w.cuda, leaves_w);
    Set(d.dscalars.cuda, leaves);
    for (int64_t first = 0; first < 3; first += count) {
      EmbedSmearNorm(Args(d, Side::kCuda, first, count), cuda());
      Grad(d, Side::kCuda, first, count, d.dsmear_w.cuda.Slice(first, count),
           d.dscalars.cuda.Slice(first, count), cuda());
    }
    return std::vector{Bytes(d.x0.cuda), Bytes(d.de.cuda), Bytes(d.dsmear_w.cuda),
                       Bytes(d.dscalars.cuda)};
  };
  EXPECT_EQ(run(3), run(1));
}

// Pure moves, and one f32 addition an element: the CPU's bits.
TEST_F(SmearTest, MoveRowsMatchesCpu) {
  for (const int64_t count : {1, 7, 33, 500}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Twin rows = Ints({count}, 0, 1), table = Normal(dtype, {501, 768});
      const Twin packed = Normal(dtype, {count, 768});
      std::vector<double> numbers;  // distinct
      for (int64_t i = 0; i < count; ++i) {
        numbers.push_back(static_cast<double>((i * 7 + 3) % 501));
      }
      Set(rows.cpu, numbers);
      Set(rows.cuda, numbers);
      for (const RowMove move : {RowMove::kAdd, RowMove::kScatter, RowMove::kGather}) {
        if (move == RowMove::kAdd && dtype != DType::kF32) continue;
        Both([&](Side side, Queue& queue) {
          MoveRows(move, rows.on(side), table.on(side), packed.on(side), queue);
        });
        ExpectClose(table, 0, 0, "table");
        ExpectClose(packed, 0, 0, "packed");
      }
    }
  }
}

class EmbeddingGradTest : public CudaTest {
 protected:
  struct Data {
    Twin tokens, de, dtable, workspace;
  };

  // Half of the positions hold token 1, whose run spans many tiles; the others any token.
  Data Make(int64_t slots, int64_t tokens, int64_t vocab, int64_t dim, int64_t leaves) {
    Data d = {Ints({slots, tokens}, 0, static_cast<int32_t>(2 * vocab)),
              Normal(DType::kBF16, {slots, tokens, dim}), Normal(DType::kF32, {leaves, vocab, dim}),
              Output(DType::kI32, {1})};
    std::vector<double> ids = OnHost(d.tokens.cpu);
    for (double& id : ids) id = id < vocab ? id : 1 % vocab;
    Set(d.tokens.cpu, ids);
    Set(d.tokens.cuda, ids);
    const int64_t bytes = EmbeddingGradWorkspaceBytes(slots, tokens, vocab, dim, cuda());
    d.workspace = Output(DType::kI32, {(bytes + 3) / 4});
    return d;
  }
  static void Run(const Data& d, Side side, int64_t first, int64_t count, Tensor dtable,
                  Queue& queue) {
    EmbeddingGrad(d.tokens.on(side).Slice(first, count), d.de.on(side).Slice(first, count), dtable,
                  d.workspace.on(side), queue);
  }
};

TEST_F(EmbeddingGradTest, MatchesCpu) {
  struct Case {
    int64_t slots, tokens, vocab, dim;
  };
  // One position; one run in all; tiles cut short by the end of a leaf; runs that fill tiles and
  // end with them; rows in part of a slice; and runs of 4,096 rows over two slots.
  for (const Case& c : {Case{1, 1, 5, 64}, Case{2, 16, 1, 64}, Case{3, 48, 11, 128},
                        Case{3, 33, 7, 256}, Case{1, 64, 1, 768}, Case{2, 80, 500, 768},
                        Case{2, 4096, 3000, 768}, Case{2, 2048, 1500, 1024}}) {
    for (const int64_t leaves : {int64_t{1}, c.slots}) {
      SCOPED_TRACE(::testing::Message() << c.slots << " slots, " << c.tokens << " tokens, vocab "
                                        << c.vocab << ", D " << c.dim << ", leaves " << leaves);
      const Data d = Make(c.slots, c.tokens, c.vocab, c.dim, leaves);
      Both([&](Side side, Queue& queue) { Run(d, side, 0, c.slots, d.dtable.on(side), queue); });
      // f32 sums in another order. The hot row's 4,096 terms walk to about 64, each addition with
      // an error of 2^-19 at most: 7e-5 in the rms, here a dozen of these. A lost row shows as 1.
      ExpectClose(d.dtable, 1e-5, 1e-3, "dtable");
    }
  }
}

TEST_F(EmbeddingGradTest, Repeats) {
  const Data d = Make(2, 4096, 3000, 768, 1);
  const std::vector<float> zeros(d.dtable.cuda.size());
  ExpectRepeats(
      [&](Queue& queue) {
        queue.Upload(zeros.data(), d.dtable.cuda);
        Run(d, Side::kCuda, 0, 2, d.dtable.cuda, queue);
      },
      {d.dtable.cuda});
}

// 80 tokens are no whole number of tiles, so the cuts of a leaf have to count from its start.
TEST_F(EmbeddingGradTest, SlotsAreIndependent) {
  for (const int64_t tokens : {80, 2048}) {
    const Data d = Make(3, tokens, 50, 768, 3);
    const std::vector<double> leaves = OnHost(d.dtable.cuda);
    const auto run = [&](int64_t count) {
      Set(d.dtable.cuda, leaves);
      for (int64_t first = 0; first < 3; first += count) {
        Run(d, Side::kCuda, first, count, d.dtable.cuda.Slice(first, count), cuda());
      }
      return Bytes(d.dtable.cuda);
    };
    EXPECT_EQ(run(3), run(1)) << tokens;
  }
}

}  // namespace
}  // namespace kernels
