// Optimizer ops and SymmetricProduct on CUDA against the CPU's.
#include "kernels/ops/optimizer.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/ops/matmul.h"

namespace kernels {
namespace {

// Two values that f32 cannot tell apart may round to neighbours in bf16: one unit in the last place
// of a value just above a power of two.
constexpr double kNeighbour = 2 * kBf16Roundoff;

// The arithmetic is the same f32 operations in the same order; a CPU without fused multiply-add
// rounds products as well. f32 results then differ by a few 2^-24 of the terms, which may cancel.
double Error(DType dtype) { return dtype == DType::kF32 ? 1e-6 : kNeighbour; }

class OptimizerTest : public CudaTest {
 protected:
  static AdamArgs Adam(Tensor p, Tensor g, Tensor m, Tensor v, Tensor rates, Tensor guard = {}) {
    AdamArgs args{.p = p, .g = g, .m = m, .v = v, .rates = rates, .guard = guard};
    args.beta1 = 0.8f;
    args.beta2 = 0.95f;
    return args;
  }
  Tensor OnCuda(DType dtype, std::vector<int64_t> dims, const std::vector<double>& values) {
    const Twin twin = Of(dtype, std::move(dims), values);
    return twin.cuda;
  }
};

TEST_F(OptimizerTest, Adam) {
  for (DType weights : {DType::kF32, DType::kBF16}) {
    for (DType moments : {DType::kF32, DType::kBF16}) {
      for (int64_t n : {1, 3, 8, 1003, 1 << 18}) {
        const Twin p = Normal(weights, {n}), g = Normal(DType::kF32, {n});
        const Twin m = Normal(moments, {n}, 0.1), v = Uniform(moments, {n}, 0.0, 1.0);
        const Twin rates = Of(DType::kF32, {3}, {0.03, 0.99, 1e-8});
        for (int step = 0; step < 2; ++step) {
          Both([&](Side side, Queue& queue) {
            AdamUpdate(Adam(p.on(side), g.on(side), m.on(side), v.on(side), rates.on(side)), queue);
          });
        }
        // Two steps, so two roundings.
        ExpectClose(p, 2 * Error(weights), 0, "p");
        ExpectClose(m, 2 * Error(moments), 0, "m");
        ExpectClose(v, 2 * Error(moments), 0, "v");
      }
    }
  }
}

TEST_F(OptimizerTest, AdamOnHalves) {
  for (int64_t n : {3, 1003, 1 << 18}) {
    const Twin p = Normal(DType::kBF16, {n}), g = Normal(DType::kF32, {n});
    const Twin lower = Of(DType::kU16, {n}, std::vector<double>(n, 0.0));
    const Twin m = Normal(DType::kF32, {n}, 0.1), v = Uniform(DType::kF32, {n}, 0.0, 1.0);
    const Twin rates = Of(DType::kF32, {3}, {0.03, 0.99, 1e-8});
    for (int step = 0; step < 3; ++step) {
      Both([&](Side side, Queue& queue) {
        AdamArgs args = Adam(p.on(side), g.on(side), m.on(side), v.on(side), rates.on(side));
        args.mantissa = lower.on(side);
        AdamUpdate(args, queue);
      });
    }
    // Truncation to the upper half may fall to either side of a weight that both agree on to f32.
    ExpectClose(p, 2 * Error(DType::kBF16), 0, "p");
    ExpectClose(m, Error(DType::kF32), 0, "m");
    ExpectClose(v, Error(DType::kF32), 0, "v");
  }
}

// The epsilon inside of the bias correction: it shrinks with sqrt(1 - beta2^t), as the host gives
// it. lr 1/320, betas 0.8 and 0.95, eps 1e-10.
TEST_F(OptimizerTest, T2_32_AdamWithTheEpsilonInside) {
  const std::vector<double> gradients = {1e-6, 1e-6, -2e-6};
  const std::vector<double> want = {-0.0031246875, -0.0062493751, -0.0057486953};
  const Twin p = Zeros(DType::kF32, {1}), m = Zeros(DType::kF32, {1}), v = Zeros(DType::kF32, {1});
  for (int i = 0; i < 3; ++i) {
    const double root = std::sqrt(1 - std::pow(0.95, i + 1));
    const double step_size = root / 320 / (1 - std::pow(0.8, i + 1));
    const Tensor rates = OnCuda(DType::kF32, {3}, {step_size, 1, 1e-10 * root});
    AdamUpdate(Adam(p.cuda, OnCuda(DType::kF32, {1}, {gradients[i]}), m.cuda, v.cuda, rates),
               cuda());
    cuda().Synchronize();
    EXPECT_NEAR(OnHost(p.cuda)[0], want[i], 1e-6 * std::fabs(want[i])) << i;
  }
}

TEST_F(OptimizerTest, Momentum) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t n : {1, 7, 1003, 1 << 18}) {
      const Twin g = Normal(DType::kF32, {n}), m = Normal(dtype, {n}, 0.1);
      const Twin mu = Of(DType::kF32, {1}, {0.9}), u = Output(DType::kBF16, {n});
      Both([&](Side side, Queue& queue) {
        MomentumUpdate({.g = g.on(side),
                        .m = m.on(side),
                        .mu = mu.on(side),
                        .u = u.on(side),
                        .gradient = dtype},
                       queue);
      });
      ExpectClose(m, Error(dtype), 0, "m");
      ExpectClose(u, kNeighbour, 0, "u");
    }
  }
}

