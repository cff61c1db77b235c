// Whole runs of track 2's record of 2025-04-16.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 6;

TrainConfig Record7Test(const std::string& name) {
  return TestConfig(FreshFolder(name), kSteps, {}, "record7");
}

Checkpoint Load(const TrainConfig& config, int64_t step) {
  absl::StatusOr<Checkpoint> checkpoint =
      LoadCheckpoint(absl::StrCat(config.checkpoint_root(), "/step-0000000", step));
  CHECK(checkpoint.ok()) << checkpoint.status();
  return *std::move(checkpoint);
}

TEST(Record7Train, SameBitsWithAnyNumberOfSlotsAPass) {
  TrainConfig config = Record7Test("record7_passes");
  const TestRun one = RunTraining(config);
  ASSERT_TRUE(one.status.ok()) << one.status;
  config.slots_per_pass = 3;
  EXPECT_TRUE(RunTraining(config) == one);
}

TEST(Record7Train, ResumingIsTheSameBits) {
  TrainConfig config = Record7Test("record7_resume");
  const std::string folder = fs::path(config.metrics).parent_path();
  config.out_dir = folder + "/out";
  config.checkpoint_every = 1;
  const TestRun whole = RunTraining(config);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  for (int64_t step = kSteps; step > 3; --step) {
    fs::remove_all(absl::StrCat(config.checkpoint_root(), "/step-0000000", step));
  }
  config.resume = true;
  config.world_size = 3;
  const TestRun rest = RunTraining(config);
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_TRUE(rest.weights == whole.weights);
}

// A weight's bf16 values as numbers that go up by one from value to value, zero at zero.
int Order(const std::string& bytes, size_t at) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + at, 2);
  return (bits & 0x8000) != 0 ? -(bits & 0x7FFF) : bits;
}

// The head is zero, so that in the first step nothing but the head has a gradient; but the decay
// makes every weight smaller by less than a bf16 step, and the truncation by one.
TEST(Record7Train, T2_04_T2_29_T2_30_TheFirstSteps) {
  TrainConfig config = Record7Test("record7_first");
  const std::string folder = fs::path(config.metrics).parent_path();
  config.out_dir = folder + "/out";
  config.checkpoint_every = 1;
  config.save_init = folder + "/init.safetensors";
  const TestRun run = RunTraining(config);
  ASSERT_TRUE(run.status.ok()) << run.status;
  double loss = 0;
  ASSERT_TRUE(absl::SimpleAtod(run.losses[0].substr(run.losses[0].rfind(':') + 1), &loss));
  EXPECT_NEAR(loss, std::log(384.0), 5e-6);
  const TensorMap init = ReadSafetensors(config.save_init)->tensors;
  const TensorMap once = Load(config, 1).model.tensors;
  const TensorMap twice = Load(config, 2).model.tensors;
  for (const auto& [name, tensor] : init) {
    const HostTensor& after = once.at(name);
    const bool qkvo = absl::EndsWith(name, "qkvo_w"), fc = absl::EndsWith(name, "fc_w");
    if (qkvo || fc) {
      const size_t moving = qkvo ? tensor.bytes.size() / 4 * 3 : tensor.bytes.size();
      for (size_t at = 0; at < moving; at += 2) {
        const int before = Order(tensor.bytes, at), now = Order(after.bytes, at);
        const int toward_zero = before > 0 ? before - 1 : before < 0 ? before + 1 : 0;
        ASSERT_EQ(now, toward_zero) << name << " element " << at / 2;
      }
      EXPECT_EQ(after.bytes.substr(moving), tensor.bytes.substr(moving)) << name << ": O";
    } else {
      EXPECT_EQ(after == tensor, name != "lm_head_w") << name;
    }
    if (absl::EndsWith(name, "proj_w") || name == "embed.weight") {
      EXPECT_FALSE(twice.at(name) == tensor) << name << " has a gradient in the second step";
    }
    if (absl::StartsWith(name, "value_embeds")) {
      EXPECT_TRUE(twice.at(name) == tensor) << name;
    }
  }
  const auto* head = reinterpret_cast<const float*>(once.at("lm_head_w").bytes.data());
  for (size_t i = 0; i < once.at("lm_head_w").bytes.size() / 4; ++i) {
    ASSERT_LE(std::abs(head[i]), 0.003125 * (1 + 1e-6));
  }
}

}  // namespace
}  // namespace tools
