// What the attention kernels share: the problem, which keys a query sees, and products of bf16
// tiles in shared memory on tensor cores.
//
// A block serves one head of a tile of a slot's tokens, wherever documents begin and end in it;
// masks part them. A warp owns 16 or 32 rows of the tile. Tiles are [rows][d] bf16 in shared
// memory, 16-byte chunk c of row r at place c ^ (r % 8), so that the eight rows of an 8 x 8
// matrix lie in different banks.
#ifndef KERNELS_CUDA_ATTENTION_COMMON_CUH_
#define KERNELS_CUDA_ATTENTION_COMMON_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/dtype.h"
#include "kernels/ops/attention.h"

namespace kernels::cuda {

struct AttentionProblem {
  explicit AttentionProblem(const AttentionArgs& args);

  int slots, tokens, heads, head_dim, window_reach, boundary_count;
  float scale;
  const BF16 *q, *k, *v;
  BF16* o;
  float* lse;
  const int32_t* boundaries;
  int window_block;  // with window_reach an AttentionWindow
};

struct AttentionGradPointers {
  const BF16* do_;
  float* delta;
  BF16 *dq, *dk, *dv;
};

// attention_forward.cu, attention_backward.cu
void LaunchAttention(const AttentionProblem& problem, CudaQueue& queue);
void LaunchAttentionGrad(const AttentionProblem& problem, const AttentionGradPointers& grad,
                         CudaQueue& queue);

constexpr int kAttentionThreads = 128;
// Of a block's shared memory, and of the tiles in it: the bytes of the longest row of a tile.
constexpr int kTileAlignment = 256;
constexpr float kLog2E = 1.44269504088896340736f;

// Where a head of a slot begins.
struct AttentionHead {
  __device__ AttentionHead(const AttentionProblem& problem, int slot, int head)
      : stride(problem.heads * problem.head_dim),
        offset(int64_t{slot} * problem.tokens * stride + head * problem.head_dim),
        row_offset((int64_t{slot} * problem.heads + head) * problem.tokens) {}

  int stride;          // from token to token in q, k, v, o and their gradients
  int64_t offset;      // of token 0 in these
  int64_t row_offset;  // of token 0 in lse and delta
};

// The documents of a block's slot. Boundaries beyond this many stay in global memory.
constexpr int kSharedBoundaries = 1024;

// kBlocks: the window's blocks are of more than one token. A window of tokens is spared the
// division.
template <bool kBlocks>
class Documents {
 public:
  // All threads of the block. The barrier also publishes what they wrote before.
  __device__ Documents(const AttentionProblem& problem, int slot,
                       int32_t (&shared)[kSharedBoundaries])
      : boundaries_(problem.boundaries + int64_t{slot} * problem.boundary_count),
        count_(problem.boundary_count),
        reach_(problem.window_reach),
        block_(problem.window_block) {
    if (count_ <= kSharedBoundaries) {
      for (int i = threadIdx.x; i < count_; i += kAttentionThreads) shared[i] = boundaries_[i];
      boundaries_ = shared;
    }
    __syncthreads();
  }

  // Of a token of the slot, as query: the first key that it sees; the last is the token itself.
  // Never falls from token to token.
  __device__ int FirstKey(int token) const {
    const int block_begin = kBlocks ? token - token % block_ : token;
    return max(boundaries_[FirstBehind(token) - 1], block_begin - reach_);
  }
  // As key: the last query that sees it; the first is the token itself. Never falls either.
  __device__ int LastQuery(int token) const {
    const int block_last = kBlocks ? token - token % block_ + (block_ - 1) : token;
    return min(boundaries_[FirstBehind(token)] - 1, block_last + reach_);
  }

