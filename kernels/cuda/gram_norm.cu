// The norm from a Gram matrix. Per matrix: its trace by one warp of every block that wants it (s
// values from cache, no pass of its own), the squares of the Gram matrix, and two divisions. 4
// bytes an element of the matrix and 6 of the Gram matrix.
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gram_norm.h"
#include "kernels/cuda/ragged.cuh"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
// Elements of a block: thread t has the vectors t, t + kThreads, ... of it.
constexpr int kRounds = 8;
constexpr int64_t kBlock = int64_t{kThreads} * kVector * kRounds;

// Of a Gram matrix of `side` rows; the same bits in every thread that asks.
__device__ __forceinline__ float Trace(const BF16* gram, int64_t side) {
  float sum = 0;
  for (int64_t i = threadIdx.x % kWarp; i < side; i += kWarp) {
    sum = __fadd_rn(sum, ToF32(gram[i * (side + 1)]));
  }
  return WarpSum(sum);
}

// partial[matrix, block] = the sum of (a / trace)^2 over a block of elements.
__global__ void __launch_bounds__(kThreads)
    GramSquares(const BF16* gram, int64_t side, bool vectors, float* partial) {
  __shared__ float shared[kThreads / kWarp];
  const int64_t n = side * side;
  gram += blockIdx.y * n;
  const float trace = Trace(gram, side);
  float sum = 0;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = blockIdx.x * kBlock + (int64_t{round} * kThreads + threadIdx.x) * kVector;
    float a[kVector];
    Unpack(LoadRagged8(gram, i, n, vectors), a);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const float scaled = __fdiv_rn(a[j], trace);
      sum = __fmaf_rn(scaled, scaled, sum);
    }
  }
  sum = BlockSum<kThreads>(sum, shared);
  if (threadIdx.x == 0) partial[int64_t{blockIdx.y} * gridDim.x + blockIdx.x] = sum;
}

// divisors[matrix], by a warp a matrix. It has read the Gram matrix before anything is divided.
__global__ void Divisors(const BF16* gram, int64_t side, const float* partial, int blocks,
                         float scale, float lone_scale, float eps, float* divisors) {
  const float trace = Trace(gram + blockIdx.x * side * side, side);
  float share = 0;
  for (int i = threadIdx.x; i < blocks; i += kWarp) {
    share = __fadd_rn(share, partial[int64_t{blockIdx.x} * blocks + i]);
  }
  share = WarpSum(share);
  if (threadIdx.x != 0) return;
  // A zero matrix has NaN here, which is not above.
  divisors[blockIdx.x] = __fmaf_rn(share > kLoneShare ? lone_scale : scale, __fsqrt_rn(trace), eps);
}

// y = x divided by the matrix' divisor, `times` times. y may be x: a thread reads an element before
// it writes it, and nobody else touches it.
template <int times>
__global__ void __launch_bounds__(kThreads)
    Divide(const BF16* x, int64_t n, bool vectors, const float* divisors, BF16* y) {
  const float divisor = divisors[blockIdx.y];
  x += blockIdx.y * n;
  y += blockIdx.y * n;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = blockIdx.x * kBlock + (int64_t{round} * kThreads + threadIdx.x) * kVector;
    if (i >= n) return;
    float v[kVector];
    Unpack(LoadRagged8(x, i, n, vectors), v);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
#pragma unroll
      for (int k = 0; k < times; ++k) v[j] = __fdiv_rn(v[j], divisor);
    }
    StoreRagged8(y, i, n, vectors, v);
  }
}

// Whether vectors of each matrix of n elements start aligned.
bool Vectors(const Tensor& a, const Tensor& b, int64_t n) {
  const auto aligned = [](const Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.data()) % 16 == 0;
  };
  return aligned(a) && aligned(b) && (a.dim(0) == 1 || n % kVector == 0);
}

template <int times>
void LaunchDivide(const Tensor& x, const float* divisors, const Tensor& y, CudaQueue& queue) {
  const int64_t n = x.dim(1) * x.dim(2);
  const dim3 grid(CeilDiv(n, kBlock), x.dim(0));
  Divide<times>
      <<<grid, kThreads, 0, queue.stream()>>>(x.bf16(), n, Vectors(x, y, n), divisors, y.bf16());
  CheckLaunch("NormalizeByGram, division");
}

}  // namespace

void NormalizeByGram(const GramNormArgs& args, CudaQueue& queue) {
  if (args.u.size() == 0) return;
  const int64_t matrices = args.u.dim(0), side = args.gram.dim(1), n = side * side;
  const int blocks = static_cast<int>(CeilDiv(n, kBlock));
  float* partial = static_cast<float*>(
      queue.Scratch(matrices * (blocks + 1) * static_cast<int64_t>(sizeof(float))));
  float* divisors = partial + matrices * blocks;
  const dim3 grid(blocks, matrices);
  GramSquares<<<grid, kThreads, 0, queue.stream()>>>(args.gram.bf16(), side,
                                                     Vectors(args.gram, args.gram, n), partial);
  CheckLaunch("NormalizeByGram, squares");
  Divisors<<<static_cast<unsigned>(matrices), kWarp, 0, queue.stream()>>>(
      args.gram.bf16(), side, partial, blocks, args.scale, args.lone_scale, args.eps, divisors);
  CheckLaunch("NormalizeByGram, divisors");
  LaunchDivide<1>(args.u, divisors, args.x, queue);
  LaunchDivide<2>(args.gram, divisors, args.gram, queue);
}

}  // namespace kernels::cuda
