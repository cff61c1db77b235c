// c = alpha x x^T + beta addend on the tensor cores (mma.sync, bf16 in, f32 sums).
//
// A block computes one 128 x 128 tile on or below the diagonal and stores it twice. Its four warps
// hold 64 x 64 each, which asks for 32 bytes of shared memory per 512 multiply-adds: a good half
// of the bandwidth at the tensor cores' pace. Two blocks share a multiprocessor, so that one
// computes while the other stores its tile.
//
// Symmetric bit for bit: an element below the diagonal is computed once and written to both
// places, in tiles off the diagonal and on it.
#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/symmetric.h"

namespace kernels::cuda {
namespace {

constexpr int kTile = 128;  // rows and columns of c
constexpr int kDepth = 64;  // columns of x in one stage: 128 bytes, or 8 chunks of 16 bytes
constexpr int kStages = 3;  // 96 KiB, so that two blocks fit
constexpr int kThreads = 128;
constexpr int kChunk = 8;  // bf16 in 16 bytes
constexpr int kRowChunks = kDepth / kChunk;
constexpr int kOperandBytes = kTile * kDepth * 2;
constexpr int kStageBytes = 2 * kOperandBytes;
constexpr int kSharedBytes = kStages * kStageBytes;
// Rows of the staged result: 17 chunks, so that neither the fragments' stores (8 rows at once)
// nor the reads of whole chunks conflict.
constexpr int kPitch = kTile + kChunk;
static_assert(2 * kTile * kPitch * 2 <= kSharedBytes);

constexpr int kWarpTile = 64;
constexpr int kMTiles = kWarpTile / 16;
constexpr int kNTiles = kWarpTile / 8;

struct Params {
  const BF16* x;
  const BF16* addend;
  BF16* c;
  int64_t rows, cols;
  float alpha, beta;
};

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes from global to shared memory; zeros if not `valid`.
__device__ __forceinline__ void CopyChunk(uint32_t shared, const BF16* global, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
template <int pending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(pending) : "memory");
}

__device__ __forceinline__ void LoadMatrices(uint32_t shared, uint32_t& r0, uint32_t& r1,
                                             uint32_t& r2, uint32_t& r3) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(shared)
               : "memory");
}

// An 8 x 8 matrix of 16-bit elements spread over a warp, transposed.
__device__ __forceinline__ uint32_t Transpose(uint32_t pair) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(result) : "r"(pair));
  return result;
}

__device__ __forceinline__ void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// This thread's part of the copies of rows [first, first + kTile) of x into stages. Chunk i of row
// r is put at place i ^ (r % 8) of the row, so that eight rows' chunks of one column lie in
// different banks.
struct OperandLoader {
  static constexpr int kRowsAtOnce = kThreads / kRowChunks;
  static constexpr int kRounds = kTile / kRowsAtOnce;
  static_assert(kRowsAtOnce % 8 == 0, "r % 8 must be the same in each round");

  const BF16* from;
  int64_t stride;  // from a round's row to the next one's
  int64_t column, cols;
  int rounds;   // those whose row is inside of x; never reads beyond
  uint32_t to;  // offset in the stage

  __device__ __forceinline__ OperandLoader(const BF16* x, int64_t rows, int64_t cols, int64_t first)
      : stride(kRowsAtOnce * cols), cols(cols) {
    const int row = threadIdx.x / kRowChunks, chunk = threadIdx.x % kRowChunks;
    column = chunk * kChunk;
    from = x + (first + row) * cols + column;
    const int64_t inside = (rows - first - row + kRowsAtOnce - 1) / kRowsAtOnce;
    rounds = inside < kRounds ? static_cast<int>(inside) : kRounds;
    to = row * kDepth * 2 + (chunk ^ (row % 8)) * 16;
  }
  // Columns [k, k + kDepth), to the operand's place at `shared`.
  __device__ __forceinline__ void Load(int64_t k, uint32_t shared) const {
    const int valid = column + k < cols ? rounds : 0;
    const BF16* at = from + k;
#pragma unroll
    for (int round = 0; round < kRounds; ++round, at += stride) {
      CopyChunk(shared + to + round * kRowsAtOnce * kDepth * 2, at, round < valid);
    }
  }
};

struct Fragments {
  uint32_t a[kMTiles][4];
  uint32_t b[kNTiles][2];
};

// Columns [16 step, 16 step + 16) of the stage. a and b: shared addresses of the warp's first rows.
__device__ __forceinline__ void LoadFragments(uint32_t a, uint32_t b, int step, Fragments& f) {
  const int lane = threadIdx.x % kWarp;
  // The four 8 x 8 matrices of a: rows 0-7 and 8-15 of the left half, then of the right half.
  const int a_chunk = (2 * step + lane / 16) ^ (lane % 8);
  const uint32_t a_at = a + lane % 16 * kDepth * 2 + a_chunk * 16;
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
    LoadMatrices(a_at + m * 16 * kDepth * 2, f.a[m][0], f.a[m][1], f.a[m][2], f.a[m][3]);
  }
  // Of b: left and right half of rows 0-7, then of rows 8-15.
  const int b_chunk = (2 * step + lane / 8 % 2) ^ (lane % 8);
  const uint32_t b_at = b + (lane / 16 * 8 + lane % 8) * kDepth * 2 + b_chunk * 16;
