#include "tools/bench_step/step_table.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "data/token_map.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tools/bench_step/ceilings.h"
#include "tools/bench_step/synthetic_tokens.h"
#include "tools/bench_step/temporary_folder.h"

namespace tools {
namespace {

kernels::TracedOp Op(const std::string& name, kernels::OpPhase phase, double begin_s, double end_s,
                     double flops, double bytes, bool fp8 = false) {
  kernels::TracedOp op;
  op.name = name;
  op.cost.phase = phase;
  op.cost.shape = "bf16 [1]";
  op.cost.flops = flops;
  op.cost.fp8 = fp8;
  op.cost.bytes = bytes;
  op.begin_s = begin_s;
  op.end_s = end_s;
  return op;
}

// A GPU of 1 TFLOP/s and 1 GB/s.
Ceilings RoundCeilings() {
  Ceilings ceilings;
  ceilings.bf16_flops_per_s = 1e12;
  ceilings.fp8_flops_per_s = 2e12;
  ceilings.copy_bytes_per_s = 1e9;
  return ceilings;
}

std::vector<TracedStep> TwoSteps() {
  TracedStep step;
  step.begin_s = 1.0;
  step.end_s = 1.010;
  // Bound by products (1 ms), by bytes (2 ms), and by fp8 products (1 ms).
  step.ops = {Op("MatMul", kernels::OpPhase::kGemm, 1.000, 1.002, 1e9, 1e5),
              Op("RmsNorm", kernels::OpPhase::kNormElementwise, 1.002, 1.006, 0, 2e6),
              Op("HeadLossGrad", kernels::OpPhase::kHeadLoss, 1.006, 1.007, 2e9, 0, true)};
  return {step, step};
}

TEST(StepTable, FloorIsTheSlowerOfProductsAndBytes) {
  const std::string table = PhaseTable(TwoSteps(), RoundCeilings());
  for (const char* row : {"| gemm | 1 | 2.000 | 0.0001 | 0.001 | 1.000 | 2.00 |\n",
                          "| norm/elementwise | 1 | 4.000 | 0.002 | 0 | 2.000 | 2.00 |\n",
                          "| head+loss | 1 | 1.000 | 0 | 0.002 | 1.000 | 1.00 |\n",
                          "| embedding | 0 | 0.000 | 0 | 0 | 0.000 | - |\n", "| gaps | - | 3.000 |",
                          "| traced step | 3 | 10.000 | 0.0021 | 0.003 | 4.000 | 2.50 |\n"}) {
    EXPECT_TRUE(absl::StrContains(table, row)) << "no row " << row << " in\n" << table;
  }
}

TEST(StepTable, OpsThatLoseMostComeFirst) {
  const std::string table = OpTable(TwoSteps(), RoundCeilings());
  const size_t norm = table.find("| RmsNorm | norm/elementwise | bf16 [1] |");
  const size_t product = table.find("| MatMul | gemm |");
  const size_t head = table.find("| HeadLossGrad | head+loss |");
  EXPECT_LT(norm, product);
  EXPECT_LT(product, head);
  EXPECT_NE(head, std::string::npos);
}

TEST(StepTable, StepText) {
  const TimedSteps timed{
      .step_ms = {9, 10, 11}, .batch_tokens = 1000, .memory_bytes = 1 << 29, .flops = 5e9};
  const std::string text = StepText(timed, RoundCeilings());
  for (const char* row : {"10.000 (9.000, 11.000)", "| tokens/s | 100000 |", "| TFLOP/s | 0.5 |",
                          "| 50.0 % |", "| 0.500 GiB |"}) {
    EXPECT_TRUE(absl::StrContains(text, row)) << "no " << row << " in\n" << text;
  }
  EXPECT_EQ(StepFlops(TwoSteps()), 3e9);
}

TEST(Ceilings, OfThisCpu) {
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(2);
  const absl::StatusOr<Ceilings> ceilings = MeasureCeilings(kernels::CpuBackend(), *queue);
  ASSERT_TRUE(ceilings.ok()) << ceilings.status();
  // Wide bounds: no CPU is slower than 100 MFLOP/s and 10 MB/s, none faster than 1 PFLOP/s and
  // 100 TB/s; a wrong unit or count is out by a factor of a thousand.
  EXPECT_GT(ceilings->bf16_flops_per_s, 1e8);
  EXPECT_LT(ceilings->bf16_flops_per_s, 1e15);
  EXPECT_GT(ceilings->copy_bytes_per_s, 1e7);
  EXPECT_LT(ceilings->copy_bytes_per_s, 1e14);
  EXPECT_EQ(ceilings->fp8_flops_per_s, ceilings->bf16_flops_per_s);
}

TEST(SyntheticTokens, DocumentsOfTextLikeLengthsAndFrequencies) {
  constexpr int64_t kCount = 2'000'000;
  const std::vector<uint16_t> tokens = SyntheticDocuments(kCount, 1);
  ASSERT_GE(static_cast<int64_t>(tokens.size()), kCount);
  ASSERT_EQ(tokens[0], data::kGpt2Bos);
  EXPECT_EQ(tokens, SyntheticDocuments(kCount, 1));
  EXPECT_NE(tokens, SyntheticDocuments(kCount, 2));
  int64_t documents = 0, length = 0, longest = 0, zeros = 0;
  for (uint16_t token : tokens) {
    ASSERT_LE(token, data::kGpt2Bos);
    if (token == data::kGpt2Bos) {
      ++documents;
      length = 0;
    }
    longest = std::max(longest, ++length);
    if (token == 0) ++zeros;
  }
  EXPECT_EQ(longest, 2048);
  // The cut takes the mean of 600 down to about 540; 3,700 documents leave it uncertain by 2 %.
  const double mean = static_cast<double>(tokens.size()) / documents;
  EXPECT_GT(mean, 500);
  EXPECT_LT(mean, 600);
  // Zipf's first: ln 2 / ln 50256 = 6.4 %.
  EXPECT_NEAR(static_cast<double>(zeros) / tokens.size(), 0.064, 0.003);
}

TEST(TemporaryFolder, GoesAway) {
  std::string path;
  {
    const absl::StatusOr<std::unique_ptr<TemporaryFolder>> folder = TemporaryFolder::Create();
    ASSERT_TRUE(folder.ok()) << folder.status();
    path = (*folder)->path();
    EXPECT_TRUE(std::filesystem::is_directory(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace tools
