// Normal numbers as PyTorch 2.10 and 2.11 draw them into a bf16 tensor on a CPU (Tensor.normal_).
// The originals of 2026 ran with these; later ones draw in f32 and round.
#ifndef MODEL_BF16_NORMAL_H_
#define MODEL_BF16_NORMAL_H_

#include <array>
#include <cstdint>

#include "kernels/dtype.h"

namespace model {

// Box and Muller (1958) from two uniform numbers of 8 bits, as many as bf16 has, with every step
// rounded to bf16:
//   radius = sqrt(-2 log(1 - a / 256)),  value = radius cos(2 pi b / 256) deviation, or with sin
//
// 2,379 values can come out. Times the deviation the standard deviation is 0.9927, the largest
// value 3.32, the kurtosis 2.92; a draw in f32 that is rounded to bf16 has 1, some 5.5 and 3.
class BF16Normal {
 public:
  // `deviation` is rounded to bf16 as well.
  explicit BF16Normal(float deviation);

  kernels::BF16 Cosine(uint8_t a, uint8_t b) const { return Value(radius_[a], cosine_[b]); }
  kernels::BF16 Sine(uint8_t a, uint8_t b) const { return Value(radius_[a], sine_[b]); }

 private:
  kernels::BF16 Value(float radius, float direction) const;

  float deviation_;
  std::array<float, 256> radius_, cosine_, sine_;
};

}  // namespace model

#endif  // MODEL_BF16_NORMAL_H_
