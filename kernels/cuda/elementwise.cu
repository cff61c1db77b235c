// Elementwise ops on CUDA, all bound by memory: vector accesses where the tensors' addresses
// allow them (slices may begin anywhere), single elements elsewhere and at the end.
//
// Bytes an element: Copy f32 to bf16 or back 6, Add 12 (bf16 6), Sum 12, Scale 8; FirstNonFinite
// and ClearUnlessFinite 4 (bf16 2), 0.37 ms for 400 M elements of f32 at 4.29 TB/s.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"

namespace kernels {
namespace {

using cuda::CeilDiv;
using cuda::kWarp;

constexpr int kThreads = 256;
constexpr int kVec = 4;  // elements a thread takes at once: neighbours in neighbouring 16 bytes

__device__ __forceinline__ void Load(const float* p, float (&f)[kVec]) {
  const float4 v = *reinterpret_cast<const float4*>(p);
  f[0] = v.x, f[1] = v.y, f[2] = v.z, f[3] = v.w;
}
__device__ __forceinline__ void Load(const BF16* p, float (&f)[kVec]) {
  const ushort4 v = *reinterpret_cast<const ushort4*>(p);
  f[0] = cuda::ToF32(BF16{v.x}), f[1] = cuda::ToF32(BF16{v.y});
  f[2] = cuda::ToF32(BF16{v.z}), f[3] = cuda::ToF32(BF16{v.w});
}
__device__ __forceinline__ void Load(const float* p, float (&f)[1]) { f[0] = *p; }
__device__ __forceinline__ void Load(const BF16* p, float (&f)[1]) { f[0] = cuda::ToF32(*p); }

__device__ __forceinline__ void Store(float* p, const float (&f)[kVec]) {
  *reinterpret_cast<float4*>(p) = make_float4(f[0], f[1], f[2], f[3]);
}
__device__ __forceinline__ void Store(BF16* p, const float (&f)[kVec]) {
  *reinterpret_cast<ushort4*>(p) = make_ushort4(cuda::Round(f[0]).bits, cuda::Round(f[1]).bits,
                                                cuda::Round(f[2]).bits, cuda::Round(f[3]).bits);
}
__device__ __forceinline__ void Store(float* p, const float (&f)[1]) { *p = f[0]; }
__device__ __forceinline__ void Store(BF16* p, const float (&f)[1]) { *p = cuda::Round(f[0]); }

// y = x, converted.
template <typename X, typename Y>
struct ConvertOp {
  const X* x;
  Y* y;
  template <int n>
  __device__ __forceinline__ void Apply(int64_t at) const {
    float f[n];
    Load(x + at, f);
    Store(y + at, f);
  }
};

// c = a + b; c may be a or b.
template <typename T>
struct SumOp {
  const T *a, *b;
  T* c;
  template <int n>
  __device__ __forceinline__ void Apply(int64_t at) const {
    float f[n], g[n];
    Load(a + at, f);
    Load(b + at, g);
#pragma unroll
    for (int i = 0; i < n; ++i) f[i] += g[i];
    Store(c + at, f);
  }
};

struct ScaleOp {
  float* x;
  float factor;
  template <int n>
  __device__ __forceinline__ void Apply(int64_t at) const {
    float f[n];
    Load(x + at, f);
#pragma unroll
    for (int i = 0; i < n; ++i) f[i] *= factor;
    Store(x + at, f);
  }
};

// The first `vectors` threads take kVec elements each, the others one each of what follows.
template <typename Op>
__global__ void __launch_bounds__(kThreads) MapKernel(Op op, int64_t size, int64_t vectors) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (thread < vectors) {
    op.template Apply<kVec>(thread * kVec);
  } else if (const int64_t at = vectors * kVec + (thread - vectors); at < size) {
    op.template Apply<1>(at);
  }
}

bool Aligned(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.data()) % 16 == 0; }

template <typename Op>
void Map(const char* name, const Op& op, int64_t size, bool aligned, Queue& queue) {
  if (size == 0) return;
  const int64_t vectors = aligned ? size / kVec : 0;
  const int64_t threads = vectors + (size - vectors * kVec);
  MapKernel<<<CeilDiv(threads, kThreads), kThreads, 0, Cuda(queue).stream()>>>(op, size, vectors);
  CheckLaunch(name);
}