#pragma unroll
  for (int n = 0; n < kNTiles; n += 2) {
    LoadMatrices(b_at + n * 8 * kDepth * 2, f.b[n][0], f.b[n][1], f.b[n + 1][0], f.b[n + 1][1]);
  }
}

__device__ __forceinline__ void MultiplyStage(uint32_t a, uint32_t b,
                                              float (&sums)[kMTiles][kNTiles][4]) {
  constexpr int kSteps = kDepth / 16;
  Fragments f[2];
  LoadFragments(a, b, 0, f[0]);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (step + 1 < kSteps) LoadFragments(a, b, step + 1, f[(step + 1) % 2]);
    const Fragments& now = f[step % 2];
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) MultiplyAdd(sums[m][n], now.a[m], now.b[n]);
    }
  }
}

// The addend's pairs beside the sums of fragments m: all are under way before one is used. rows
// is even, so a pair is inside of the matrix or outside.
__device__ __forceinline__ void LoadAddend(const BF16* addend, int64_t rows, int64_t row,
                                           int64_t col, __nv_bfloat162 (&base)[kNTiles][2]) {
#pragma unroll
  for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t r = row + half * 8, c = col + n * 8;
      base[n][half] = __nv_bfloat162{};
      if (r < rows && c < rows) {
        base[n][half] = *reinterpret_cast<const __nv_bfloat162*>(addend + r * rows + c);
      }
    }
  }
}

// Two neighbours of a row of c.
__device__ __forceinline__ uint32_t Finish(const Params& p, float left, float right,
                                           __nv_bfloat162 base) {
  left *= p.alpha;
  right *= p.alpha;
  if (p.beta != 0) {
    const float2 addend = __bfloat1622float2(base);
    left = fmaf(p.beta, addend.x, left);
    right = fmaf(p.beta, addend.y, right);
  }
  const __nv_bfloat162 pair = __floats2bfloat162_rn(left, right);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Of a pair at (row, col) and (row, col + 1) of a staged tile, what is on or below the diagonal.
__device__ __forceinline__ void StageLower(BF16* tile, int row, int col, uint32_t pair) {
  if (col <= row) tile[row * kPitch + col] = BF16{static_cast<uint16_t>(pair)};
  if (col + 1 <= row) tile[row * kPitch + col + 1] = BF16{static_cast<uint16_t>(pair >> 16)};
}
// And what is above.
__device__ __forceinline__ void StageUpper(BF16* tile, int row, int col, uint32_t pair) {
  if (col > row) tile[row * kPitch + col] = BF16{static_cast<uint16_t>(pair)};
  if (col + 1 > row) tile[row * kPitch + col + 1] = BF16{static_cast<uint16_t>(pair >> 16)};
}

// A staged tile to rows from `row` and columns from `col` of c, 16 bytes a thread.
__device__ __forceinline__ void StoreTile(const BF16* tile, BF16* c, int64_t rows, int64_t row,
                                          int64_t col) {
  constexpr int kChunks = kTile / kChunk;
  const int chunk = threadIdx.x % kChunks * kChunk;
  if (col + chunk >= rows) return;
#pragma unroll 4
  for (int r = threadIdx.x / kChunks; r < kTile; r += kThreads / kChunks) {
    if (row + r < rows) {
      Store8(c + (row + r) * rows + col + chunk, Load8(tile + r * kPitch + chunk));
    }
  }
}

__global__ void __launch_bounds__(kThreads, 2) TensorCoreTiles(Params p) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  // The lower triangle's tiles, row by row.
  int tile_row = 0, tile_col = blockIdx.x;
  while (tile_col > tile_row) tile_col -= ++tile_row;
  const bool diagonal = tile_row == tile_col;
  const int64_t row = int64_t{tile_row} * kTile, col = int64_t{tile_col} * kTile;
  const int64_t matrix = blockIdx.y;
  const BF16* x = p.x + matrix * p.rows * p.cols;

  const uint32_t shared = SharedAddress(shared_memory);
  // On the diagonal both operands are the same rows, read once.
  const uint32_t b_offset = diagonal ? 0 : kOperandBytes;
  const OperandLoader left(x, p.rows, p.cols, row), right(x, p.rows, p.cols, col);
  const auto load = [&](int64_t k, int stage) {
    const uint32_t at = shared + stage * kStageBytes;
    left.Load(k, at);
    if (!diagonal) right.Load(k, at + kOperandBytes);
  };

  const int warp = threadIdx.x / kWarp;
  const int warp_row = warp / 2 * kWarpTile, warp_col = warp % 2 * kWarpTile;
  float sums[kMTiles][kNTiles][4] = {};
  const int rounds = static_cast<int>((p.cols + kDepth - 1) / kDepth);
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < rounds) load(int64_t{stage} * kDepth, stage);
    CommitCopies();
  }
  int stage = 0;
  for (int round = 0; round < rounds; ++round) {
    // One group a round, empty at the end, so that all but the latest being here means that this
    // round's is. The barrier also tells that all warps are done with the round before, whose
    // place the next load takes.
    WaitCopies<kStages - 2>();
    __syncthreads();
    const int next = round + kStages - 1;
    if (next < rounds) load(int64_t{next} * kDepth, stage == 0 ? kStages - 1 : stage - 1);
    CommitCopies();
    const uint32_t at = shared + stage * kStageBytes;
    MultiplyStage(at + warp_row * kDepth * 2, at + b_offset + warp_col * kDepth * 2, sums);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  __syncthreads();  // the results go where the operands were

  BF16* const tile = reinterpret_cast<BF16*>(shared_memory);
  BF16* const mirrored = tile + kTile * kPitch;
  const BF16* const addend = p.addend + matrix * p.rows * p.rows;  // read only if beta != 0
  const int lane_row = threadIdx.x % kWarp / 4, lane_col = threadIdx.x % 4 * 2;
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
    __nv_bfloat162 base[kNTiles][2] = {};
    if (p.beta != 0) {
      LoadAddend(addend, p.rows, row + warp_row + m * 16 + lane_row, col + warp_col + lane_col,
                 base);
    }
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // An 8 x 8 matrix with its corner here; transposed, its corner is (c0, r0).
        const int r0 = warp_row + m * 16 + half * 8, c0 = warp_col + n * 8;
        const int r = r0 + lane_row, c = c0 + lane_col;
        const uint32_t pair =
            Finish(p, sums[m][n][2 * half], sums[m][n][2 * half + 1], base[n][half]);
        const uint32_t turned = Transpose(pair);
        const int turned_r = c0 + lane_row, turned_c = r0 + lane_col;
        if (diagonal) {
          StageLower(tile, r, c, pair);
          StageUpper(tile, turned_r, turned_c, turned);
        } else {
          *reinterpret_cast<uint32_t*>(tile + r * kPitch + c) = pair;
          *reinterpret_cast<uint32_t*>(mirrored + turned_r * kPitch + turned_c) = turned;
        }
      }
    }
  }
  __syncthreads();
  BF16* const c = p.c + matrix * p.rows * p.rows;
  StoreTile(tile, c, p.rows, row, col);
  if (!diagonal) StoreTile(mirrored, c, p.rows, col, row);
}

