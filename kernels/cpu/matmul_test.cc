#include "kernels/ops/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::ExpectWithinBf16Steps;
using testing::HostTensor;
using testing::RandomTensor;
using testing::RelativeError;
using testing::WithinBf16Steps;
using Doubles = std::vector<double>;

// Of the root mean square: f32 sums of up to 1100 products, whose errors add up at random, far
// below 1100 * 2^-24.
constexpr double kF32 = 2e-5;

// `got` in bf16 are f32 sums that were rounded once, of which `want` are the exact values.
void ExpectRounded(const Doubles& got, const Doubles& want, const std::string& what) {
  double squares = 0;
  for (double value : want) squares += value * value;
  const double sums = kF32 * std::sqrt(squares / std::max<size_t>(want.size(), 1));
  ExpectWithinBf16Steps(got, want, 0.5, sums, what);
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

// op(a) op(b) for one matrix, from the definition.
Doubles Product(const double* a, bool trans_a, const double* b, bool trans_b, int64_t m, int64_t n,
                int64_t k) {
  Doubles c(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      const double x = trans_a ? a[l * m + i] : a[i * k + l];
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += x * (trans_b ? b[j * k + l] : b[l * n + j]);
    }
  }
  return c;
}

struct Shape {
  int64_t batch, m, n, k;
};

// Odd sizes, and sizes beyond one tile in each direction (256 x 256 x 512).
const std::vector<Shape> kShapes = {{1, 1, 1, 1},   {2, 1, 24, 96},   {3, 16, 8, 768},
                                    {1, 48, 96, 8}, {2, 257, 19, 33}, {1, 17, 300, 1100}};

void CheckMatMul(const Shape& s, DType in, DType out, bool trans_a, bool trans_b, bool shared_b) {
  const auto [batch, m, n, k] = s;
  const HostTensor a = RandomTensor(
      in, trans_a ? std::vector<int64_t>{batch, k, m} : std::vector<int64_t>{batch, m, k}, 1);
  const int64_t b_batch = shared_b ? 1 : batch;
  const HostTensor b = RandomTensor(
      in, trans_b ? std::vector<int64_t>{b_batch, n, k} : std::vector<int64_t>{b_batch, k, n}, 2);
  const HostTensor addend = RandomTensor(out, {batch, m, n}, 3);
  HostTensor c(out, {batch, m, n});
  const auto queue = MakeCpuQueue(2);
  const MatMulOptions options = {trans_a, trans_b, 0.75f, -0.5f};
  MatMul(a, shared_b ? b.get().At(0) : b.get(), c, options, addend, *queue);
  const Doubles x = a.ToDouble(), y = b.ToDouble(), base = addend.ToDouble();
  Doubles want;
  for (int64_t i = 0; i < batch; ++i) {
    const Doubles product = Product(x.data() + i * m * k, trans_a,
                                    y.data() + (shared_b ? 0 : i * n * k), trans_b, m, n, k);
    for (double value : product) want.push_back(0.75 * value - 0.5 * base[want.size()]);
  }
  std::ostringstream what;
  what << c.get() << " = " << a.get() << (trans_a ? " transposed" : "") << " * " << b.get()
       << (trans_b ? " transposed" : "");
  if (out == DType::kBF16) {
    ExpectRounded(c.ToDouble(), want, what.str());
  } else {
    EXPECT_LT(RelativeError(c.ToDouble(), want), kF32) << what.str();
  }
}

TEST(MatMul, MatchesFloat64) {
  for (const Shape& shape : kShapes) {
    for (bool trans_a : {false, true}) {
      for (bool trans_b : {false, true}) {
        CheckMatMul(shape, DType::kBF16, DType::kBF16, trans_a, trans_b, trans_a != trans_b);
        CheckMatMul(shape, DType::kBF16, DType::kF32, trans_a, trans_b, trans_a == trans_b);
        CheckMatMul(shape, DType::kF32, DType::kF32, trans_a, trans_b, trans_a != trans_b);
        CheckMatMul(shape, DType::kF32, DType::kBF16, trans_a, trans_b, false);
      }
    }
  }
}