constexpr int kRowThreads = 1024;

// A block a row: each thread adds every 1024th value, then the block adds the threads' sums.
__global__ void __launch_bounds__(kRowThreads)
    RowSumsKernel(const float* x, int64_t cols, float* sums) {
  __shared__ float shared[kRowThreads / kWarp];
  x += blockIdx.x * cols;
  float sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < cols; i += kRowThreads) sum += x[i];
  sum = cuda::BlockSum<kRowThreads>(sum, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
constexpr int kScanBlocks = 1056;  // 8 for each of 132 multiprocessors
constexpr int kBatch = 4;          // 16-byte loads of a thread in flight

// NaN and infinity are the values whose exponent is all ones.
__device__ __forceinline__ bool IsNonFinite(float x) {
  return (__float_as_uint(x) & 0x7F800000u) == 0x7F800000u;
}
__device__ __forceinline__ bool IsNonFinite(BF16 x) { return (x.bits & 0x7F80u) == 0x7F80u; }

// The first non-finite element of the 16 bytes `v`, counted from `at`; kNone without one.
template <typename T>
__device__ __forceinline__ int64_t FirstOfVector(const uint4& v, int64_t at) {
  constexpr int kElements = sizeof(uint4) / sizeof(T);
  const T* elements = reinterpret_cast<const T*>(&v);
  int64_t first = kNone;
#pragma unroll
  for (int i = kElements - 1; i >= 0; --i) {
    if (IsNonFinite(elements[i])) first = at + i;
  }
  return first;
}

// The first non-finite element among those that this thread of the grid looks at: strided
// vectors, then strided single elements.
template <typename T>
__device__ __forceinline__ int64_t ScanShare(const T* x, int64_t size, int64_t vectors) {
  constexpr int kElements = sizeof(uint4) / sizeof(T);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const uint4* p = reinterpret_cast<const uint4*>(x);
  int64_t first = kNone;
  for (int64_t i = thread; i < vectors; i += kBatch * stride) {
    uint4 v[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int64_t at = i + j * stride;
      v[j] = at < vectors ? p[at] : uint4{};
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      first = min(first, FirstOfVector<T>(v[j], (i + j * stride) * kElements));
    }
  }
  for (int64_t i = vectors * kElements + thread; i < size; i += stride) {
    if (IsNonFinite(x[i])) first = min(first, i);
  }
  return first;
}

// The minimum over a block, in thread 0.
__device__ __forceinline__ int64_t BlockMin(int64_t x) {
  __shared__ int64_t shared[kThreads / kWarp];
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x = min(x,
            static_cast<int64_t>(__shfl_xor_sync(0xffffffffu, static_cast<long long>(x), offset)));
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  for (int warp = 0; warp < kThreads / kWarp; ++warp) x = min(x, shared[warp]);
  return x;
}

// firsts[b] = what block b found.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ScanKernel(const T* x, int64_t size, int64_t vectors, int64_t* firsts) {
  const int64_t first = BlockMin(ScanShare(x, size, vectors));
  if (threadIdx.x == 0) firsts[blockIdx.x] = first;
}

__global__ void __launch_bounds__(kThreads)
    FirstOfBlocksKernel(const int64_t* firsts, int count, int64_t* index) {
  int64_t first = kNone;
  for (int i = threadIdx.x; i < count; i += kThreads) first = min(first, firsts[i]);
  first = BlockMin(first);
  if (threadIdx.x == 0) *index = first == kNone ? -1 : first;
}

// Threads that write all write the same.
__global__ void __launch_bounds__(kThreads)
    ClearUnlessFiniteKernel(const float* x, int64_t size, int64_t vectors, int32_t* guard) {
  if (ScanShare(x, size, vectors) != kNone) *guard = 0;
}

__global__ void __launch_bounds__(kThreads)
    PoisonIfFoundKernel(const int64_t* found, int64_t size, float* y) {
  for (int64_t i = threadIdx.x; i < size; i += kThreads) {
    if (found[i] >= 0) *y = __uint_as_float(0x7FC00000u);  // the quiet NaN of the host
  }
}

int64_t VectorsOf(const Tensor& x) { return Aligned(x) ? x.bytes() / 16 : 0; }