TEST_F(OptimizerTest, MatrixUpdate) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [rows, cols] : {std::pair{1, 12}, {3, 5}, {130, 131}, {768, 768}}) {
      const Twin p = Normal(dtype, {3, rows, cols});
      const Twin o = Normal(DType::kBF16, {3, rows, cols}, 0.1);
      const Twin lr = Of(DType::kF32, {3}, {0.05, 0.02, 0.3});
      const Twin decay = Of(DType::kF32, {3}, {1, 0.9, 0.5});
      Both([&](Side side, Queue& queue) {
        MatrixUpdate({.p = p.on(side), .o = o.on(side), .lr = lr.on(side), .decay = decay.on(side)},
                     queue);
      });
      ExpectClose(p, Error(dtype), 0, "p");
    }
  }
}

// One call on n elements against calls on uneven pieces, which start at any alignment, bitwise.
TEST_F(OptimizerTest, ElementwiseBitsDoNotDependOnCuts) {
  const int64_t n = 40003;
  const std::vector<std::vector<int64_t>> cuts = {{n}, {1, 7, 16384, 3, 23605, 3}};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Twin g = Normal(DType::kF32, {n}), start = Normal(dtype, {n});
    const std::vector<double> values = OnHost(start.cuda);
    const Twin rates = Of(DType::kF32, {3}, {0.03, 0.99, 1e-8}), mu = Of(DType::kF32, {1}, {0.9});
    std::vector<std::vector<uint8_t>> want;
    for (const std::vector<int64_t>& pieces : cuts) {
      const Tensor p = OnCuda(dtype, {n}, values), m = OnCuda(dtype, {n}, values);
      const Tensor v = Zeros(dtype, {n}).cuda, k = OnCuda(dtype, {n}, values);
      const Tensor u = Output(DType::kBF16, {n}).cuda;
      int64_t begin = 0;
      for (int64_t size : pieces) {
        const auto cut = [&](const Tensor& t) { return t.Slice(begin, size); };
        AdamUpdate(Adam(cut(p), cut(g.cuda), cut(m), cut(v), rates.cuda), cuda());
        MomentumUpdate(
            {.g = cut(g.cuda), .m = cut(k), .mu = mu.cuda, .u = cut(u), .gradient = k.dtype()},
            cuda());
        begin += size;
      }
      ASSERT_EQ(begin, n);
      cuda().Synchronize();
      std::vector<std::vector<uint8_t>> got;
      for (const Tensor& t : {p, m, v, k, u}) got.push_back(Bytes(t));
      if (want.empty()) want = got;
      EXPECT_EQ(got, want) << dtype;
    }
  }
}

TEST_F(OptimizerTest, NormalizeFrobenius) {
  for (const auto& [rows, cols] : {std::pair{1, 12}, {6, 12}, {5, 7}, {127, 129}, {768, 768}}) {
    const Twin u = Normal(DType::kBF16, {3, rows, cols});
    const Twin x = Output(DType::kBF16, {3, rows, cols});
    const auto run = [&](Side side, Queue& queue) {
      NormalizeFrobenius(u.on(side), 1.0f, 1e-7f, x.on(side), queue);
    };
    Both(run);
    ExpectClose(x, kNeighbour);  // the norms differ in the last bits of f32
    ExpectRepeats([&](Queue& queue) { run(Side::kCuda, queue); }, {x.cuda});
    // A matrix alone, which may start elsewhere, and in place.
    const std::vector<uint8_t> all = Bytes(x.cuda);
    const int64_t bytes = 2 * rows * cols;
    for (int64_t b = 0; b < 3; ++b) {
      NormalizeFrobenius(u.cuda.Slice(b, 1), 1.0f, 1e-7f, u.cuda.Slice(b, 1), cuda());
      cuda().Synchronize();
      EXPECT_EQ(Bytes(u.cuda.Slice(b, 1)),
                std::vector<uint8_t>(all.begin() + b * bytes, all.begin() + (b + 1) * bytes));
    }
  }
}