// One rounding only: the product of bf16 matrices is the f32 product, rounded.
TEST(MatMul, RoundsOnce) {
  const HostTensor a = RandomTensor(DType::kBF16, {48, 600}, 1);
  const HostTensor b = RandomTensor(DType::kBF16, {24, 600}, 2);
  HostTensor rounded(DType::kBF16, {48, 24}), exact(DType::kF32, {48, 24});
  const auto queue = MakeCpuQueue(1);
  MatMul(a, b, rounded, {.trans_b = true}, *queue);
  MatMul(a, b, exact, {.trans_b = true}, *queue);
  for (int64_t i = 0; i < 48 * 24; ++i) {
    EXPECT_EQ(rounded.get().bf16()[i], ToBF16(exact.get().f32()[i]));
  }
}

// beta = 0 reads neither c nor an addend, and c may be its own addend.
TEST(MatMul, Addends) {
  const HostTensor a = RandomTensor(DType::kF32, {7, 5}, 1),
                   b = RandomTensor(DType::kF32, {5, 9}, 2);
  const auto queue = MakeCpuQueue(1);
  HostTensor c(DType::kF32, {7, 9});
  c.Set(Doubles(63, NAN));
  MatMul(a, b, c, {}, *queue);
  const Doubles once = c.ToDouble();
  EXPECT_LT(
      RelativeError(once, Product(a.ToDouble().data(), false, b.ToDouble().data(), false, 7, 9, 5)),
      kF32);
  MatMul(a, b, c, {.beta = 1.0f}, c, *queue);
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(c.ToDouble()[i], 2 * once[i]);
}

TEST(MatMul, EmptySumsAreZero) {
  std::vector<float> nothing(1);
  const Tensor a(nothing.data(), DType::kF32, {3, 0}), b(nothing.data(), DType::kF32, {0, 2});
  HostTensor c = RandomTensor(DType::kF32, {3, 2}, 1);
  MatMul(a, b, c, {}, *MakeCpuQueue(1));
  EXPECT_EQ(c.ToDouble(), Doubles(6, 0.0));
}

constexpr int64_t kSlots = 3, kTokens = 48, kIn = 24, kHidden = 300;

// All products of one pass over [begin, begin + count) of three slots; dw has `leaves` leaves.
struct Pass {
  Pass(int threads, int64_t begin, int64_t count, int64_t leaves)
      : a(DType::kBF16, {count, kTokens, kHidden}),
        b(DType::kBF16, {count, kTokens, kHidden}),
        da(DType::kBF16, {count, kTokens, kHidden}),
        a_rows(DType::kBF16, {count, kTokens, kHidden}),
        b_rows(DType::kBF16, {count, kTokens, kHidden}),
        da_rows(DType::kBF16, {count, kTokens, kHidden}),
        product(DType::kBF16, {count, kTokens, kHidden}),
        square(DType::kBF16, {count, kTokens, kTokens}),
        dw(RandomTensor(DType::kF32, {leaves, kHidden, kIn}, 9)) {
    const auto queue = MakeCpuQueue(threads);
    const HostTensor u = RandomTensor(DType::kBF16, {kSlots, kTokens, kIn}, 1);
    const HostTensor w = RandomTensor(DType::kBF16, {kIn, kHidden}, 2);
    const Tensor x = u.get().Slice(begin, count);
    LinearRelu2(x, w, HiddenDim::kColumns, a, b, *queue);
    LinearRelu2Grad(x, w, HiddenDim::kColumns, a, da, *queue);
    const Tensor w_rows = w.get().Reshape({kHidden, kIn});  // other weights, of that shape
    LinearRelu2(x, w_rows, HiddenDim::kRows, a_rows, b_rows, *queue);
    LinearRelu2Grad(x, w_rows, HiddenDim::kRows, a_rows, da_rows, *queue);
    MatMul(x, w, product, {}, *queue);
    SymmetricProduct(x, 1.0f, 0.0f, Tensor(), square, *queue);
    const HostTensor dy = RandomTensor(DType::kBF16, {kSlots, kTokens, kHidden}, 3);
    WeightGrad(dy.get().Slice(begin, count), x, dw, *queue);
  }

  std::vector<Tensor> Outputs() const {
    return {a, b, da, a_rows, b_rows, da_rows, product, square, dw};
  }

  HostTensor a, b, da, a_rows, b_rows, da_rows, product, square, dw;
};

TEST(MatMulOps, SameBitsForAnyNumberOfThreads) {
  for (int64_t leaves : {int64_t{1}, kSlots}) {
    const Pass one(1, 0, kSlots, leaves);
    for (int threads : {2, 3}) {
      const Pass more(threads, 0, kSlots, leaves);
      for (size_t i = 0; i < one.Outputs().size(); ++i) {
        EXPECT_TRUE(SameBits(one.Outputs()[i], more.Outputs()[i])) << i << ", " << threads;
      }
    }
  }
}