 private:
  // The index of the first boundary behind the token. Boundary 0 is 0, the last is the end of
  // the slot, so it is one of 1 ... count - 1.
  __device__ int FirstBehind(int token) const {
    int low = 1, high = count_ - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (boundaries_[middle] <= token) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  const int32_t* boundaries_;
  int count_, reach_, block_;
};

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 2^x, relative error 2^-22; 0 for -infinity, NaN stays NaN.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two values rounded to bf16, the first in the lower half.
__device__ __forceinline__ uint32_t PackPair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Starts a copy of 16 bytes to shared memory, or of zeros.
__device__ __forceinline__ void CopyAsync16(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
// Closes a group of the thread's copies, which may be empty.
__device__ __forceinline__ void EndCopyGroup() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until all but the thread's `groups` youngest groups have arrived.
template <int groups>
__device__ __forceinline__ void WaitForCopyGroups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
// Until all of the thread's copies have arrived, in groups or not.
__device__ __forceinline__ void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Starts the copy of tokens [begin, begin + rows) of a head into a tile; zeros from the slot's
// end on. By all threads of the block.
template <int rows, int d>
__device__ __forceinline__ void CopyTile(BF16 (&tile)[rows * d], const BF16* head, int stride,
                                         int begin, int tokens) {
  constexpr int kChunks = d / 8;
  constexpr int kStep = kAttentionThreads / kChunks;
  static_assert(kStep % 8 == 0 && rows % kStep == 0);
  const int chunk = threadIdx.x % kChunks;
  const int first = threadIdx.x / kChunks;
  const uint32_t to = SharedAddress(tile) + (first * kChunks + (chunk ^ (first % 8))) * 16;
#pragma unroll
  for (int row = 0; row < rows; row += kStep) {
    const int token = begin + first + row;
    const bool valid = token < tokens;
    const BF16* from = head + int64_t{valid ? token : 0} * stride + chunk * 8;
    CopyAsync16(to + row * d * 2, from, valid);
  }
}

// Four 8 x 8 matrices. Lane i gives the address of row i % 8 of matrix i / 8; it gets of each
// matrix the elements (i / 4, 2 (i % 4)) and the next, transposed (2 (i % 4), i / 4) and the one
// below.
template <bool transposed>
__device__ __forceinline__ void LoadMatrices(uint32_t (&m)[4], uint32_t address) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
  }
}

// c += a b, 16 x 8 x 16. With g = lane / 4 and t = lane % 4 a lane holds
//   a: (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), each with the next column
//   b: (2t, g), (2t + 8, g), each with the next row
//   c: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
__device__ __forceinline__ void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Addresses of the lane's matrix rows in a tile, or in rows of it from a multiple of 8 on. `row`
// is such a multiple, `column` a multiple of 16.
template <int d>
class LaneRows {
 public:
  // Matrices 0, 1: rows 0 ... 15 of columns 0 ... 7; 2, 3: of columns 8 ... 15.
  static __device__ LaneRows RowsFirst(const BF16* tile) {
    const int lane = threadIdx.x % kWarp;
    return LaneRows(tile, lane % 16, lane / 16);
  }
  // Matrices 0, 1: columns 0 ... 15 of rows 0 ... 7; 2, 3: of rows 8 ... 15.
  static __device__ LaneRows ColumnsFirst(const BF16* tile) {
    const int lane = threadIdx.x % kWarp;
    return LaneRows(tile, lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }
  __device__ uint32_t At(int row, int column) const {
    return (first_ ^ (column / 8 * 16)) + row * d * 2;
  }

 private:
  // Tiles start at multiples of a row's bytes, so the place in the row is bits of its own.
  __device__ LaneRows(const BF16* tile, int row, int chunk)
      : first_(SharedAddress(tile) + row * d * 2 + (chunk ^ (row % 8)) * 16) {}

  uint32_t first_;
};

// c += a b' of 16 m rows of `a` and 8 n rows of `b`: a row of d values each.
template <int d, int m, int n>
__device__ __forceinline__ void MultiplyTransposed(float (&c)[m][n][4], const BF16* a_rows,
                                                   const BF16* b_rows) {
  const auto a_at = LaneRows<d>::RowsFirst(a_rows);
  const auto b_at = LaneRows<d>::ColumnsFirst(b_rows);
#pragma unroll
  for (int column = 0; column < d; column += 16) {
    uint32_t a[m][4];
#pragma unroll
    for (int i = 0; i < m; ++i) LoadMatrices<false>(a[i], a_at.At(i * 16, column));
#pragma unroll
    for (int j = 0; j < n; j += 2) {
      uint32_t b[4];
      LoadMatrices<false>(b, b_at.At(j * 8, column));
#pragma unroll
      for (int i = 0; i < m; ++i) {
        MultiplyAdd(c[i][j], a[i], b[0], b[1]);
        MultiplyAdd(c[i][j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// c += a b of `a` in registers and 16 k rows of `b`, d values each.
template <int d, int m, int k>
__device__ __forceinline__ void Multiply(float (&c)[m][d / 8][4], const uint32_t (&a)[m][k][4],
                                         const BF16* b_rows) {
  const auto b_at = LaneRows<d>::RowsFirst(b_rows);
#pragma unroll
  for (int step = 0; step < k; ++step) {
#pragma unroll
    for (int column = 0; column < d; column += 16) {
      uint32_t b[4];
      LoadMatrices<true>(b, b_at.At(step * 16, column));
#pragma unroll
      for (int i = 0; i < m; ++i) {
        MultiplyAdd(c[i][column / 8], a[i][step], b[0], b[1]);
        MultiplyAdd(c[i][column / 8 + 1], a[i][step], b[2], b[3]);
      }
    }
  }
}

// A sum of a product, rounded to bf16, as the left factor of the next one.
template <int m, int n>
__device__ __forceinline__ void ToLeftFactor(const float (&c)[m][n][4],
                                             uint32_t (&a)[m][n / 2][4]) {
#pragma unroll
  for (int i = 0; i < m; ++i) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
      a[i][j / 2][j % 2 * 2] = PackPair(c[i][j][0], c[i][j][1]);
      a[i][j / 2][j % 2 * 2 + 1] = PackPair(c[i][j][2], c[i][j][3]);
    }
  }
}

// Writes the warp's rows, times factor[i][half] in rows 16 i + 8 half + lane / 4, to the first
// `rows` of rows of a head. `shared` are rows of a tile that no other warp uses any more; there
// the rows become whole 16-byte chunks.
template <int d, int m>
__device__ __forceinline__ void StoreRows(const float (&c)[m][d / 8][4],
                                          const float (&factor)[m][2], BF16* shared, BF16* out,
                                          int stride, int rows) {
  constexpr int kChunks = d / 8;
  const int lane = threadIdx.x % kWarp;
  const int group = lane / 4;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < m; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      BF16* row = shared + (i * 16 + half * 8 + group) * d + lane % 4 * 2;
      const float f = factor[i][half];
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        *reinterpret_cast<uint32_t*>(row + (chunk ^ group) * 8) =
            PackPair(c[i][chunk][2 * half] * f, c[i][chunk][2 * half + 1] * f);
      }
    }
  }
  __syncwarp();
  const int chunk = lane % kChunks;
#pragma unroll
  for (int step = 0; step < m * 16; step += kWarp / kChunks) {
    const int row = step + lane / kChunks;
    if (row < rows) {
      Store8(out + int64_t{row} * stride + chunk * 8,
             Load8(shared + row * d + (chunk ^ (row % 8)) * 8));
    }
  }
}

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_COMMON_CUH_
