#include "sched/rotary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "gtest/gtest.h"
#include "sched/run_length.h"
#include "sched/toy.h"
#include "sched/window.h"

namespace sched {
namespace {

// Of the 32 frequencies, 3, 6 and 7 are left alone and 13 each interpolated in full.
TEST(Rotary, KeepsFastAndInterpolatesSlowFrequencies) {
  const std::vector<int> history = {3, 7, 11, 13};
  const int kept[] = {3, 6, 7};
  Rotary before = InitialRotary(ToyRotary());
  for (int i = 0; i < 3; ++i) {
    const Rotary after = AfterYarn(ToyRotary(), before, 128, history[i], history[i + 1]);
    const float s = static_cast<float>(static_cast<double>(history[i]) / history[i + 1]);
    int same = 0;
    int interpolated = 0;
    for (int j = 0; j < 32; ++j) {
      same += after.frequencies[j] == before.frequencies[j];
      interpolated += after.frequencies[j] == before.frequencies[j] * s;
    }
    EXPECT_EQ(same, kept[i]) << i;
    EXPECT_EQ(interpolated, 13) << i;
    before = after;
  }
}

TEST(Rotary, MatchesFloat64) {
  for (const int head_dim : {8, 32, 64, 128}) {
    const int rotated = head_dim / 4;
    const int64_t block_tokens = head_dim;  // any will do, as long as it is used
    const std::vector<int> history = {3, 7, 11, 13, 5};
    std::vector<double> want(rotated);
    for (int j = 0; j < rotated; ++j) want[j] = std::pow(1024.0, -1.0 * j / (rotated - 1));
    double scale = 0.1;
    for (size_t i = 1; i < history.size(); ++i) {
      const double s = 1.0 * history[i - 1] / history[i];
      for (double& f : want) {
        const double turns = block_tokens * history[i - 1] * f / (2 * std::numbers::pi);
        f *= s + std::clamp((turns - 1) / 31, 0.0, 1.0) * (1 - s);
      }
      scale *= 0.2 * std::log(1.0 * history[i] / history[i - 1]) + 1;
    }
    const RotaryConfig config{.head_dim = head_dim, .base = 1024, .attn_scale = 0.1};
    const Rotary got = RotaryAfter(config, block_tokens, history);
    ASSERT_EQ(got.frequencies.size(), static_cast<size_t>(head_dim / 2));
    for (int j = 0; j < rotated; ++j) {
      // Four updates of about six fp32 roundings, doubled as an error in f enters gamma too.
      EXPECT_NEAR(got.frequencies[j], want[j], 48 * std::ldexp(1.0, -24) * want[j])
          << head_dim << " " << j;
    }
    EXPECT_NEAR(got.attn_scale, scale, 1e-15);
  }
}

// A resumed run that asks at its first step sees what an unbroken run has, bit for bit.
TEST(Rotary, ReplayEqualsStepByStep) {
  const WindowSchedule windows = ToyWindow();
  const RunLength run = Rescaled(ToyRun(), 60);
  Rotary rotary = InitialRotary(ToyRotary());
  int blocks = 3;
  for (int64_t step = 0; step <= run.total() + 2; ++step) {
    const int now = WindowsAt(windows, run, step).yarn_blocks;
    if (now != blocks) rotary = AfterYarn(ToyRotary(), rotary, 128, blocks, now);
    blocks = now;
    ASSERT_EQ(RotaryAt(ToyRotary(), windows, run, step), rotary) << step;
  }
}

TEST(Rotary, S1_RunOf0StepsIsFinite) {
  const RunLength none{.scheduled_steps = 0, .extension_steps = 0};
  const Rotary rotary = RotaryAt(ToyRotary(), ToyWindow(), none, 0);
  EXPECT_EQ(rotary, AfterYarn(ToyRotary(), InitialRotary(ToyRotary()), 128, 3, 13));
  EXPECT_TRUE(std::isfinite(rotary.attn_scale));
}

TEST(Rotary, RefusesValuesOutsideTheirRange) {
  EXPECT_EQ(Validate(With(ToyRotary(), [&](RotaryConfig& r) { r.head_dim = 6; })).message(),
            "rotary: head_dim is 6; it must be a multiple of 4, at least 8");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(Validate(With(ToyRotary(), [&](RotaryConfig& r) { r.head_dim = 4; })).ok());
  EXPECT_FALSE(Validate(With(ToyRotary(), [&](RotaryConfig& r) { r.base = 1; })).ok());
  EXPECT_FALSE(Validate(With(ToyRotary(), [&](RotaryConfig& r) { r.base = nan; })).ok());
  EXPECT_FALSE(Validate(With(ToyRotary(), [&](RotaryConfig& r) { r.attn_scale = 0; })).ok());
  EXPECT_FALSE(Validate(With(ToyRotary(), [&](RotaryConfig& r) { r.yarn_alpha = -1; })).ok());
  EXPECT_FALSE(
      Validate(With(ToyRotary(), [](RotaryConfig& r) { r.yarn_alpha = r.yarn_beta = 2; })).ok());
  EXPECT_TRUE(Validate(ToyRotary()).ok());
}

}  // namespace
}  // namespace sched
