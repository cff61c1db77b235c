#include "sched/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace sched {
namespace {

absl::Status BadField(const char* field, double value, const char* want) {
  return absl::InvalidArgumentError(
      absl::StrCat("rotary: ", field, " is ", value, "; it must be ", want));
}

}  // namespace

absl::Status Validate(const RotaryConfig& config) {
  if (config.head_dim < 8 || config.head_dim % 4 != 0) {
    return BadField("head_dim", config.head_dim, "a multiple of 4, at least 8");
  }
  if (!(config.base > 1) || !std::isfinite(config.base)) {
    return BadField("base", config.base, "finite and above 1");
  }
  if (!(config.attn_scale > 0) || !std::isfinite(config.attn_scale)) {
    return BadField("attn_scale", config.attn_scale, "finite and positive");
  }
  if (!(config.yarn_alpha >= 0) || !std::isfinite(config.yarn_alpha)) {
    return BadField("yarn_alpha", config.yarn_alpha, "finite and not negative");
  }
  if (!(config.yarn_beta > config.yarn_alpha) || !std::isfinite(config.yarn_beta)) {
    return BadField("yarn_beta", config.yarn_beta, "finite and above yarn_alpha");
  }
  return absl::OkStatus();
}

Rotary InitialRotary(const RotaryConfig& config) {
  CHECK(config.head_dim >= 8 && config.head_dim % 4 == 0) << "head_dim " << config.head_dim;
  const int rotated = config.head_dim / 4;
  Rotary rotary{.frequencies = std::vector<float>(config.head_dim / 2, 0.0f),
                .attn_scale = config.attn_scale};
  for (int j = 0; j < rotated; ++j) {
    rotary.frequencies[j] =
        static_cast<float>(std::pow(config.base, -static_cast<double>(j) / (rotated - 1)));
  }
  return rotary;
}

Rotary AfterYarn(const RotaryConfig& config, const Rotary& rotary, int64_t block_tokens,
                 int old_blocks, int new_blocks) {
  CHECK_GT(block_tokens, 0);
  CHECK_GT(old_blocks, 0);
  CHECK_GT(new_blocks, 0);
  const double shrink = static_cast<double>(old_blocks) / new_blocks;
  const float s = static_cast<float>(shrink);
  const float rest = static_cast<float>(1 - shrink);
  const float old_tokens = static_cast<float>(block_tokens * old_blocks);
  const float two_pi = static_cast<float>(2 * std::numbers::pi);
  const float alpha = static_cast<float>(config.yarn_alpha);
  const float range = static_cast<float>(config.yarn_beta - config.yarn_alpha);

  Rotary after = rotary;
  for (float& f : after.frequencies) {
    const float turns = old_tokens * f / two_pi;
    const float gamma = std::clamp((turns - alpha) / range, 0.0f, 1.0f);
    f *= s + gamma * rest;
  }
  after.attn_scale *= 0.2 * std::log(static_cast<double>(new_blocks) / old_blocks) + 1;
  return after;
}

Rotary RotaryAfter(const RotaryConfig& config, int64_t block_tokens,
                   absl::Span<const int> yarn_history) {
  CHECK(!yarn_history.empty());
  Rotary rotary = InitialRotary(config);
  for (size_t i = 1; i < yarn_history.size(); ++i) {
    rotary = AfterYarn(config, rotary, block_tokens, yarn_history[i - 1], yarn_history[i]);
  }
  return rotary;
}

Rotary RotaryAt(const RotaryConfig& config, const WindowSchedule& windows, const RunLength& run,
                int64_t step) {
  return RotaryAfter(config, windows.block_tokens, YarnHistory(windows, run, step));
}

}  // namespace sched
