#include "model/rotary.h"

#include <cmath>

#include "third_party/absl_compat/check.h"

namespace model {
namespace {

void Put(float x, float* y) { *y = x; }
void Put(float x, kernels::BF16* y) { *y = kernels::ToBF16(x); }

template <typename T>
void Fill(const std::vector<float>& frequencies, std::span<T> cos, std::span<T> sin) {
  CHECK_EQ(cos.size(), sin.size());
  CHECK_EQ(cos.size() % frequencies.size(), 0u);
  size_t i = 0;
  for (size_t position = 0; i < cos.size(); ++position) {
    for (float frequency : frequencies) {
      const float theta = static_cast<float>(position) * frequency;
      Put(std::cos(theta), &cos[i]);
      Put(std::sin(theta), &sin[i]);
      ++i;
    }
  }
}

}  // namespace

void FillRotary(const std::vector<float>& frequencies, std::span<kernels::BF16> cos,
                std::span<kernels::BF16> sin) {
  Fill(frequencies, cos, sin);
}

void FillRotary(const std::vector<float>& frequencies, std::span<float> cos, std::span<float> sin) {
  Fill(frequencies, cos, sin);
}

}  // namespace model