// Enough blocks for a batch of each thread, no more than the device holds.
int64_t ScanBlocks(const Tensor& x) {
  const int64_t loads = VectorsOf(x) > 0 ? CeilDiv(VectorsOf(x), kBatch) : x.size();
  return std::clamp<int64_t>(CeilDiv(loads, kThreads), 1, kScanBlocks);
}

class CudaElementwiseOps : public ElementwiseOps {
 public:
  void FillZero(Tensor x, Queue& queue) const override {
    CUDA_CHECK(cudaMemsetAsync(x.data(), 0, x.bytes(), Cuda(queue).stream()));
  }

  void Copy(Tensor x, Tensor y, Queue& queue) const override {
    const bool aligned = Aligned(x) && Aligned(y);
    if (x.dtype() == y.dtype()) {
      CUDA_CHECK(cudaMemcpyAsync(y.data(), x.data(), x.bytes(), cudaMemcpyDeviceToDevice,
                                 Cuda(queue).stream()));
    } else if (x.dtype() == DType::kF32) {
      Map("Copy", ConvertOp<float, BF16>{x.f32(), y.bf16()}, x.size(), aligned, queue);
    } else {
      Map("Copy", ConvertOp<BF16, float>{x.bf16(), y.f32()}, x.size(), aligned, queue);
    }
  }

  void Add(Tensor x, Tensor y, Queue& queue) const override {
    const bool aligned = Aligned(x) && Aligned(y);
    if (x.dtype() == DType::kF32) {
      Map("Add", SumOp<float>{x.f32(), y.f32(), y.f32()}, x.size(), aligned, queue);
    } else {
      Map("Add", SumOp<BF16>{x.bf16(), y.bf16(), y.bf16()}, x.size(), aligned, queue);
    }
  }

  void Sum(Tensor a, Tensor b, Tensor c, Queue& queue) const override {
    Map("Sum", SumOp<float>{a.f32(), b.f32(), c.f32()}, c.size(),
        Aligned(a) && Aligned(b) && Aligned(c), queue);
  }

  void Scale(Tensor x, float factor, Queue& queue) const override {
    Map("Scale", ScaleOp{x.f32(), factor}, x.size(), Aligned(x), queue);
  }

  void RowSums(Tensor x, Tensor sums, Queue& queue) const override {
    RowSumsKernel<<<x.dim(0), kRowThreads, 0, Cuda(queue).stream()>>>(x.f32(), x.cols(),
                                                                      sums.f32());
    CheckLaunch("RowSums");
  }

  void FirstNonFinite(Tensor x, Tensor index, Queue& queue) const override {
    const cudaStream_t stream = Cuda(queue).stream();
    const int64_t blocks = ScanBlocks(x), vectors = VectorsOf(x);
    int64_t* firsts = static_cast<int64_t*>(Cuda(queue).Scratch(blocks * sizeof(int64_t)));
    if (x.dtype() == DType::kF32) {
      ScanKernel<<<blocks, kThreads, 0, stream>>>(x.f32(), x.size(), vectors, firsts);
    } else {
      ScanKernel<<<blocks, kThreads, 0, stream>>>(x.bf16(), x.size(), vectors, firsts);
    }
    CheckLaunch("FirstNonFinite");
    FirstOfBlocksKernel<<<1, kThreads, 0, stream>>>(firsts, blocks, index.i64());
    CheckLaunch("FirstNonFinite's blocks");
  }

  void PoisonIfFound(Tensor found, Tensor y, Queue& queue) const override {
    PoisonIfFoundKernel<<<1, kThreads, 0, Cuda(queue).stream()>>>(found.i64(), found.size(),
                                                                  y.f32());
    CheckLaunch("PoisonIfFound");
  }

  void ClearUnlessFinite(Tensor x, Tensor guard, Queue& queue) const override {
    ClearUnlessFiniteKernel<<<ScanBlocks(x), kThreads, 0, Cuda(queue).stream()>>>(
        x.f32(), x.size(), VectorsOf(x), guard.i32());
    CheckLaunch("ClearUnlessFinite");
  }
};

}  // namespace

std::unique_ptr<ElementwiseOps> MakeCudaElementwiseOps() {
  return std::make_unique<CudaElementwiseOps>();
}

}  // namespace kernels