TEST(MatMulOps, SlotsAreIndependent) {
  const Pass all(2, 0, kSlots, 1);
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    const Pass alone(2, slot, 1, 1);
    for (size_t i = 0; i + 1 < all.Outputs().size(); ++i) {  // all but dw, a sum over slots
      EXPECT_TRUE(SameBits(all.Outputs()[i].Slice(slot, 1), alone.Outputs()[i])) << i;
    }
  }
}

struct WeightProblem {
  explicit WeightProblem(int64_t tokens)
      : dy(RandomTensor(DType::kBF16, {kSlots, tokens, 19}, 1)),
        x(RandomTensor(DType::kBF16, {kSlots, tokens, 270}, 2)) {}

  HostTensor Run(int64_t begin, int64_t count, int64_t leaves) const {
    HostTensor dw(DType::kF32, {leaves, 19, 270});
    WeightGrad(dy.get().Slice(begin, count), x.get().Slice(begin, count), dw, *MakeCpuQueue(2));
    return dw;
  }

  HostTensor dy, x;
};

TEST(WeightGrad, MatchesFloat64) {
  for (int64_t tokens : {1, 16, 48, 600}) {
    const WeightProblem problem(tokens);
    const Doubles dy = problem.dy.ToDouble(), x = problem.x.ToDouble();
    Doubles leaves, sum(19 * 270);
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      const Doubles leaf = Product(dy.data() + slot * tokens * 19, true,
                                   x.data() + slot * tokens * 270, false, 19, 270, tokens);
      leaves.insert(leaves.end(), leaf.begin(), leaf.end());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += leaf[i];
    }
    EXPECT_LT(RelativeError(problem.Run(0, kSlots, kSlots).ToDouble(), leaves), kF32) << tokens;
    EXPECT_LT(RelativeError(problem.Run(0, kSlots, 1).ToDouble(), sum), kF32) << tokens;
  }
}

TEST(WeightGrad, LeavesAreTheSlotsAloneAndAddUpInOrder) {
  const WeightProblem problem(600);
  const HostTensor leaves = problem.Run(0, kSlots, kSlots), sum = problem.Run(0, kSlots, 1);
  std::vector<float> added(19 * 270);
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    const Tensor leaf = leaves.get().Slice(slot, 1);
    EXPECT_TRUE(SameBits(leaf, problem.Run(slot, 1, 1).get())) << slot;
    for (size_t i = 0; i < added.size(); ++i) added[i] += leaf.f32()[i];
  }
  EXPECT_EQ(std::memcmp(added.data(), sum.get().data(), sum.get().bytes()), 0);
}

TEST(WeightGrad, Adds) {
  const WeightProblem problem(16);
  const HostTensor fresh = problem.Run(0, 1, 1);
  HostTensor twice = problem.Run(0, 1, 1);
  WeightGrad(problem.dy.get().Slice(0, 1), problem.x.get().Slice(0, 1), twice, *MakeCpuQueue(1));
  for (int64_t i = 0; i < fresh.get().size(); ++i) {
    EXPECT_EQ(twice.get().f32()[i], 2 * fresh.get().f32()[i]);
  }
}

struct Relu2Shape {
  int64_t slots, tokens, in, hidden;
};

// What an element of a = u w adds to the loss sum(dy * y) of y = max(a, 0)^2 v^T.
double Relu2Term(double a, double dy_v) {
  const double positive = std::max(a, 0.0);
  return positive * positive * dy_v;
}

