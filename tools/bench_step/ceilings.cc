#include "tools/bench_step/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/arena.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/matmul.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

using kernels::DType;
using kernels::Tensor;

struct Sizes {
  int64_t matrix;         // rows and columns
  int64_t copy_elements;  // bf16
  double load_s;          // before timing: clocks and temperature settle
};

Sizes SizesFor(kernels::DeviceKind device) {
  if (device == kernels::DeviceKind::kCpu) return {512, int64_t{1} << 24, 0.03};
  return {8192, int64_t{1} << 31, 0.3};
}

// Values of a normal distribution. The block that repeats has a prime length, so that no two rows
// of a matrix are alike; drawing each value alone would take seconds.
void FillNormal(Tensor x, uint32_t seed, kernels::Queue& queue) {
  constexpr int64_t kBlock = 1'048'573;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<kernels::BF16> values(x.size());
  for (int64_t i = 0; i < x.size(); ++i) {
    values[i] = i < kBlock ? kernels::ToBF16(normal(random)) : values[i - kBlock];
  }
  queue.Upload(values.data(), x);
}

double MedianSeconds(double load_s, const std::function<void()>& call, kernels::Queue& queue) {
  constexpr int kWarmUps = 3, kCalls = 10;
  const auto start = std::chrono::steady_clock::now();
  const auto loaded = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >=
           load_s;
  };
  for (int i = 0; i < kWarmUps || !loaded(); ++i) {
    call();
    queue.Synchronize();
  }
  queue.TakeTimes();
  queue.MarkTime();
  for (int i = 0; i < kCalls; ++i) {
    call();
    queue.MarkTime();
  }
  const std::vector<double> times = queue.TakeTimes();
  std::vector<double> seconds;
  for (int i = 0; i < kCalls; ++i) seconds.push_back(times[i + 1] - times[i]);
  std::nth_element(seconds.begin(), seconds.begin() + kCalls / 2, seconds.end());
  return seconds[kCalls / 2];
}

absl::StatusOr<double> ProductSeconds(const Sizes& sizes, kernels::Backend& backend,
                                      kernels::Queue& queue) {
  const int64_t n = sizes.matrix;
  kernels::ArenaPlan plan;
  const kernels::TensorId a_id = plan.Add("a", DType::kBF16, {n, n});
  const kernels::TensorId b_id = plan.Add("b", DType::kBF16, {n, n});
  const kernels::TensorId c_id = plan.Add("c", DType::kBF16, {n, n});
  ABSL_ASSIGN_OR_RETURN(const kernels::Arena arena, kernels::Arena::Create(plan, backend));
  const Tensor a = arena.Get(a_id), b = arena.Get(b_id), c = arena.Get(c_id);
  FillNormal(a, 1, queue);
  FillNormal(b, 2, queue);
  return MedianSeconds(
      sizes.load_s, [&] { kernels::MatMul(a, b, c, {.trans_b = true}, queue); }, queue);
}

absl::StatusOr<double> CopySeconds(const Sizes& sizes, kernels::Backend& backend,
                                   kernels::Queue& queue) {
  kernels::ArenaPlan plan;
  const kernels::TensorId x_id = plan.Add("x", DType::kBF16, {sizes.copy_elements});
  const kernels::TensorId y_id = plan.Add("y", DType::kBF16, {sizes.copy_elements});
  ABSL_ASSIGN_OR_RETURN(const kernels::Arena arena, kernels::Arena::Create(plan, backend));
  const Tensor x = arena.Get(x_id), y = arena.Get(y_id);
  return MedianSeconds(
      sizes.load_s, [&] { kernels::Copy(x, y, queue); }, queue);
}

}  // namespace

double Ceilings::FloorSeconds(const kernels::OpCost& cost) const {
  return std::max(cost.flops / (cost.fp8 ? fp8_flops_per_s : bf16_flops_per_s),
                  cost.bytes / copy_bytes_per_s);
}

absl::StatusOr<Ceilings> MeasureCeilings(kernels::Backend& backend, kernels::Queue& queue) {
  const Sizes sizes = SizesFor(backend.device());
  ABSL_ASSIGN_OR_RETURN(const double product_s, ProductSeconds(sizes, backend, queue));
  ABSL_ASSIGN_OR_RETURN(const double copy_s, CopySeconds(sizes, backend, queue));
  const double n = sizes.matrix;
  Ceilings ceilings;
  ceilings.bf16_flops_per_s = 2 * n * n * n / product_s;
  const double fp8 = backend.device() == kernels::DeviceKind::kCpu ? 1 : 2;
  ceilings.fp8_flops_per_s = fp8 * ceilings.bf16_flops_per_s;
  const double moved = 2.0 * sizes.copy_elements * kernels::SizeOf(DType::kBF16);
  ceilings.copy_bytes_per_s = moved / copy_s;
  ceilings.how = absl::StrFormat(
      "bf16 product of %d^3, random normal values: %.4g TFLOP/s; fp8 taken as %.4g TFLOP/s; copy "
      "of %.3g GB (read + written %.3g GB): %.4g GB/s",
      sizes.matrix, ceilings.bf16_flops_per_s / 1e12, ceilings.fp8_flops_per_s / 1e12,
      moved / 2 / 1e9, moved / 1e9, ceilings.copy_bytes_per_s / 1e9);
  return ceilings;
}

}  // namespace tools
