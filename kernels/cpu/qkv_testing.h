// What the tests of QKV and of the gates share.
#ifndef KERNELS_CPU_QKV_TESTING_H_
#define KERNELS_CPU_QKV_TESTING_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/tensor.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"

namespace kernels {

using Doubles = std::vector<double>;

using testing::ExpectWithinBf16Steps;
using testing::kOneRounding;
using testing::WithinBf16Steps;

struct Case {
  int64_t slots, tokens;
  int heads;
  int64_t head_dim;
  bool table;
  bool norm_value = false;
  bool f32_angles = false;

  int64_t dim() const { return heads * head_dim; }
  int64_t rows() const { return slots * tokens; }
};

inline void PrintTo(const Case& c, std::ostream* out) {
  *out << c.slots << " slots, " << c.tokens << " tokens, " << c.heads << " heads of " << c.head_dim
       << (c.table ? ", table" : "") << (c.norm_value ? ", v normed" : "")
       << (c.f32_angles ? ", f32 angles" : "");
}

inline double Sum(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// q, k and v, or their gradients, one after the other as the oracles give them.
inline Doubles Joined(const testing::HostTensor& a, const testing::HostTensor& b,
                      const testing::HostTensor& c) {
  Doubles all = a.ToDouble();
  for (const testing::HostTensor* other : {&b, &c}) {
    const Doubles values = other->ToDouble();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

inline void ExpectNear(const Doubles& got, const Doubles& want, double relative, double absolute,
                       const std::string& name) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], relative * std::fabs(want[i]) + absolute) << name << " " << i;
  }
}

inline void ExpectSameBits(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                           const char* what) {
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(std::memcmp(got[i].data(), want[i].data(), want[i].bytes()), 0)
        << what << ", output " << i;
  }
}

}  // namespace kernels

#endif  // KERNELS_CPU_QKV_TESTING_H_