TEST(LinearRelu2, MatchesFloat64AndFiniteDifferences) {
  for (const auto& [slots, tokens, in, hidden] : std::vector<Relu2Shape>{
           {1, 1, 8, 24}, {2, 16, 24, 96}, {3, 48, 96, 270}, {1, 16, 768, 40}}) {
    const int64_t rows = slots * tokens;
    const HostTensor u = RandomTensor(DType::kBF16, {slots, tokens, in}, 1);
    const HostTensor w = RandomTensor(DType::kBF16, {in, hidden}, 2, 1 / std::sqrt(in));
    const HostTensor v = RandomTensor(DType::kBF16, {in, hidden}, 3);  // [out, hidden]
    const HostTensor dy = RandomTensor(DType::kBF16, {slots, tokens, in}, 4);
    HostTensor a(DType::kBF16, {slots, tokens, hidden}), b(DType::kBF16, {slots, tokens, hidden});
    HostTensor da(DType::kBF16, {slots, tokens, hidden});
    const auto queue = MakeCpuQueue(2);
    LinearRelu2(u, w, HiddenDim::kColumns, a, b, *queue);
    LinearRelu2Grad(dy, v, HiddenDim::kColumns, a, da, *queue);

    const Doubles got_a = a.ToDouble(), got_b = b.ToDouble();
    ExpectRounded(got_a,
                  Product(u.ToDouble().data(), false, w.ToDouble().data(), false, rows, hidden, in),
                  "a");
    const Doubles dy_v =
        Product(dy.ToDouble().data(), false, v.ToDouble().data(), false, rows, hidden, in);
    const Doubles got_da = da.ToDouble();
    for (size_t i = 0; i < got_a.size(); ++i) {
      const double positive = std::max(got_a[i], 0.0);
      // b comes from the rounded a, and is rounded once itself.
      EXPECT_EQ(got_b[i], RoundToBF16(static_cast<float>(positive * positive)));
      // Each element of a has its own term in the loss, so its difference is the loss's. The kink
      // at 0 adds at most h |dy_v|, the f32 sums some 1e-6 of their terms' sum.
      const double h = 1e-4;
      const double up = Relu2Term(got_a[i] + h, dy_v[i]), down = Relu2Term(got_a[i] - h, dy_v[i]);
      const double want = (up - down) / (2 * h);
      EXPECT_TRUE(WithinBf16Steps(got_da[i], want, 0.5, h * std::fabs(dy_v[i]) + 1e-3));
    }
  }
}

// [c, r] from [r, c].
HostTensor Transposed(const HostTensor& x) {
  const int64_t rows = x.get().dim(0), cols = x.get().dim(1);
  const Doubles from = x.ToDouble();
  Doubles to(from.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) to[j * rows + i] = from[i * cols + j];
  }
  HostTensor y(x.get().dtype(), {cols, rows});
  y.Set(to);
  return y;
}

// The hidden dim as rows: float64, and the same as kColumns of the transposed weight up to f32
// sums in another order, which may round to a neighbour in bf16.
TEST(LinearRelu2, HiddenDimAsRows) {
  for (const auto& [slots, tokens, in, hidden] : std::vector<Relu2Shape>{
           {1, 1, 8, 24}, {2, 16, 24, 96}, {3, 48, 96, 270}, {1, 16, 768, 40}}) {
    const int64_t rows = slots * tokens;
    const HostTensor u = RandomTensor(DType::kBF16, {slots, tokens, in}, 1);
    const HostTensor w = RandomTensor(DType::kBF16, {hidden, in}, 2, 1 / std::sqrt(in));
    const HostTensor dy = RandomTensor(DType::kBF16, {slots, tokens, in}, 4);
    const std::vector<int64_t> dims = {slots, tokens, hidden};
    HostTensor a(DType::kBF16, dims), b(DType::kBF16, dims), da(DType::kBF16, dims);
    HostTensor other_a(DType::kBF16, dims), other_b(DType::kBF16, dims);
    HostTensor other_da(DType::kBF16, dims);
    const auto queue = MakeCpuQueue(2);
    LinearRelu2(u, w, HiddenDim::kRows, a, b, *queue);
    LinearRelu2Grad(dy, w, HiddenDim::kRows, a, da, *queue);
    const HostTensor turned = Transposed(w);
    LinearRelu2(u, turned, HiddenDim::kColumns, other_a, other_b, *queue);
    LinearRelu2Grad(dy, turned, HiddenDim::kColumns, a, other_da, *queue);

    const auto product = [&](const HostTensor& x) {
      return Product(x.ToDouble().data(), false, w.ToDouble().data(), true, rows, hidden, in);
    };
    const Doubles want_a = product(u), dy_w = product(dy);
    const Doubles got_a = a.ToDouble(), got_b = b.ToDouble(), got_da = da.ToDouble();
    ExpectRounded(got_a, want_a, "a");
    for (size_t i = 0; i < got_a.size(); ++i) {
      const double positive = std::max(got_a[i], 0.0);
      ASSERT_EQ(got_b[i], RoundToBF16(static_cast<float>(positive * positive))) << i;
      const double want_da = dy_w[i] * 2 * positive;
      // One rounding; and where the product cancels, the f32 sums.
      ASSERT_TRUE(WithinBf16Steps(got_da[i], want_da, 0.5, 1e-4)) << i;
    }
    ExpectWithinBf16Steps(got_a, other_a.ToDouble(), 1, 1e-4, "a of both layouts");
    // A step of a is up to 2 sqrt(2) steps of its square, and the square is rounded on both sides.
    ExpectWithinBf16Steps(got_b, other_b.ToDouble(), 4, 1e-4, "b of both layouts");
    ExpectWithinBf16Steps(got_da, other_da.ToDouble(), 1, 1e-4, "da of both layouts");
  }
}

