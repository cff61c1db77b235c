// Optimizer ops on CUDA. All are bound by memory. Bytes moved per element, for weights, moments
// and momentum of 4 (f32) or 2 (bf16) bytes each:
//
//   AdamUpdate          4 + 2 weight + 4 moment: 16 with bf16 weights and moments, see adam.cu
//   MomentumUpdate      4 + 2 momentum + 2: 14 with f32 momentum
//   NormalizeFrobenius  6: u read twice, x written
//   TwinRailUpdate      22, see twin_rail.cu
//   NormalizeByGram     4, and 6 an element of the Gram matrix, see gram_norm.cu
//   NormalizeBySecondMoment  6, see second_moment.cu
//   MatrixUpdate        2 + 2 weight: 10 with f32 weights
//   SplitMatrixUpdate   10, with a gate 14, see split_matrix.cu
//
// Each multiply, add and fused multiply-add is asked for by name, as in the CPU's ops: the compiler
// chooses no contraction, and bits do not depend on how a range is cut into vectors and tail.
#include <cuda_bf16.h>

#include <cstdint>
#include <memory>

#include "kernels/cuda/adam.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gram_norm.h"
#include "kernels/cuda/optimizer_elementwise.cuh"
#include "kernels/cuda/ragged.cuh"
#include "kernels/cuda/second_moment.h"
#include "kernels/cuda/split_matrix.h"
#include "kernels/cuda/twin_rail.h"

namespace kernels {
namespace {

using cuda::Aligned;
using cuda::CeilDiv;
using cuda::kVector;
using cuda::kWarp;
using cuda::LaunchElementwise;
using cuda::Load;
using cuda::RoundLike;
using cuda::Store;

constexpr int kThreads = 256;  // of the norm

// G: what g is rounded to.
template <typename G, typename M>
struct Momentum {
  const float* g;
  M* m;
  const float* mu;
  BF16* u;

  float keep, rest;
  __device__ void Begin(int64_t /*matrix*/) {
    keep = mu[0];
    rest = __fsub_rn(1.0f, keep);
  }
  template <int count>
  __device__ void Run(int64_t i) const {
    float grad[count], new_m[count], direction[count];
    Load(g + i, grad);
    Load(m + i, new_m);
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const float gj = RoundLike(grad[j], static_cast<const G*>(nullptr));
      new_m[j] = __fmaf_rn(rest, __fsub_rn(gj, new_m[j]), new_m[j]);
      direction[j] = __fmaf_rn(keep, __fsub_rn(new_m[j], gj), gj);
    }
    Store(m + i, new_m);
    Store(u + i, direction);
  }
};

template <typename P>
struct Matrix {
  P* p;
  const BF16* o;
  const float *lr, *decay;
  int64_t size;  // of a matrix

