#include "sched/rotary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "gtest/gtest.h"
#include "sched/run_length.h"
#include "sched/window.h"

namespace sched {
namespace {

Rotary RotaryA(int64_t step) {
  return RotaryAt(RotaryConfig(), WindowSchedule(), RunLength(), step);
}

// Half a unit of the sixth printed digit is at most 5e-6 of a value; three updates of about
// six fp32 roundings each add 18 * 2^-24 = 1.1e-6.
constexpr double kSixDigits = 6.2e-6;

TEST(Rotary, T1_20_InitialFrequencies) {
  const std::vector<float> f = InitialRotary(RotaryConfig()).frequencies;
  ASSERT_EQ(f.size(), 64u);
  EXPECT_EQ(f[0], 1.0f);
  EXPECT_EQ(f[31], 1.0f / 1024);
  for (int j = 32; j < 64; ++j) EXPECT_EQ(f[j], 0.0f) << j;
}

// Float64 throughout; ten printed decimals.
TEST(Rotary, T1_21_AttnScale) {
  EXPECT_EQ(RotaryA(0).attn_scale, 0.1);
  EXPECT_NEAR(RotaryA(547).attn_scale, 0.1169459572, 5.1e-11);
  EXPECT_NEAR(RotaryA(1094).attn_scale, 0.1275175238, 5.1e-11);
  EXPECT_NEAR(RotaryA(1680).attn_scale, 0.1317779884, 5.1e-11);
}

TEST(Rotary, T1_22_Frequency10) {
  EXPECT_NEAR(RotaryA(547).frequencies[10], 0.0567108, kSixDigits * 0.0567108);
  EXPECT_NEAR(RotaryA(1094).frequencies[10], 0.0408033, kSixDigits * 0.0408033);
  EXPECT_NEAR(RotaryA(1680).frequencies[10], 0.0361749, kSixDigits * 0.0361749);
}

// Seven printed digits: at most 2.5e-7 of values above 2e-4, and fp32 as above.
TEST(Rotary, T1_23_Frequency31) {
  EXPECT_NEAR(RotaryA(547).frequencies[31], 4.185268e-4, 1.4e-6 * 4.185268e-4);
  EXPECT_NEAR(RotaryA(1094).frequencies[31], 2.663352e-4, 1.4e-6 * 2.663352e-4);
  EXPECT_NEAR(RotaryA(1680).frequencies[31], 2.253606e-4, 1.4e-6 * 2.253606e-4);
}

TEST(Rotary, TableOfRecordA) {
  const int columns[] = {0, 3, 5, 8, 10, 15, 20, 31};
  const struct {
    int64_t step;
    double f[8];
  } rows[] = {
      {0, {1, 0.511306, 0.326940, 0.167166, 0.106890, 0.0349465, 0.0114254, 9.765625e-4}},
      {547, {1, 0.504225, 0.254507, 0.100042, 0.0567108, 0.0157087, 0.00489660, 4.185268e-4}},
      {1094, {1, 0.504225, 0.254507, 0.0792315, 0.0408033, 0.0102250, 0.00311602, 2.663352e-4}},
      {1680, {1, 0.504225, 0.254507, 0.0736302, 0.0361749, 0.00871741, 0.00263663, 2.253606e-4}},
  };
  for (const auto& row : rows) {
    const std::vector<float> f = RotaryA(row.step).frequencies;
    for (int i = 0; i < 8; ++i) {
      EXPECT_NEAR(f[columns[i]], row.f[i], kSixDigits * row.f[i])
          << "f_" << columns[i] << " at step " << row.step;
    }
    for (int j = 32; j < 64; ++j) EXPECT_EQ(f[j], 0.0f);
  }
}

// Of the 32 frequencies, 3, 6 and 7 are left alone and 13 each interpolated in full.
TEST(Rotary, KeepsFastAndInterpolatesSlowFrequencies) {
  const std::vector<int> history = {3, 7, 11, 13};
  const int kept[] = {3, 6, 7};
  Rotary before = InitialRotary(RotaryConfig());
  for (int i = 0; i < 3; ++i) {
    const Rotary after = AfterYarn(RotaryConfig(), before, 128, history[i], history[i + 1]);
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
    const RotaryConfig config{.head_dim = head_dim};
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
  const WindowSchedule windows;
  const RunLength run = Rescaled(RunLength(), 60);
  Rotary rotary = InitialRotary(RotaryConfig());
  int blocks = 3;
  for (int64_t step = 0; step <= run.total() + 2; ++step) {
    const int now = WindowsAt(windows, run, step).yarn_blocks;
    if (now != blocks) rotary = AfterYarn(RotaryConfig(), rotary, 128, blocks, now);
    blocks = now;
    ASSERT_EQ(RotaryAt(RotaryConfig(), windows, run, step), rotary) << step;
  }
}

TEST(Rotary, S1_RunOf0StepsIsFinite) {
  const RunLength none{.scheduled_steps = 0, .extension_steps = 0};
  const Rotary rotary = RotaryAt(RotaryConfig(), WindowSchedule(), none, 0);
  EXPECT_EQ(rotary, AfterYarn(RotaryConfig(), InitialRotary(RotaryConfig()), 128, 3, 13));
  EXPECT_TRUE(std::isfinite(rotary.attn_scale));
}

TEST(Rotary, RefusesValuesOutsideTheirRange) {
  EXPECT_EQ(Validate(RotaryConfig{.head_dim = 6}).message(),
            "rotary: head_dim is 6; it must be a multiple of 4, at least 8");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(Validate(RotaryConfig{.head_dim = 4}).ok());
  EXPECT_FALSE(Validate(RotaryConfig{.base = 1}).ok());
  EXPECT_FALSE(Validate(RotaryConfig{.base = nan}).ok());
  EXPECT_FALSE(Validate(RotaryConfig{.attn_scale = 0}).ok());
  EXPECT_FALSE(Validate(RotaryConfig{.yarn_alpha = -1}).ok());
  EXPECT_FALSE(Validate(RotaryConfig{.yarn_alpha = 2, .yarn_beta = 2}).ok());
  EXPECT_TRUE(Validate(RotaryConfig()).ok());
}

}  // namespace
}  // namespace sched
