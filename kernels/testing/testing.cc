#include "kernels/testing/testing.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kernels::testing {

std::vector<double> HostTensor::ToDouble() const {
  std::vector<double> values(tensor_.size());
  for (int64_t i = 0; i < tensor_.size(); ++i) {
    switch (tensor_.dtype()) {
      case DType::kF32:
        values[i] = tensor_.f32()[i];
        break;
      case DType::kBF16:
        values[i] = ToFloat(tensor_.bf16()[i]);
        break;
      default:
        values[i] = tensor_.i32()[i];
    }
  }
  return values;
}

void HostTensor::Set(const std::vector<double>& values) const {
  CHECK_EQ(static_cast<int64_t>(values.size()), tensor_.size());
  for (int64_t i = 0; i < tensor_.size(); ++i) {
    const float value = static_cast<float>(values[i]);
    if (tensor_.dtype() == DType::kBF16) {
      tensor_.bf16()[i] = ToBF16(value);
    } else {
      tensor_.f32()[i] = value;
    }
  }
}

HostTensor RandomTensor(DType dtype, std::vector<int64_t> dims, uint32_t seed, double stddev) {
  HostTensor tensor(dtype, std::move(dims));
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.0, stddev);
  std::vector<double> values(tensor.get().size());
  for (double& value : values) value = normal(generator);
  tensor.Set(values);
  return tensor;
}

HostTensor RandomTokens(std::vector<int64_t> dims, int32_t bound, uint32_t seed) {
  HostTensor tensor(DType::kI32, std::move(dims));
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int32_t> uniform(0, bound - 1);
  for (int64_t i = 0; i < tensor.get().size(); ++i) tensor.get().i32()[i] = uniform(generator);
  return tensor;
}

double RelativeError(const std::vector<double>& got, const std::vector<double>& want) {
  CHECK_EQ(got.size(), want.size());
  double worst = 0, squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::isfinite(got[i]) ? std::fabs(got[i] - want[i]) : INFINITY);
    squares += want[i] * want[i];
  }
  const double scale = std::sqrt(squares / std::max<size_t>(want.size(), 1));
  return scale > 0 ? worst / scale : worst;
}

}  // namespace kernels::testing
