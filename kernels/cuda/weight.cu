// Ops on whole weights on CUDA. All are bound by memory. Bytes moved per element:
//
//   ScaleWeight      4
//   ScaleWeightGrad  10
//   TransposeCopy    8 (f32) or 4 (bf16)
//   TransposeAdd     12
#include <cstdint>
#include <memory>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/partials.cuh"
#include "kernels/cuda/ragged.cuh"

namespace kernels {
namespace {

using cuda::CeilDiv;
using cuda::kVector;
using cuda::kWarp;

constexpr int kThreads = 256;

bool Aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data()) % 16 == 0; }

__global__ void __launch_bounds__(kThreads)
    ScaleTo(const BF16* w, const float* factor, int64_t n, bool vectors, BF16* y) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (i >= n) return;
  const float by = *factor;
  float x[kVector];
  cuda::Unpack(cuda::LoadRagged8(w, i, n, vectors), x);
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] = __fmul_rn(by, x[j]);
  cuda::StoreRagged8(y, i, n, vectors, x);
}

// A block takes kGradBlock elements, thread t the vectors t, t + kThreads, ... of them: the order
// of the sum follows from the size alone, whatever the alignment.
constexpr int kGradRounds = 4;
constexpr int64_t kGradBlock = int64_t{kThreads} * kVector * kGradRounds;

// dw[i] to dw[i + 7], zeros from n on.
__device__ __forceinline__ void LoadGradient(const float* dw, int64_t i, int64_t n, bool vectors,
                                             float (&x)[kVector]) {
  if (vectors && i + kVector <= n) {
    *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(dw + i);
    *reinterpret_cast<float4*>(x + 4) = *reinterpret_cast<const float4*>(dw + i + 4);
    return;
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] = i + j < n ? dw[i + j] : 0.0f;
}

__device__ __forceinline__ void StoreGradient(float* dw, int64_t i, int64_t n, bool vectors,
                                              const float (&x)[kVector]) {
  if (vectors && i + kVector <= n) {
    *reinterpret_cast<float4*>(dw + i) = make_float4(x[0], x[1], x[2], x[3]);
    *reinterpret_cast<float4*>(dw + i + 4) = make_float4(x[4], x[5], x[6], x[7]);
    return;
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    if (i + j < n) dw[i + j] = x[j];
  }
}

// partial[block] = the sum of dw * w over a block; dw is scaled.
__global__ void __launch_bounds__(kThreads)
    ScaleAndDot(const BF16* w, const float* factor, int64_t n, bool vectors, float* dw,
                cuda::Partials partials) {
  __shared__ float shared[kThreads / kWarp];
  const int64_t begin = blockIdx.x * kGradBlock + threadIdx.x * kVector;
  const float by = *factor;
  cuda::BF16x8 packed[kGradRounds];
  float gradient[kGradRounds][kVector];
#pragma unroll
  for (int round = 0; round < kGradRounds; ++round) {
    const int64_t i = begin + round * kThreads * kVector;
    packed[round] = cuda::LoadRagged8(w, i, n, vectors);
    LoadGradient(dw, i, n, vectors, gradient[round]);
  }
  float sum = 0;
#pragma unroll
  for (int round = 0; round < kGradRounds; ++round) {
    float x[kVector];
    cuda::Unpack(packed[round], x);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      sum = __fmaf_rn(gradient[round][j], x[j], sum);
      gradient[round][j] = __fmul_rn(by, gradient[round][j]);
    }
    StoreGradient(dw, begin + round * kThreads * kVector, n, vectors, gradient[round]);
  }
  sum = cuda::BlockSum<kThreads>(sum, shared);
  if (threadIdx.x == 0) *partials.at(0, 0, blockIdx.x) = sum;
}

// Transposition. T is an unsigned type of the elements' size. A block of kSide x kSide threads
// takes a tile of as many squares of V x V elements, V elements being 16 bytes. A thread reads V
// rows of its square, turns it in registers, and leaves V rows of the turned square in shared
// memory; then each row of the turned tile, 256 bytes of y, is written by kSide threads.
//
// Chunk c of row o is kept at c ^ (o / V): shared memory serves 16 bytes a lane to eight lanes at
// once, which then are in different banks both where their rows differ (by V, one chunk) and
// where their chunks do (one row).
constexpr int kSide = 16;
static_assert(kSide * kSide == kThreads);