  float rate, keep;
  __device__ void Begin(int64_t matrix) {
    rate = lr[matrix];
    keep = decay[matrix];
    p += matrix * size;
    o += matrix * size;
  }
  template <int count>
  __device__ void Run(int64_t i) const {
    float weight[count], update[count];
    Load(p + i, weight);
    Load(o + i, update);
#pragma unroll
    for (int j = 0; j < count; ++j) {
      weight[j] = __fmaf_rn(-rate, update[j], __fmul_rn(weight[j], keep));
    }
    Store(p + i, weight);
  }
};

template <typename G, typename M>
void LaunchMomentum(const MomentumArgs& args, CudaQueue& queue) {
  Momentum<G, M> op;
  op.g = args.g.f32();
  op.m = static_cast<M*>(args.m.data());
  op.mu = args.mu.f32();
  op.u = args.u.bf16();
  LaunchElementwise("MomentumUpdate", op, 1, args.g.size(), args.guard, Aligned({op.g, op.m, op.u}),
                    queue);
}

template <typename G>
void LaunchMomentumOfType(const MomentumArgs& args, CudaQueue& queue) {
  args.m.dtype() == DType::kF32 ? LaunchMomentum<G, float>(args, queue)
                                : LaunchMomentum<G, BF16>(args, queue);
}

template <typename P>
void LaunchMatrix(const MatrixUpdateArgs& args, CudaQueue& queue) {
  Matrix<P> op;
  op.p = static_cast<P*>(args.p.data());
  op.o = args.o.bf16();
  op.lr = args.lr.f32();
  op.decay = args.decay.f32();
  op.size = args.p.dim(1) * args.p.dim(2);
  LaunchElementwise("MatrixUpdate", op, args.p.dim(0), op.size, args.guard, Aligned({op.p, op.o}),
                    queue);
}

// The norm. A block takes kNormBlock elements, thread t the vectors t, t + kThreads, ... of them.
// The order of the sum follows from the size of a matrix alone, whether its rows are aligned or
// not.
constexpr int kNormRounds = 8;
constexpr int64_t kNormBlock = int64_t{kThreads} * kVector * kNormRounds;

// partial[matrix, block] = the sum of squares of a block of n elements.
__global__ void SumSquares(const BF16* u, int64_t n, bool vectors, float* partial) {
  __shared__ float shared[kThreads / kWarp];
  u += blockIdx.y * n;
  const int64_t begin = blockIdx.x * kNormBlock + threadIdx.x * kVector;
  cuda::BF16x8 packed[kNormRounds];
#pragma unroll
  for (int round = 0; round < kNormRounds; ++round) {
    packed[round] = cuda::LoadRagged8(u, begin + round * kThreads * kVector, n, vectors);
  }
  float sum = 0;
#pragma unroll
  for (int round = 0; round < kNormRounds; ++round) {
    float x[kVector];
    cuda::Unpack(packed[round], x);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum = __fmaf_rn(x[j], x[j], sum);
  }
  sum = cuda::BlockSum<kThreads>(sum, shared);
  if (threadIdx.x == 0) partial[int64_t{blockIdx.y} * gridDim.x + blockIdx.x] = sum;
}

// x = u / (scale norm + eps); the same grid as SumSquares. x may be u: a thread reads an element
// before it writes it, and nobody else touches it.
__global__ void DivideByNorm(const BF16* u, int64_t n, bool vectors, const float* partial,
                             float scale, float eps, BF16* x) {
  // Each warp adds the partial sums for itself: no barrier, and they come from cache.
  partial += int64_t{blockIdx.y} * gridDim.x;
  float sum = 0;
  for (int i = threadIdx.x % kWarp; i < gridDim.x; i += kWarp) sum = __fadd_rn(sum, partial[i]);
  const float divisor = __fmaf_rn(scale, __fsqrt_rn(cuda::WarpSum(sum)), eps);
  u += blockIdx.y * n;
  x += blockIdx.y * n;
  const int64_t begin = blockIdx.x * kNormBlock + threadIdx.x * kVector;
  // x may be u, so the compiler moves no load ahead of a store: a batch is loaded first.
  constexpr int kBatch = 4;
  static_assert(kNormRounds % kBatch == 0);
  for (int first = 0; first < kNormRounds; first += kBatch) {
    cuda::BF16x8 packed[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      packed[k] = cuda::LoadRagged8(u, begin + (first + k) * kThreads * kVector, n, vectors);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t i = begin + (first + k) * kThreads * kVector;
      float v[kVector];
      cuda::Unpack(packed[k], v);
#pragma unroll
      for (int j = 0; j < kVector; ++j) v[j] = __fdiv_rn(v[j], divisor);
      cuda::StoreRagged8(x, i, n, vectors, v);
    }
  }
}

class CudaOptimizerOps : public OptimizerOps {
 public:
  void AdamUpdate(const AdamArgs& args, Queue& queue) const override {
    cuda::AdamUpdate(args, Cuda(queue));
  }

  void AdamFlat(const AdamFlatArgs& args, Queue& queue) const override {
    cuda::AdamFlat(args, Cuda(queue));
  }

  void MomentumUpdate(const MomentumArgs& args, Queue& queue) const override {
    args.gradient == DType::kF32 ? LaunchMomentumOfType<float>(args, Cuda(queue))
                                 : LaunchMomentumOfType<BF16>(args, Cuda(queue));
  }

  void NormalizeFrobenius(Tensor u, float scale, float eps, Tensor x, Queue& queue) const override {
    const int64_t matrices = u.dim(0), n = u.dim(1) * u.dim(2);
    if (matrices == 0 || n == 0) return;
    CudaQueue& stream = Cuda(queue);
    const dim3 grid(CeilDiv(n, kNormBlock), matrices);
    float* partial = static_cast<float*>(stream.Scratch(matrices * grid.x * sizeof(float)));
    const bool vectors = Aligned({u.data(), x.data()}) && (matrices == 1 || n % kVector == 0);
    SumSquares<<<grid, kThreads, 0, stream.stream()>>>(u.bf16(), n, vectors, partial);
    CheckLaunch("NormalizeFrobenius, squares");
    DivideByNorm<<<grid, kThreads, 0, stream.stream()>>>(u.bf16(), n, vectors, partial, scale, eps,
                                                         x.bf16());
    CheckLaunch("NormalizeFrobenius, division");
  }

  void TwinRailUpdate(const TwinRailArgs& args, Queue& queue) const override {
    cuda::TwinRailUpdate(args, Cuda(queue));
  }

  void NormalizeByGram(const GramNormArgs& args, Queue& queue) const override {
    cuda::NormalizeByGram(args, Cuda(queue));
  }

  void NormalizeBySecondMoment(const SecondMomentArgs& args, Queue& queue) const override {
    cuda::NormalizeBySecondMoment(args, Cuda(queue));
  }

  void MatrixUpdate(const MatrixUpdateArgs& args, Queue& queue) const override {
    args.p.dtype() == DType::kF32 ? LaunchMatrix<float>(args, Cuda(queue))
                                  : LaunchMatrix<BF16>(args, Cuda(queue));
  }

  void SplitMatrixUpdate(const SplitMatrixArgs& args, Queue& queue) const override {
    cuda::SplitMatrixUpdate(args, Cuda(queue));
  }
};

}  // namespace

std::unique_ptr<OptimizerOps> MakeCudaOptimizerOps() {
  return std::make_unique<CudaOptimizerOps>();
}

}  // namespace kernels