TEST_F(OptimizerTest, T1_36_ZeroMatrixStaysZero) {
  const Twin u = Zeros(DType::kBF16, {2, 6, 12}), x = Output(DType::kBF16, {2, 6, 12});
  NormalizeFrobenius(u.cuda, 1.0f, 1e-7f, x.cuda, cuda());
  cuda().Synchronize();
  for (double value : OnHost(x.cuda)) EXPECT_EQ(value, 0.0);
}

// w: the sums differ by their order, 1e-6 of them; p follows, and is rounded once.
TEST_F(OptimizerTest, SecondMoment) {
  struct Shape {
    int64_t batch, rows, cols;
  };
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (bool per_row : {false, true}) {
      for (const Shape& s : {Shape{1, 1, 12},
                             {10, 6, 12},
                             {3, 5, 7},
                             {2, 130, 131},
                             {2, 65, 264},
                             {4, 768, 768},
                             {2, 768, 3072}}) {
        const Twin o = Normal(DType::kBF16, {s.batch, s.rows, s.cols}, 0.04);
        const Twin w = Uniform(dtype, {s.batch, per_row ? s.rows : s.cols}, 0.0, 0.002);
        const Twin p = Output(DType::kBF16, {s.batch, s.rows, s.cols});
        const auto args = [&](Side side) {
          return SecondMomentArgs{.o = o.on(side),
                                  .w = w.on(side),
                                  .p = p.on(side),
                                  .beta2 = 0.95f,
                                  .per_row = per_row};
        };
        const std::vector<double> start = OnHost(w.cuda);
        Both([&](Side side, Queue& queue) { NormalizeBySecondMoment(args(side), queue); });
        ExpectClose(w, dtype == DType::kF32 ? 1e-5 : kNeighbour, 0, "w");
        ExpectClose(p, kNeighbour, 0, "p");
        Set(w.cuda, start);
        ExpectRepeats([&](Queue& queue) { NormalizeBySecondMoment(args(Side::kCuda), queue); },
                      {p.cuda, w.cuda});
        // A matrix alone, which may start elsewhere, and in place.
        const std::vector<uint8_t> all = Bytes(p.cuda);
        const int64_t bytes = 2 * s.rows * s.cols;
        Set(w.cuda, start);
        for (int64_t b = 0; b < s.batch; ++b) {
          const Tensor own = o.cuda.Slice(b, 1);
          NormalizeBySecondMoment(
              {.o = own, .w = w.cuda.Slice(b, 1), .p = own, .beta2 = 0.95f, .per_row = per_row},
              cuda());
          cuda().Synchronize();
          EXPECT_EQ(Bytes(own),
                    std::vector<uint8_t>(all.begin() + b * bytes, all.begin() + (b + 1) * bytes));
        }
      }
    }
  }
}

TEST_F(OptimizerTest, T1_36_SecondMomentOfZero) {
  const Twin o = Zeros(DType::kBF16, {2, 6, 12}), w = Zeros(DType::kF32, {2, 12});
  const Twin p = Output(DType::kBF16, {2, 6, 12});
  NormalizeBySecondMoment({.o = o.cuda, .w = w.cuda, .p = p.cuda, .beta2 = 0.95f}, cuda());
  cuda().Synchronize();
  for (double value : OnHost(p.cuda)) EXPECT_EQ(value, 0.0);
}

TEST_F(OptimizerTest, ZeroGuardChangesNothing) {
  const int64_t n = 2 * 30 * 35;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Twin g = Normal(DType::kF32, {n}), u = Output(DType::kBF16, {n});
    std::vector<double> gradient = OnHost(g.cuda);
    gradient[n / 2] = NAN;
    Set(g.cuda, gradient);
    const Twin p = Normal(dtype, {n}), m = Normal(dtype, {n}), v = Uniform(dtype, {n}, 0.0, 1.0);
    const Twin k = Normal(dtype, {n}), w = Normal(dtype, {2, 30, 35});
    const Twin o = Normal(DType::kBF16, {2, 30, 35}),
               rates = Of(DType::kF32, {3}, {0.03, 0.99, 1e-8});
    const Twin mu = Of(DType::kF32, {1}, {0.9}), lr = Of(DType::kF32, {2}, {0.05, 0.02});
    const Twin decay = Of(DType::kF32, {2}, {1, 0.9});
    const Twin moment = Uniform(dtype, {2, 35}, 0.0, 1.0), out = Output(DType::kBF16, {2, 30, 35});
    const auto state = [&] {
      std::vector<std::vector<uint8_t>> all;
      for (const Twin* t : {&p, &m, &v, &k, &w, &moment}) all.push_back(Bytes(t->cuda));
      return all;
    };
    const auto step = [&](int32_t on) {
      const Tensor guard = Ints({1}, on, on + 1).cuda;
      AdamUpdate(Adam(p.cuda, g.cuda, m.cuda, v.cuda, rates.cuda, guard), cuda());
      MomentumUpdate({.g = g.cuda, .m = k.cuda, .mu = mu.cuda, .guard = guard, .u = u.cuda},
                     cuda());
      NormalizeBySecondMoment(
          {.o = o.cuda, .w = moment.cuda, .guard = guard, .p = out.cuda, .beta2 = 0.95f}, cuda());
      MatrixUpdate({.p = w.cuda, .o = o.cuda, .lr = lr.cuda, .decay = decay.cuda, .guard = guard},
                   cuda());
      cuda().Synchronize();
    };
    const auto before = state();
    step(0);
    EXPECT_EQ(state(), before) << dtype;
    step(1);
    const auto after = state();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_NE(after[i], before[i]) << i;
  }
}

