#include "model/bf16_normal.h"

#include <cmath>
#include <numbers>

namespace model {

using kernels::RoundToBF16;

BF16Normal::BF16Normal(float deviation) : deviation_(RoundToBF16(deviation)) {
  for (int i = 0; i < 256; ++i) {
    const float share = static_cast<float>(i) / 256;
    radius_[i] = RoundToBF16(std::sqrt(-2 * RoundToBF16(std::log(1 - share))));
    const float angle = RoundToBF16(static_cast<float>(2 * std::numbers::pi * share));
    cosine_[i] = RoundToBF16(std::cos(angle));
    sine_[i] = RoundToBF16(std::sin(angle));
  }
}

kernels::BF16 BF16Normal::Value(float radius, float direction) const {
  return kernels::ToBF16(RoundToBF16(radius * direction) * deviation_);
}

}  // namespace model