class SymmetricTest : public ::testing::TestWithParam<Shape> {};

// c is symmetric bit for bit, and MatMul's x x^T up to the last bit of its rounding.
TEST_P(SymmetricTest, MatchesMatMul) {
  const auto [batch, r, unused, k] = GetParam();
  const HostTensor x = RandomTensor(DType::kBF16, {batch, r, k}, 1);
  HostTensor addend = RandomTensor(DType::kBF16, {batch, r, r}, 2);
  for (int64_t m = 0; m < batch; ++m) {
    BF16* values = addend.get().At(m).bf16();
    for (int64_t i = 0; i < r; ++i) {
      for (int64_t j = 0; j < i; ++j) values[j * r + i] = values[i * r + j];
    }
  }
  for (float beta : {0.0f, -4.775f}) {
    HostTensor c(DType::kBF16, {batch, r, r}), product(DType::kF32, {batch, r, r});
    HostTensor wide(DType::kF32, {batch, r, r});
    wide.Set(addend.ToDouble());
    const auto queue = MakeCpuQueue(2);
    SymmetricProduct(x, 0.5f, beta, beta == 0 ? Tensor() : addend.get(), c, *queue);
    MatMul(x, x, product, {.trans_b = true, .alpha = 0.5f, .beta = beta}, wide, *queue);
    const Doubles got = c.ToDouble(), want = product.ToDouble();
    // A rounding, and f32 sums in another order.
    ExpectWithinBf16Steps(got, want, 0.5, 1e-3, "c");
    for (int64_t m = 0; m < batch; ++m) {
      const BF16* values = c.get().At(m).bf16();
      for (int64_t i = 0; i < r; ++i) {
        for (int64_t j = 0; j < i; ++j) ASSERT_EQ(values[i * r + j], values[j * r + i]) << i << j;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, SymmetricTest,
                         ::testing::Values(Shape{1, 1, 0, 8}, Shape{2, 24, 0, 96},
                                           Shape{3, 129, 0, 48}, Shape{1, 300, 0, 600}));

// The products that the orthogonaliser is made of map zero to zero.
TEST(SymmetricProduct, T1_36_ZeroStaysZero) {
  const HostTensor zero(DType::kBF16, {2, 24, 96});
  HostTensor c = RandomTensor(DType::kBF16, {2, 24, 24}, 1);
  HostTensor next = RandomTensor(DType::kBF16, {2, 24, 96}, 2);
  const auto queue = MakeCpuQueue(1);
  SymmetricProduct(zero, 1.0f, 0.0f, Tensor(), c, *queue);
  EXPECT_EQ(c.ToDouble(), Doubles(c.get().size(), 0.0));
  MatMul(c, zero, next, {.beta = 3.4445f}, zero, *queue);
  EXPECT_EQ(next.ToDouble(), Doubles(next.get().size(), 0.0));
}

TEST(MatMulDeathTest, ShapesAndTypesInTheMessage) {
  const HostTensor a(DType::kF32, {2, 3}), b(DType::kF32, {4, 5}), c(DType::kF32, {2, 5});
  const HostTensor half(DType::kBF16, {3, 5}), x(DType::kBF16, {1, 3, 5});
  const auto queue = MakeCpuQueue(1);
  EXPECT_DEATH(MatMul(a, b, c, {}, *queue), "MatMul: a f32 \\[2, 3\\], b f32 \\[4, 5\\]");
  EXPECT_DEATH(MatMul(a, half, c, {}, *queue), "MatMul: a f32 \\[2, 3\\], b bf16 \\[3, 5\\]");
  EXPECT_DEATH(MatMul(a, b.get().Reshape({5, 4}), c, {.trans_b = true}, *queue), "transposed");
  EXPECT_DEATH(WeightGrad(x, x, c, *queue),
               "WeightGrad: dw f32 \\[2, 5\\], wanted f32 \\[leaves, 5, 5\\]");
  EXPECT_DEATH(SymmetricProduct(x, 1, 0, Tensor(), x, *queue), "SymmetricProduct");
}

}  // namespace
}  // namespace kernels
