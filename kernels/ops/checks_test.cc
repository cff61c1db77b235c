#include "kernels/ops/checks.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace kernels {
namespace {

char memory[1];  // checks read shapes only
const Tensor kMatrix(memory, DType::kBF16, {2, 3});

TEST(Checks, WhatFitsPasses) {
  CheckTensor("Op", "x", kMatrix, DType::kBF16, {2, 3});
  CheckLike("Op", "x", kMatrix, DType::kBF16, "y", Tensor(memory, DType::kF32, {2, 3}));
  CheckRank("Op", "x", kMatrix, DType::kBF16, 2);
  for (int64_t leaves : {1, 4}) {
    CheckLeaves("Op", "dw", Tensor(memory, DType::kF32, {leaves, 2, 3}), 4, {2, 3});
  }
  EXPECT_TRUE(IsFloat(kMatrix) && IsFloat(Tensor(memory, DType::kF32, {1})));
  EXPECT_FALSE(IsFloat(Tensor(memory, DType::kI32, {1})));
}

TEST(ChecksDeathTest, MessagesNameOpArgumentAndWhatIsWanted) {
  EXPECT_DEATH(CheckTensor("Op", "x", Tensor(), DType::kF32, {2}), "Op: x is empty");
  EXPECT_DEATH(CheckTensor("Op", "x", kMatrix, DType::kF32, {2, 3}),
               "Op: x bf16 \\[2, 3\\], wanted f32 \\[2, 3\\]");
  EXPECT_DEATH(CheckTensor("Op", "x", kMatrix, DType::kBF16, {2, 3, 1}), "wanted bf16 .2, 3, 1");
  EXPECT_DEATH(CheckTensor("Op", "x", kMatrix, DType::kBF16, {3, 2}), "wanted bf16 .3, 2");
  EXPECT_DEATH(
      CheckLike("Op", "x", kMatrix, DType::kBF16, "y", Tensor(memory, DType::kBF16, {3, 2})),
      "Op: x bf16 \\[2, 3\\], y bf16 \\[3, 2\\]");
  EXPECT_DEATH(CheckLike("Op", "x", kMatrix, DType::kF32, "y", kMatrix), "Op: x bf16");
  EXPECT_DEATH(CheckRank("Op", "x", kMatrix, DType::kBF16, 3),
               "Op: x bf16 \\[2, 3\\], wanted bf16 of 3 dims");
}

TEST(ChecksDeathTest, OneLeafOrOneASlot) {
  const auto check = [](DType dtype, std::vector<int64_t> dims) {
    CheckLeaves("Op", "dw", Tensor(memory, dtype, dims), 4, {2, 3});
  };
  EXPECT_DEATH(CheckLeaves("Op", "dw", Tensor(), 4, {2}), "Op: dw is empty");
  EXPECT_DEATH(check(DType::kF32, {2, 2, 3}),
               "Op: dw f32 \\[2, 2, 3\\], wanted f32 \\[leaves, 2, 3\\] of one leaf or 4");
  EXPECT_DEATH(check(DType::kF32, {4, 3, 2}), "Op: dw");
  EXPECT_DEATH(check(DType::kF32, {4, 6}), "Op: dw");
  EXPECT_DEATH(check(DType::kBF16, {4, 2, 3}), "Op: dw");
}

}  // namespace
}  // namespace kernels
