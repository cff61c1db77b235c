#include "kernels/cuda/card_support.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace kernels {
namespace {

constexpr ComputeCapability kA100 = {8, 0}, kRtx3090 = {8, 6}, kRtx4090 = {8, 9}, kH100 = {9, 0},
                            kB200 = {10, 0}, kRtx5090 = {12, 0};

TEST(CompiledFor, AnArchitectureWithALetterServesItsOwnCards) {
  EXPECT_TRUE(CompiledFor("90a", kH100));
  for (const ComputeCapability& card : {kA100, kRtx3090, kRtx4090, kB200, kRtx5090}) {
    EXPECT_FALSE(CompiledFor("90a", card)) << Text(card);
  }
  EXPECT_TRUE(CompiledFor("100f", {10, 3}));
  EXPECT_FALSE(CompiledFor("100a", {10, 3}));
  EXPECT_FALSE(CompiledFor("103f", kB200));
  EXPECT_FALSE(CompiledFor("100f", kRtx5090));
}

TEST(CompiledFor, APlainOneServesLaterMinorVersionsAndTheNewestAllLaterCards) {
  EXPECT_TRUE(CompiledFor("80", kA100));
  EXPECT_TRUE(CompiledFor("80", kRtx3090));
  EXPECT_TRUE(CompiledFor("80", kH100)) << "by PTX";
  EXPECT_FALSE(CompiledFor("89", kRtx3090));
  EXPECT_FALSE(CompiledFor("89", kA100));
  EXPECT_FALSE(CompiledFor("80;120", kH100)) << "the only PTX is that of 120";
  EXPECT_TRUE(CompiledFor("80;89;90a;120", kH100));
  EXPECT_TRUE(CompiledFor("80;90a", kB200)) << "by PTX of 80";
  for (const ComputeCapability& card : {kA100, kRtx3090, kRtx4090, kRtx5090}) {
    EXPECT_TRUE(CompiledFor("80;89;90a;120", card)) << Text(card);
  }
  EXPECT_FALSE(CompiledFor("", kH100));
}

TEST(CheckCompiledFor, NamesTheCardAndTheFlag) {
  EXPECT_TRUE(CheckCompiledFor("90a", "NVIDIA H100", kH100).ok());
  const absl::Status status = CheckCompiledFor("90a", "NVIDIA GeForce RTX 4090", kRtx4090);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  for (const char* word : {"RTX 4090", "8.9", "90a", "--//kernels:cuda_archs=89"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), word)) << word << ": " << status;
  }
  EXPECT_TRUE(absl::StrContains(CheckCompiledFor("80;120", "NVIDIA H200", kH100).message(),
                                "--//kernels:cuda_archs=90a"));
}

TEST(CheckCardRuns, Fp8IsFrom89On) {
  const CardNeeds needs = {.fp8_head = true, .head_dim = 64};
  for (const ComputeCapability& card : {kRtx4090, kH100, kB200, kRtx5090}) {
    EXPECT_TRUE(CheckCardRuns(needs, "card", card).ok()) << Text(card);
  }
  for (const ComputeCapability& card : {kA100, kRtx3090, ComputeCapability{7, 5}}) {
    const absl::Status status = CheckCardRuns(needs, "NVIDIA A100", card);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << Text(card);
    EXPECT_TRUE(absl::StrContains(status.message(), "NVIDIA A100")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "8.9")) << status;
    EXPECT_TRUE(CheckCardRuns({.fp8_head = false, .head_dim = 64}, "card", card).ok());
  }
}

TEST(CheckCardRuns, HeadsOf128TakeMoreSharedMemoryThanSmallCardsHave) {
  const CardNeeds needs = {.fp8_head = false, .head_dim = 128};
  EXPECT_TRUE(CheckCardRuns(needs, "card", kA100).ok());
  EXPECT_TRUE(CheckCardRuns(needs, "card", kH100).ok());
  for (const ComputeCapability& card : {kRtx3090, kRtx4090, kRtx5090}) {
    const absl::Status status = CheckCardRuns(needs, "card", card);
    EXPECT_TRUE(absl::StrContains(status.message(), "shared memory")) << Text(card) << status;
    EXPECT_TRUE(CheckCardRuns({.fp8_head = true, .head_dim = 64}, "card", kRtx4090).ok());
  }
  EXPECT_TRUE(CheckCardRuns(needs, "a card of the future", {15, 0}).ok());
}

}  // namespace
}  // namespace kernels
