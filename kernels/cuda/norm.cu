// RMSNorm and the mixes around it on CUDA; see norm_rows.cuh for how rows are spread.
//
// Floors, in bytes a row of D columns over memory bandwidth (D = 768, 393,216 rows, 4.29 TB/s):
//   RmsNorm      4 D         0.28 ms
//   RmsNormGrad  6 D         0.42 ms; 8 D, 0.56 ms with a residual
//   MixNorm      8 D         0.56 ms; 10 D, 0.70 ms with a skip connection; 2 D less without a norm
#include <cstdint>
#include <memory>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/norm_rows.cuh"

namespace kernels {
namespace norm {
namespace {

template <typename S>
__device__ __forceinline__ int64_t RowOfGrid() {
  return int64_t{blockIdx.x} * S::kRows + threadIdx.x / S::kRowThreads;
}

template <typename S>
__device__ __forceinline__ float InvRms(float squares, int cols) {
  return rsqrtf(RowSum<S>(squares) / cols + kRmsEpsilon);
}

// y = v * inv_rms, with inv_rms from the values of v.
template <typename S>
__device__ __forceinline__ void NormRow(const BF16x8 (&v)[S::kVecs], int cols, BF16* y,
                                        float* inv_rms) {
  float squares = 0;
#pragma unroll
  for (int i = 0; i < S::kVecs; ++i) {
    float f[8];
    cuda::Unpack(v[i], f);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares = fmaf(f[j], f[j], squares);
  }
  const float rho = InvRms<S>(squares, cols);
  if (threadIdx.x % S::kRowThreads == 0) *inv_rms = rho;
#pragma unroll
  for (int i = 0; i < S::kVecs; ++i) {
    float f[8];
    cuda::Unpack(v[i], f);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] *= rho;
    if (ColumnOf<S>(i) < cols) cuda::Store8(y + ColumnOf<S>(i), cuda::Pack(f));
  }
}

template <typename S>
__global__ void __launch_bounds__(kThreads)
    RmsNormKernel(const BF16* x, int64_t rows, int cols, BF16* y, float* inv_rms) {
  const int64_t row = RowOfGrid<S>();
  if (row >= rows) return;  // all threads of a row leave together
  BF16x8 v[S::kVecs];
  LoadRow<S>(x + row * cols, cols, v);
  NormRow<S>(v, cols, y + row * cols, inv_rms + row);
}

template <typename S>
__global__ void __launch_bounds__(kThreads)
    RmsNormGradKernel(const BF16* dy, const BF16* x, const float* inv_rms, const BF16* residual,
                      int64_t rows, int cols, BF16* dx) {
  const int64_t row = RowOfGrid<S>();
  if (row >= rows) return;
  const int64_t at = row * cols;
  const float rho = inv_rms[row];
  BF16x8 g[S::kVecs], v[S::kVecs], base[S::kVecs];
  LoadRow<S>(dy + at, cols, g);
  LoadRow<S>(x + at, cols, v);
  LoadOptionalRow<S>(residual, at, cols, base);
  float dot = 0;
#pragma unroll
  for (int i = 0; i < S::kVecs; ++i) {
    float a[8], b[8];
    cuda::Unpack(g[i], a);
    cuda::Unpack(v[i], b);
#pragma unroll
    for (int j = 0; j < 8; ++j) dot = fmaf(a[j], b[j], dot);
  }
  const float share = ShareOfX(rho, RowSum<S>(dot) / cols);
#pragma unroll
  for (int i = 0; i < S::kVecs; ++i) {
    float a[8], b[8], c[8];
    cuda::Unpack(g[i], a);
    cuda::Unpack(v[i], b);
    cuda::Unpack(base[i], c);
#pragma unroll
    for (int j = 0; j < 8; ++j) c[j] = fmaf(rho, fmaf(-b[j], share, a[j]), c[j]);
    if (ColumnOf<S>(i) < cols) cuda::Store8(dx + at + ColumnOf<S>(i), cuda::Pack(c));
  }
}

template <typename S, bool normed>
__global__ void __launch_bounds__(kThreads)
    MixNormKernel(const BF16* x, const BF16* x0, const BF16* saved, const float* scalars,
                  MixScalars which, int64_t rows, int cols, BF16* mixed, BF16* u, float* inv_rms) {
  const int64_t row = RowOfGrid<S>();
  if (row >= rows) return;
  const int64_t at = row * cols;
  BF16x8 v[S::kVecs], first[S::kVecs], old[S::kVecs];
  LoadRow<S>(x + at, cols, v);
  LoadRow<S>(x0 + at, cols, first);
  LoadOptionalRow<S>(saved, at, cols, old);
  const MixWeights w = WeightsOf(scalars, which);
#pragma unroll
  for (int i = 0; i < S::kVecs; ++i) {
    float a[8], b[8], c[8];
    cuda::Unpack(v[i], a);
    cuda::Unpack(first[i], b);
    cuda::Unpack(old[i], c);
#pragma unroll
    for (int j = 0; j < 8; ++j) a[j] = Mixed(w, a[j], b[j], c[j]);
    v[i] = cuda::Pack(a);
    if (ColumnOf<S>(i) < cols) cuda::Store8(mixed + at + ColumnOf<S>(i), v[i]);
  }
  if constexpr (normed) NormRow<S>(v, cols, u + at, inv_rms + row);
}

}  // namespace
}  // namespace norm