// One thread an element of the lower triangle: for matrices that are small, or whose rows do not
// start at multiples of 16 bytes.
__global__ void SimpleElements(Params p, int64_t batch) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= batch * p.rows * p.rows) return;
  const int64_t col = at % p.rows, row = at / p.rows % p.rows, matrix = at / p.rows / p.rows;
  if (col > row) return;
  const BF16* a = p.x + (matrix * p.rows + row) * p.cols;
  const BF16* b = p.x + (matrix * p.rows + col) * p.cols;
  float sum = 0;
  for (int64_t k = 0; k < p.cols; ++k) sum = fmaf(ToF32(a[k]), ToF32(b[k]), sum);
  sum *= p.alpha;
  if (p.beta != 0) sum = fmaf(p.beta, ToF32(p.addend[at]), sum);
  const BF16 result = Round(sum);
  p.c[at] = result;
  p.c[(matrix * p.rows + col) * p.rows + row] = result;
}

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void SymmetricProduct(const BF16* x, const BF16* addend, BF16* c, int64_t batch, int64_t rows,
                      int64_t cols, float alpha, float beta, CudaQueue& queue) {
  if (batch == 0) return;
  const Params p{x, addend, c, rows, cols, alpha, beta};
  // Below a quarter of a tile the tensor cores would multiply mostly zeros.
  const bool tensor_cores = rows > kTile / 4 && rows % kChunk == 0 && cols % kChunk == 0 &&
                            Aligned(x) && Aligned(addend) && Aligned(c);
  if (!tensor_cores) {
    SimpleElements<<<CeilDiv(batch * rows * rows, kThreads), kThreads, 0, queue.stream()>>>(p,
                                                                                            batch);
    CheckLaunch("SymmetricProduct, simple");
    return;
  }
  // For each device anew; it costs less than finding out whether it was done.
  CUDA_CHECK(cudaFuncSetAttribute(TensorCoreTiles, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kSharedBytes));
  const int64_t side = CeilDiv(rows, kTile);
  const dim3 grid(side * (side + 1) / 2, batch);
  TensorCoreTiles<<<grid, kThreads, kSharedBytes, queue.stream()>>>(p);
  CheckLaunch("SymmetricProduct, tensor cores");
}

}  // namespace kernels::cuda
