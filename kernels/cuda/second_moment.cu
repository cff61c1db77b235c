// NorMuon's normalisation on CUDA. 6 bytes an element: o is read twice and p written. The norm of
// P needs no pass of its own: it follows from the columns' sums of squares.
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ragged.cuh"
#include "kernels/cuda/second_moment.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// A block takes kTileColumns x kTileRows of a matrix: lane l of each warp the columns 8 l to
// 8 l + 7, warp w the rows w, w + 8, ... The order of all sums follows from a matrix's shape.
constexpr int kTileColumns = kWarp * kVector;
constexpr int kTileRows = 64;
constexpr int kRowsPerWarp = kTileRows / kWarps;

struct Bank {
  int64_t rows, cols;
  bool vectors;  // every row starts at a multiple of 16 bytes
};

__device__ __forceinline__ bool IsOff(const int32_t* guard) {
  return guard != nullptr && *guard == 0;
}

// What a thread has of its tile, starting at `column`; zeros outside of the matrix.
__device__ __forceinline__ void LoadTile(const BF16* o, const Bank& bank, int64_t column,
                                         BF16x8 (&tile)[kRowsPerWarp]) {
#pragma unroll
  for (int k = 0; k < kRowsPerWarp; ++k) {
    const int64_t row = int64_t{blockIdx.y} * kTileRows + threadIdx.x / kWarp + k * kWarps;
    const bool inside = row < bank.rows;
    tile[k] = LoadRagged8(o + (inside ? row : 0) * bank.cols, column, inside ? bank.cols : 0,
                          bank.vectors);
  }
}

// partial[matrix, row tile, column] = the sum of squares of a column within a tile.
__global__ void __launch_bounds__(kThreads)
    ColumnSquares(const BF16* o, Bank bank, const int32_t* guard, float* partial) {
  __shared__ float shared[kWarps][kTileColumns];
  if (IsOff(guard)) return;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  BF16x8 tile[kRowsPerWarp];
  LoadTile(o + blockIdx.z * bank.rows * bank.cols, bank,
           int64_t{blockIdx.x} * kTileColumns + lane * kVector, tile);
  float sum[kVector] = {};
#pragma unroll
  for (int k = 0; k < kRowsPerWarp; ++k) {
    float x[kVector];
    Unpack(tile[k], x);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] = __fmaf_rn(x[j], x[j], sum[j]);
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) shared[warp][lane * kVector + j] = sum[j];
  __syncthreads();
  const int64_t column = int64_t{blockIdx.x} * kTileColumns + threadIdx.x;
  if (column >= bank.cols) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total = __fadd_rn(total, shared[w][threadIdx.x]);
  partial[(int64_t{blockIdx.z} * gridDim.y + blockIdx.y) * bank.cols + column] = total;
}

// partial[matrix, row] = the sum of squares of a row, by one warp.
__global__ void __launch_bounds__(kThreads)
    RowSquares(const BF16* o, Bank bank, const int32_t* guard, float* partial) {
  if (IsOff(guard)) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t row = int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarp;
  if (row >= bank.rows) return;
  o += (blockIdx.z * bank.rows + row) * bank.cols;
  float sum = 0;
  for (int64_t column = lane * kVector; column < bank.cols; column += kTileColumns) {
    float x[kVector];
    Unpack(LoadRagged8(o, column, bank.cols, bank.vectors), x);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum = __fmaf_rn(x[j], x[j], sum);
  }
  sum = WarpSum(sum);
  if (lane == 0) partial[blockIdx.z * bank.rows + row] = sum;
}

__device__ __forceinline__ float Load(const float* w) { return *w; }
__device__ __forceinline__ float Load(const BF16* w) { return ToF32(*w); }
__device__ __forceinline__ void Store(float* w, float x) { *w = x; }
__device__ __forceinline__ void Store(BF16* w, float x) { *w = Round(x); }

// A block per matrix: the new w, and what each column (or row) of o is multiplied by.
//   partial  [matrices, tiles, count]     w, factor  [matrices, count]
constexpr int kFactorThreads = 512;
template <typename W>
__global__ void __launch_bounds__(kFactorThreads)
    Factors(const float* partial, int tiles, int64_t count, float averaged, float rest, float floor,
            const int32_t* guard, W* w, float* factor) {
  __shared__ float shared[kFactorThreads / kWarp];
  if (IsOff(guard)) return;
  partial += int64_t{blockIdx.x} * tiles * count;
  w += blockIdx.x * count;
  factor += blockIdx.x * count;
  float squares = 0, scaled = 0;  // |O|^2, and |P|^2 before the norm is restored
  for (int64_t i = threadIdx.x; i < count; i += kFactorThreads) {
    float sum = 0;
    for (int tile = 0; tile < tiles; ++tile) sum = __fadd_rn(sum, partial[tile * count + i]);
    const float old = Load(w + i);
    const float now = __fmaf_rn(rest, __fsub_rn(__fdiv_rn(sum, averaged), old), old);
    Store(w + i, now);
    const float inverse = __fdiv_rn(1.0f, fmaxf(now, floor));
    squares = __fadd_rn(squares, sum);
    scaled = __fmaf_rn(sum, inverse, scaled);
    factor[i] = __fsqrt_rn(inverse);
  }
  squares = BlockSum<kFactorThreads>(squares, shared);
  __syncthreads();
  scaled = BlockSum<kFactorThreads>(scaled, shared);
  const float ratio = __fdiv_rn(__fsqrt_rn(squares), fmaxf(__fsqrt_rn(scaled), 1e-10f));
  // Each thread goes over what it has written itself.
  for (int64_t i = threadIdx.x; i < count; i += kFactorThreads) {
    factor[i] = __fmul_rn(factor[i], ratio);
  }
}