struct alignas(16) Chunk {
  uint32_t word[4];
};

template <typename T>
constexpr int kPerChunk = sizeof(Chunk) / sizeof(T);

__device__ __forceinline__ Chunk Load16(const void* p) {
  const uint4 v = *static_cast<const uint4*>(p);
  return {v.x, v.y, v.z, v.w};
}

// row[j] to row[j + V - 1]: of a whole tile aligned and inside, otherwise zeros from n on.
template <bool whole, typename T>
__device__ __forceinline__ Chunk LoadChunk(const T* row, int64_t j, int64_t n) {
  if constexpr (whole) {
    return Load16(row + j);
  } else {
    Chunk chunk = {};
#pragma unroll
    for (int k = 0; k < kPerChunk<T>; ++k) {
      const int byte = k * int{sizeof(T)};
      if (j + k < n) chunk.word[byte / 4] |= uint32_t{row[j + k]} << (byte % 4 * 8);
    }
    return chunk;
  }
}

template <bool whole, typename T>
__device__ __forceinline__ void StoreChunk(T* row, int64_t j, int64_t n, const Chunk& chunk) {
  if constexpr (whole) {
    // By name: the compiler would make four stores of an assignment.
    __stcs(reinterpret_cast<uint4*>(row + j),
           make_uint4(chunk.word[0], chunk.word[1], chunk.word[2], chunk.word[3]));
  } else {
#pragma unroll
    for (int k = 0; k < kPerChunk<T>; ++k) {
      const int byte = k * int{sizeof(T)};
      if (j + k < n) row[j + k] = static_cast<T>(chunk.word[byte / 4] >> (byte % 4 * 8));
    }
  }
}

// Row j of the turned square.
__device__ __forceinline__ uint4 TurnedRow(const Chunk (&rows)[4], int j) {
  return make_uint4(rows[0].word[j], rows[1].word[j], rows[2].word[j], rows[3].word[j]);
}
__device__ __forceinline__ uint4 TurnedRow(const Chunk (&rows)[8], int j) {
  const uint32_t halves = j % 2 == 0 ? 0x5410 : 0x7632;  // the lower ones, or the upper
  const auto pair = [&](int k) {
    return __byte_perm(rows[k].word[j / 2], rows[k + 1].word[j / 2], halves);
  };
  return make_uint4(pair(0), pair(2), pair(4), pair(6));
}

__device__ __forceinline__ uint32_t AddF32(uint32_t a, uint32_t b) {
  return __float_as_uint(__fadd_rn(__uint_as_float(a), __uint_as_float(b)));
}

// The tile at (row0, col0) of x. `whole`: it is inside of x, and 16-byte accesses are aligned.
template <bool whole, bool add, typename T>
__device__ __forceinline__ void TransposeTile(const T* x, int64_t rows, int64_t cols, int64_t row0,
                                              int64_t col0, uint4 (*tile)[kSide], T* y) {
  constexpr int V = kPerChunk<T>;
  static_assert(!add || V == 4);
  const int tx = threadIdx.x % kSide, ty = threadIdx.x / kSide;
  Chunk square[V];
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const int64_t row = row0 + ty * V + k;
    square[k] = LoadChunk<whole>(x + row * cols, col0 + tx * V, row < rows ? cols : 0);
  }
  // Of y, this thread's chunks are those of rows ty, ty + kSide, ... of the turned tile.
  Chunk before[add ? V : 1];
  if constexpr (add) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const int64_t row = col0 + ty + k * kSide;
      before[k] = LoadChunk<whole>(y + row * rows, row0 + tx * V, row < cols ? rows : 0);
    }
  }
