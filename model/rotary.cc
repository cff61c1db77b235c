#include "model/rotary.h"

#include <cmath>

#include "third_party/absl_compat/check.h"

namespace model {

void FillRotary(const std::vector<float>& frequencies, std::span<kernels::BF16> cos,
                std::span<kernels::BF16> sin) {
  CHECK_EQ(cos.size(), sin.size());
  CHECK_EQ(cos.size() % frequencies.size(), 0u);
  size_t i = 0;
  for (size_t position = 0; i < cos.size(); ++position) {
    for (float frequency : frequencies) {
      const float theta = static_cast<float>(position) * frequency;
      cos[i] = kernels::ToBF16(std::cos(theta));
      sin[i] = kernels::ToBF16(std::sin(theta));
      ++i;
    }
  }
}

}  // namespace model