class SymmetricProductTest : public CudaTest {
 protected:
  void ExpectSymmetric(Tensor c) {
    const int64_t rows = c.dim(1);
    const std::vector<uint8_t> bytes = Bytes(c);
    std::vector<uint16_t> bits(bytes.size() / 2);
    std::memcpy(bits.data(), bytes.data(), bytes.size());
    int64_t differ = 0;
    for (int64_t b = 0; b < c.dim(0); ++b) {
      const uint16_t* matrix = bits.data() + b * rows * rows;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < i; ++j) differ += matrix[i * rows + j] != matrix[j * rows + i];
      }
    }
    EXPECT_EQ(differ, 0) << c;
  }
};

struct Shape {
  int64_t batch, rows, cols;
};

// Sums of `cols` products in f32 differ by their order, about 1e-6 of their rms; then one rounding
// to bf16. Off the diagonal a sum is far smaller than on it: ExpectClose grants the rms of all.
TEST_F(SymmetricProductTest, MatchesCpu) {
  for (const Shape& s : {Shape{1, 1, 12},
                         {3, 6, 12},
                         {2, 48, 80},
                         {2, 128, 768},
                         {1, 768, 3072},
                         {3, 200, 136},
                         {2, 33, 64},
                         {2, 40, 8},
                         {1, 264, 72}}) {
    const Twin x = Normal(DType::kBF16, {s.batch, s.rows, s.cols});
    const Twin c = Output(DType::kBF16, {s.batch, s.rows, s.rows});
    const auto run = [&](Side side, Queue& queue) {
      SymmetricProduct(x.on(side), 0.5f, 0.0f, Tensor(), c.on(side), queue);
    };
    Both(run);
    ExpectClose(c, kNeighbour);
    ExpectSymmetric(c.cuda);
    ExpectRepeats([&](Queue& queue) { run(Side::kCuda, queue); }, {c.cuda});
  }
}

// c = b A + a A A^T, A symmetric: the second product of a Newton-Schulz iteration.
TEST_F(SymmetricProductTest, WithAddend) {
  for (const Shape& s : {Shape{3, 6, 12}, {2, 48, 80}, {2, 200, 136}, {2, 768, 768}}) {
    const Twin x = Normal(DType::kBF16, {s.batch, s.rows, s.cols}, 1 / std::sqrt(s.cols));
    const Twin gram = Output(DType::kBF16, {s.batch, s.rows, s.rows});
    Both([&](Side side, Queue& queue) {
      SymmetricProduct(x.on(side), 1.0f, 0.0f, Tensor(), gram.on(side), queue);
    });
    // The same bits on both sides, so that only the second product is compared.
    Set(gram.cuda, OnHost(gram.cpu));
    const Twin c = Output(DType::kBF16, {s.batch, s.rows, s.rows});
    const auto run = [&](Side side, Queue& queue) {
      SymmetricProduct(gram.on(side), 2.0315f, -4.775f, gram.on(side), c.on(side), queue);
    };
    Both(run);
    // The terms cancel in part, but each is below 10 times the result's rms: 1e-6 of that is
    // nothing beside a rounding to bf16.
    ExpectClose(c, kNeighbour);
    ExpectSymmetric(c.cuda);
    ExpectRepeats([&](Queue& queue) { run(Side::kCuda, queue); }, {c.cuda});
  }
}

// A matrix's bits do not depend on how many others there are.
TEST_F(SymmetricProductTest, MatricesAreIndependent) {
  const Twin x = Normal(DType::kBF16, {3, 200, 136}), c = Output(DType::kBF16, {3, 200, 200});
  SymmetricProduct(x.cuda, 1.0f, 0.0f, Tensor(), c.cuda, cuda());
  for (int64_t b = 0; b < 3; ++b) {
    const Tensor alone = Output(DType::kBF16, {1, 200, 200}).cuda;
    SymmetricProduct(x.cuda.Slice(b, 1), 1.0f, 0.0f, Tensor(), alone, cuda());
    cuda().Synchronize();
    EXPECT_EQ(Bytes(alone), Bytes(c.cuda.Slice(b, 1))) << b;
  }
}

}  // namespace
}  // namespace kernels