#pragma unroll
  for (int j = 0; j < V; ++j) tile[tx * V + j][ty ^ tx] = TurnedRow(square, j);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const int turned = ty + k * kSide;
    Chunk chunk = Load16(&tile[turned][tx ^ (turned / V)]);
    if constexpr (add) {
#pragma unroll
      for (int i = 0; i < 4; ++i) chunk.word[i] = AddF32(before[k].word[i], chunk.word[i]);
    }
    const int64_t row = col0 + turned;
    StoreChunk<whole>(y + row * rows, row0 + tx * V, row < cols ? rows : 0, chunk);
  }
}

// y = x^T, or y += x^T of f32.
template <typename T, bool add>
__global__ void __launch_bounds__(kThreads)
    Transpose(const T* x, int64_t rows, int64_t cols, bool vectors, T* y) {
  constexpr int kTile = kSide * kPerChunk<T>;
  __shared__ uint4 tile[kTile][kSide];
  const int64_t row0 = int64_t{blockIdx.y} * kTile, col0 = int64_t{blockIdx.x} * kTile;
  if (vectors && row0 + kTile <= rows && col0 + kTile <= cols) {
    TransposeTile<true, add>(x, rows, cols, row0, col0, tile, y);
  } else {
    TransposeTile<false, add>(x, rows, cols, row0, col0, tile, y);
  }
}

template <typename T, bool add>
void LaunchTranspose(const char* name, const Tensor& x, const Tensor& y, Queue& queue) {
  const int64_t rows = x.dim(0), cols = x.dim(1);
  if (rows == 0 || cols == 0) return;
  constexpr int V = kPerChunk<T>;
  const dim3 grid(CeilDiv(cols, kSide * V), CeilDiv(rows, kSide * V));
  const bool vectors = Aligned(x) && Aligned(y) && rows % V == 0 && cols % V == 0;
  Transpose<T, add><<<grid, kThreads, 0, Cuda(queue).stream()>>>(
      static_cast<const T*>(x.data()), rows, cols, vectors, static_cast<T*>(y.data()));
  CheckLaunch(name);
}

class CudaWeightOps : public WeightOps {
 public:
  void ScaleWeight(Tensor w, Tensor scalars, int index, Tensor y, Queue& queue) const override {
    const int64_t n = w.size();
    if (n == 0) return;
    ScaleTo<<<CeilDiv(n, kThreads * kVector), kThreads, 0, Cuda(queue).stream()>>>(
        w.bf16(), scalars.f32() + index, n, Aligned(w) && Aligned(y), y.bf16());
    CheckLaunch("ScaleWeight");
  }

  void ScaleWeightGrad(Tensor w, Tensor scalars, int index, Tensor dw, Tensor dscalars,
                       Queue& queue) const override {
    const int64_t n = w.size();
    if (n == 0) return;
    CudaQueue& stream = Cuda(queue);
    cuda::Partials partials;
    partials.slots = 1;
    partials.values = 1;
    partials.blocks = static_cast<int>(CeilDiv(n, kGradBlock));
    partials.data = static_cast<float*>(stream.Scratch(partials.bytes()));
    ScaleAndDot<<<partials.blocks, kThreads, 0, stream.stream()>>>(
        w.bf16(), scalars.f32() + index, n, Aligned(w) && Aligned(dw), dw.f32(), partials);
    CheckLaunch("ScaleWeightGrad");
    cuda::AddPartials(partials, 0, 1, dscalars.Reshape({1, -1}), index, stream.stream());
  }

  void TransposeCopy(Tensor x, Tensor y, Queue& queue) const override {
    if (x.dtype() == DType::kF32) {
      LaunchTranspose<uint32_t, false>("TransposeCopy", x, y, queue);
    } else {
      LaunchTranspose<uint16_t, false>("TransposeCopy", x, y, queue);
    }
  }

  void TransposeAdd(Tensor x, Tensor y, Queue& queue) const override {
    LaunchTranspose<uint32_t, true>("TransposeAdd", x, y, queue);
  }
};

}  // namespace

std::unique_ptr<WeightOps> MakeCudaWeightOps() { return std::make_unique<CudaWeightOps>(); }

}  // namespace kernels