namespace {

class CudaNormOps : public NormOps {
 public:
  void RmsNorm(Tensor x, Tensor y, Tensor inv_rms, Queue& queue) const override {
    norm::ForColumns("RmsNorm", x, [&](auto shape) {
      using S = decltype(shape);
      norm::RmsNormKernel<S>
          <<<cuda::CeilDiv(x.rows(), S::kRows), norm::kThreads, 0, Cuda(queue).stream()>>>(
              x.bf16(), x.rows(), x.cols(), y.bf16(), inv_rms.f32());
    });
    CheckLaunch("RmsNorm");
  }

  void RmsNormGrad(const RmsNormGradArgs& args, Queue& queue) const override {
    const Tensor& x = args.x;
    norm::ForColumns("RmsNormGrad", x, [&](auto shape) {
      using S = decltype(shape);
      norm::RmsNormGradKernel<S>
          <<<cuda::CeilDiv(x.rows(), S::kRows), norm::kThreads, 0, Cuda(queue).stream()>>>(
              args.dy.bf16(), x.bf16(), args.inv_rms.f32(), norm::OptionalBF16(args.residual),
              x.rows(), x.cols(), args.dx.bf16());
    });
    CheckLaunch("RmsNormGrad");
  }

  void MixNorm(const MixNormArgs& args, Queue& queue) const override {
    const Tensor &x = args.x, &u = args.u;
    norm::ForColumns("MixNorm", x, [&](auto shape) {
      using S = decltype(shape);
      norm::ForNorm(!u.empty(), [&](auto normed) {
        norm::MixNormKernel<S, normed>
            <<<cuda::CeilDiv(x.rows(), S::kRows), norm::kThreads, 0, Cuda(queue).stream()>>>(
                x.bf16(), args.x0.bf16(), norm::OptionalBF16(args.saved), args.scalars.f32(),
                args.which, x.rows(), x.cols(), args.mixed.bf16(), u ? u.bf16() : nullptr,
                u ? args.inv_rms.f32() : nullptr);
      });
    });
    CheckLaunch("MixNorm");
  }

  void MixNormGrad(const MixNormGradArgs& args, Queue& queue) const override {
    norm::MixNormGrad(args, Cuda(queue));
  }
};

}  // namespace

std::unique_ptr<NormOps> MakeCudaNormOps() { return std::make_unique<CudaNormOps>(); }

}  // namespace kernels
