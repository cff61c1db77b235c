// What the norm kernels share. A row of up to 1024 columns belongs to one warp, a longer one to a
// block of four warps; it is read once, 16 bytes a lane a step, lives in registers and is written
// once. All loads of a row are issued before the sum that needs the whole row.
#ifndef KERNELS_CUDA_NORM_ROWS_CUH_
#define KERNELS_CUDA_NORM_ROWS_CUH_

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/ops/norm.h"

namespace kernels::norm {

using cuda::BF16x8;
using cuda::CeilDiv;
using cuda::kWarp;

constexpr int kThreads = 128;  // of a block
constexpr int kWarps = kThreads / kWarp;
constexpr int64_t kMaxCols = 4096;

// How a block's threads share rows: kRowThreads of them hold a row, kVecs vectors of 8 each.
template <int row_threads, int vecs>
struct RowShape {
  static constexpr int kRowThreads = row_threads, kVecs = vecs;
  static constexpr int kRows = kThreads / kRowThreads;  // that a block holds at once
};

// The first column of this thread's vector i.
template <typename S>
__device__ __forceinline__ int ColumnOf(int i) {
  return (i * S::kRowThreads + static_cast<int>(threadIdx.x) % S::kRowThreads) * 8;
}

// Columns past the end read as zeros, which change none of the sums.
template <typename S>
__device__ __forceinline__ void LoadRow(const BF16* row, int cols, BF16x8 (&v)[S::kVecs]) {
#pragma unroll
  for (int i = 0; i < S::kVecs; ++i) {
    v[i] = BF16x8{};
    if (ColumnOf<S>(i) < cols) v[i] = cuda::LoadStreaming8(row + ColumnOf<S>(i));
  }
}

// As LoadRow; all zeros if the tensor is absent.
template <typename S>
__device__ __forceinline__ void LoadOptionalRow(const BF16* x, int64_t at, int cols,
                                                BF16x8 (&v)[S::kVecs]) {
  LoadRow<S>(x + at, x == nullptr ? 0 : cols, v);
}

// The sum over the threads of a row, in each of them.
template <typename S>
__device__ __forceinline__ float RowSum(float x) {
  if constexpr (S::kRowThreads == kWarp) {
    return cuda::WarpSum(x);
  } else {
    static_assert(S::kRowThreads == kThreads);
    __shared__ float shared[kWarps];
    const float sum = cuda::BlockSum<kThreads>(x, shared);
    __syncthreads();  // the block's next row writes `shared` again
    return sum;
  }
}

// The values of a layer's scalars.
struct MixWeights {
  float x;   // of the stream
  float x0;  // of x0, with its sign
  float s;   // of the saved output, 0 without a skip connection
};

__device__ __forceinline__ MixWeights WeightsOf(const float* scalars, const MixScalars& which) {
  const float lambda_x0 = scalars[which.lambda_x0];
  return {which.lambda_x < 0 ? 1.0f : scalars[which.lambda_x],
          which.subtract_x0 ? -lambda_x0 : lambda_x0,
          which.skip < 0         ? 0.0f
          : which.skip_is_weight ? scalars[which.skip]
                                 : cuda::Sigmoid(scalars[which.skip])};
}

// An element of the mix before it is rounded to bf16. Both passes compute the same bits.
__device__ __forceinline__ float Mixed(const MixWeights& w, float x, float x0, float saved) {
  return fmaf(w.x, fmaf(w.s, saved, x), w.x0 * x0);
}

// In a norm's gradient, inv_rms * (dy - n * mean(n * dy)) with n = x * inv_rms, what multiplies x
// in the parentheses; `mean` is that of x * dy.
__device__ __forceinline__ float ShareOfX(float inv_rms, float mean) {
  return inv_rms * inv_rms * mean;
}

// launch(std::bool_constant<normed>)
template <typename F>
void ForNorm(bool normed, const F& launch) {
  normed ? launch(std::true_type()) : launch(std::false_type());
}

// Calls launch(RowShape) with the shape for x's columns.
template <typename F>
void ForColumns(const char* op, const Tensor& x, const F& launch) {
  const int64_t cols = x.cols();
  CHECK(cols % 8 == 0 && cols <= kMaxCols)
      << op << ": x " << x << ", CUDA wants a last dim that is a multiple of 8 up to " << kMaxCols;
  switch (CeilDiv(cols, 8 * kWarp)) {
    case 1:
      return launch(RowShape<kWarp, 1>());
    case 2:
      return launch(RowShape<kWarp, 2>());
    case 3:
      return launch(RowShape<kWarp, 3>());
    case 4:
      return launch(RowShape<kWarp, 4>());
  }
  switch (CeilDiv(cols, 8 * kThreads)) {
    case 2:
      return launch(RowShape<kThreads, 2>());
    case 3:
      return launch(RowShape<kThreads, 3>());
    case 4:
      return launch(RowShape<kThreads, 4>());
  }
}

inline const BF16* OptionalBF16(const Tensor& x) { return x ? x.bf16() : nullptr; }

// NormOps::MixNormGrad.
void MixNormGrad(const MixNormGradArgs& args, CudaQueue& queue);

}  // namespace kernels::norm

#endif  // KERNELS_CUDA_NORM_ROWS_CUH_