// p = o * factor; the grid of ColumnSquares. p may be o: a thread has read its tile before it
// writes, and nobody else touches it.
template <bool per_row>
__global__ void __launch_bounds__(kThreads)
    Multiply(const BF16* o, Bank bank, const int32_t* guard, const float* factor, BF16* p) {
  if (IsOff(guard)) return;
  const int64_t matrix = blockIdx.z, size = bank.rows * bank.cols;
  const int64_t column = int64_t{blockIdx.x} * kTileColumns + threadIdx.x % kWarp * kVector;
  factor += matrix * (per_row ? bank.rows : bank.cols);
  BF16x8 tile[kRowsPerWarp];
  LoadTile(o + matrix * size, bank, column, tile);
  float by[kVector];
  if constexpr (!per_row) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) by[j] = column + j < bank.cols ? factor[column + j] : 0.0f;
  }
#pragma unroll
  for (int k = 0; k < kRowsPerWarp; ++k) {
    const int64_t row = int64_t{blockIdx.y} * kTileRows + threadIdx.x / kWarp + k * kWarps;
    if (row >= bank.rows) break;
    float x[kVector];
    Unpack(tile[k], x);
    const float of_row = per_row ? factor[row] : 0.0f;
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[j] = __fmul_rn(x[j], per_row ? of_row : by[j]);
    StoreRagged8(p + matrix * size + row * bank.cols, column, bank.cols, bank.vectors, x);
  }
}

bool Aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data()) % 16 == 0; }

}  // namespace

void NormalizeBySecondMoment(const SecondMomentArgs& args, CudaQueue& queue) {
  const int64_t matrices = args.o.dim(0);
  Bank bank{.rows = args.o.dim(1), .cols = args.o.dim(2), .vectors = false};
  if (args.o.size() == 0) return;
  bank.vectors = bank.cols % kVector == 0 && Aligned(args.o) && Aligned(args.p);
  const int32_t* guard = args.guard.empty() ? nullptr : args.guard.i32();
  const unsigned depth = static_cast<unsigned>(matrices);
  const dim3 grid(CeilDiv(bank.cols, kTileColumns), CeilDiv(bank.rows, kTileRows), depth);

  const int64_t count = args.per_row ? bank.rows : bank.cols;
  const int tiles = args.per_row ? 1 : static_cast<int>(grid.y);
  float* partial = static_cast<float*>(
      queue.Scratch(matrices * (tiles + 1) * count * static_cast<int64_t>(sizeof(float))));
  float* factor = partial + matrices * tiles * count;
  const cudaStream_t stream = queue.stream();
  if (args.per_row) {
    const dim3 rows(1, CeilDiv(bank.rows, kWarps), depth);
    RowSquares<<<rows, kThreads, 0, stream>>>(args.o.bf16(), bank, guard, partial);
  } else {
    ColumnSquares<<<grid, kThreads, 0, stream>>>(args.o.bf16(), bank, guard, partial);
  }
  CheckLaunch("NormalizeBySecondMoment, squares");
  const float averaged = static_cast<float>(args.per_row ? bank.cols : bank.rows);
  const float rest = 1.0f - args.beta2;
  if (args.w.dtype() == DType::kF32) {
    Factors<<<depth, kFactorThreads, 0, stream>>>(partial, tiles, count, averaged, rest, args.floor,
                                                  guard, args.w.f32(), factor);
  } else {
    Factors<<<depth, kFactorThreads, 0, stream>>>(partial, tiles, count, averaged, rest, args.floor,
                                                  guard, args.w.bf16(), factor);
  }
  CheckLaunch("NormalizeBySecondMoment, factors");
  const auto multiply = args.per_row ? Multiply<true> : Multiply<false>;
  multiply<<<grid, kThreads, 0, stream>>>(args.o.bf16(), bank, guard, factor, args.p.bf16());
  CheckLaunch("NormalizeBySecondMoment, product");
}

}  // namespace kernels::cuda
