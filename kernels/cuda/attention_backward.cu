// The backward pass of attention. With P = exp(scale q k' - lse), from Dao et al., 2022:
//   delta = rowsum(do * o),  dS = P * (do v' - delta),
//   dq = scale dS k,  dk = scale dS' q,  dv = P' do.
// P and dS are computed by query tile for dq and again by key tile for dk and dv: two products of
// seven, against atomic adds or an f32 scratch of dq. So each gradient has one writer and one
// order of summation, and is rounded once.
//
// Global memory, bytes per token of a head: query pass 2 d of each of q, k, v, o, do and dq, key
// pass 2 d of each of q, k, v, do, dk and dv, and 4 of lse and delta in each. What the window lets
// tiles read again comes mostly from the level 2 cache.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention_backward_hopper.h"
#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/card_memory.h"

namespace kernels::cuda {
namespace {

constexpr int kWarps = kAttentionThreads / kWarp;

// The query pass: a block has 128 queries, a warp 32 of them, and a step 32 keys.
namespace query_pass {

constexpr int kQueries = 128;
constexpr int kKeys = 32;
constexpr int kRows = 2;  // 16-row matrices of a warp's queries
constexpr int kColumns = kKeys / 8;
static_assert(kQueries == kAttentionThreads && kQueries == kWarps * kRows * 16);

template <int d>
struct alignas(kTileAlignment) Shared {
  BF16 q[kQueries * d];
  BF16 do_[kQueries * d];
  BF16 k[2][kKeys * d];
  BF16 v[2][kKeys * d];
  int32_t boundaries[kSharedBoundaries];
  int32_t first_key[kQueries];
  float lse_log2[kQueries];
  float delta[kQueries];
};

// delta of the block's queries, to shared and global memory; `do_` is the tile in shared memory.
template <int d>
__device__ __forceinline__ void Delta(const BF16 (&do_)[kQueries * d], const BF16* o_rows,
                                      int stride, int rows, float* shared_delta, float* delta) {
  constexpr int kChunks = d / 8;
  constexpr int kStep = kAttentionThreads / kChunks;
  const int chunk = threadIdx.x % kChunks;
  const int first = threadIdx.x / kChunks;
  BF16x8 o[kQueries / kStep];
#pragma unroll
  for (int i = 0; i < kQueries / kStep; ++i) {
    const int row = first + i * kStep;
    o[i] = Load8(o_rows + int64_t{row < rows ? row : 0} * stride + chunk * 8);
  }
  WaitForCopies();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kQueries / kStep; ++i) {
    const int row = first + i * kStep;
    float a[8], b[8];
    Unpack(o[i], a);
    Unpack(Load8(do_ + row * d + (chunk ^ (row % 8)) * 8), b);
    float sum = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) sum = fmaf(a[e], b[e], sum);
    sum = WarpSum<kChunks>(sum);
    if (chunk == 0) {
      shared_delta[row] = sum;
      if (row < rows) delta[row] = sum;
    }
  }
}

// dS of a step from the scores s and ds = do v', as left factor of dS k.
__device__ __forceinline__ void Slopes(const float (&s)[kRows][kColumns][4],
                                       float (&ds)[kRows][kColumns][4], float scale_log2,
                                       const float* lse_log2, const float* delta) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = i * 16 + half * 8 + threadIdx.x % kWarp / 4;
      const float shift = lse_log2[row];
      const float mean = delta[row];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          ds[i][j][e] = Exp2(fmaf(s[i][j][e], scale_log2, -shift)) * (ds[i][j][e] - mean);
        }
      }
    }
  }
}

template <int d, bool kBlocks>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    QueryGradKernel(const AttentionProblem problem, const AttentionGradPointers grad) {
  extern __shared__ __align__(kTileAlignment) uint8_t shared_memory[];
  Shared<d>& shared = *reinterpret_cast<Shared<d>*>(shared_memory);
  const AttentionHead head(problem, blockIdx.z, blockIdx.x);
  const int tokens = problem.tokens;
  const int tile = blockIdx.y * kQueries;
  const BF16* k = problem.k + head.offset;
  const BF16* v = problem.v + head.offset;

  CopyTile<kQueries, d>(shared.do_, grad.do_ + head.offset, head.stride, tile, tokens);
  CopyTile<kQueries, d>(shared.q, problem.q + head.offset, head.stride, tile, tokens);
  const Documents<kBlocks> documents(problem, blockIdx.z, shared.boundaries);
  const int first_step = documents.FirstKey(tile) / kKeys * kKeys;
  const int end = min(tile + kQueries, tokens);
  CopyTile<kKeys, d>(shared.k[0], k, head.stride, first_step, tokens);
  CopyTile<kKeys, d>(shared.v[0], v, head.stride, first_step, tokens);
  // Rows behind the slot's end hold zeros, see themselves and are never stored.
  const int own = tile + threadIdx.x;
  shared.first_key[threadIdx.x] = own < tokens ? documents.FirstKey(own) : own;
  shared.lse_log2[threadIdx.x] = own < tokens ? problem.lse[head.row_offset + own] * kLog2E : 0.0f;
  Delta<d>(shared.do_, problem.o + head.offset + int64_t{tile} * head.stride, head.stride,
           tokens - tile, shared.delta, grad.delta + head.row_offset + tile);

  const int lane = threadIdx.x % kWarp;
  const int warp_row = threadIdx.x / kWarp * kRows * 16;
  const int first_query = tile + warp_row;
  const int* first_key = shared.first_key + warp_row;
  const float scale_log2 = problem.scale * kLog2E;
  float dq[kRows][d / 8][4] = {};
  for (int step = first_step, stage = 0; step < end; step += kKeys, stage ^= 1) {
    WaitForCopies();
    // Everybody's copies for this step are there, and nobody reads the other stage any more.
    __syncthreads();
    if (step + kKeys < end) {
      CopyTile<kKeys, d>(shared.k[stage ^ 1], k, head.stride, step + kKeys, tokens);
      CopyTile<kKeys, d>(shared.v[stage ^ 1], v, head.stride, step + kKeys, tokens);
    }
    if (step >= first_query + kRows * 16 || step + kKeys <= first_key[0]) continue;

    float s[kRows][kColumns][4] = {};
    MultiplyTransposed<d>(s, shared.q + warp_row * d, shared.k[stage]);
    if (step + kKeys - 1 > first_query || step < first_key[kRows * 16 - 1]) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = i * 16 + e / 2 * 8 + lane / 4;
          const int first = first_key[row];
          // Of first <= key <= query, as one comparison.
          const uint32_t span = first_query + row - first;
          const uint32_t key = step + lane % 4 * 2 + e % 2 - first;
#pragma unroll
          for (int j = 0; j < kColumns; ++j) {
            if (key + j * 8 > span) s[i][j][e] = -INFINITY;
          }
        }
      }
    }
    float ds[kRows][kColumns][4] = {};
    MultiplyTransposed<d>(ds, shared.do_ + warp_row * d, shared.v[stage]);
    Slopes(s, ds, scale_log2, shared.lse_log2 + warp_row, shared.delta + warp_row);
    uint32_t left[kRows][kKeys / 16][4];
    ToLeftFactor(ds, left);
    Multiply<d>(dq, left, shared.k[stage]);
  }

  float factor[kRows][2];
#pragma unroll
  for (int i = 0; i < kRows; ++i) factor[i][0] = factor[i][1] = problem.scale;
  StoreRows<d>(dq, factor, shared.q + warp_row * d,
               grad.dq + head.offset + int64_t{first_query} * head.stride, head.stride,
               tokens - first_query);
}

}  // namespace query_pass

// The key pass: a block has 64 keys, a warp 16 of them, and a step 64 queries. Scores are
// transposed, keys by queries, so that P' and dS' are left factors as they come.
namespace key_pass {

constexpr int kKeys = 64;
constexpr int kQueries = 64;
constexpr int kColumns = kQueries / 8;
static_assert(kKeys == kWarps * 16);

template <int d>
struct alignas(kTileAlignment) Shared {
  BF16 k[kKeys * d];
  BF16 v[kKeys * d];
  BF16 q[2][kQueries * d];
  BF16 do_[2][kQueries * d];
  float lse[2][kQueries];
  float delta[2][kQueries];
  int32_t boundaries[kSharedBoundaries];
  int32_t last_query[kKeys];
};

// Starts the copy of a step's queries; zeros from the slot's end on.
template <int d>
__device__ __forceinline__ void CopyStep(const AttentionProblem& problem,
                                         const AttentionGradPointers& grad,
                                         const AttentionHead& head, int step, int stage,
                                         Shared<d>& shared) {
  const int tokens = problem.tokens;
  CopyTile<kQueries, d>(shared.q[stage], problem.q + head.offset, head.stride, step, tokens);
  CopyTile<kQueries, d>(shared.do_[stage], grad.do_ + head.offset, head.stride, step, tokens);
  // Four rows in 16 bytes: the slot's tokens are a multiple of 16.
  constexpr int kChunks = kQueries / 4;
  if (threadIdx.x < 2 * kChunks) {
    const int row = threadIdx.x % kChunks * 4;
    const bool is_lse = threadIdx.x < kChunks;
    const bool valid = step + row < tokens;
    const float* from = (is_lse ? problem.lse : grad.delta) + head.row_offset;
    CopyAsync16(SharedAddress(&(is_lse ? shared.lse : shared.delta)[stage][row]),
                from + (valid ? step + row : 0), valid);
  }
}

// From the scores s and ds = v do', both transposed: s becomes P', ds becomes dS'.
__device__ __forceinline__ void Slopes(float (&s)[1][kColumns][4], float (&ds)[1][kColumns][4],
                                       float scale_log2, const float* lse, const float* delta) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const float2 shift = *reinterpret_cast<const float2*>(lse + j * 8 + column);
    const float2 mean = *reinterpret_cast<const float2*>(delta + j * 8 + column);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float minus = (e % 2 == 0 ? shift.x : shift.y) * -kLog2E;
      s[0][j][e] = Exp2(fmaf(s[0][j][e], scale_log2, minus));
      ds[0][j][e] = s[0][j][e] * (ds[0][j][e] - (e % 2 == 0 ? mean.x : mean.y));
    }
  }
}

template <int d, bool kBlocks>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    KeyGradKernel(const AttentionProblem problem, const AttentionGradPointers grad) {
  extern __shared__ __align__(kTileAlignment) uint8_t shared_memory[];
  Shared<d>& shared = *reinterpret_cast<Shared<d>*>(shared_memory);
  const AttentionHead head(problem, blockIdx.z, blockIdx.x);
  const int tokens = problem.tokens;
  const int tile = blockIdx.y * kKeys;

  CopyTile<kKeys, d>(shared.k, problem.k + head.offset, head.stride, tile, tokens);
  CopyTile<kKeys, d>(shared.v, problem.v + head.offset, head.stride, tile, tokens);
  CopyStep<d>(problem, grad, head, tile, 0, shared);
  const Documents<kBlocks> documents(problem, blockIdx.z, shared.boundaries);
  const int end = documents.LastQuery(min(tile + kKeys, tokens) - 1) + 1;
  // Keys behind the slot's end have no queries. They come in whole warps, as the slot's tokens
  // are a multiple of 16.
  if (threadIdx.x < kKeys) {
    const int own = tile + threadIdx.x;
    shared.last_query[threadIdx.x] = own < tokens ? documents.LastQuery(own) : -1;
  }

  const int lane = threadIdx.x % kWarp;
  const int warp_row = threadIdx.x / kWarp * 16;
  const int first_key = tile + warp_row;
  const int* last_query = shared.last_query + warp_row;
  const float scale_log2 = problem.scale * kLog2E;
  float dk[1][d / 8][4] = {}, dv[1][d / 8][4] = {};
  for (int step = tile, stage = 0; step < end; step += kQueries, stage ^= 1) {
    WaitForCopies();
    // Everybody's copies for this step are there, and nobody reads the other stage any more.
    __syncthreads();
    if (step + kQueries < end) {
      CopyStep<d>(problem, grad, head, step + kQueries, stage ^ 1, shared);
    }
    if (step + kQueries <= first_key || step > last_query[15]) continue;

    float s[1][kColumns][4] = {};
    MultiplyTransposed<d>(s, shared.k + warp_row * d, shared.q[stage]);
    if (step < first_key + 15 || step + kQueries - 1 > last_query[0]) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = e / 2 * 8 + lane / 4;
        const int key = first_key + row;
        // Of key <= query <= last_query, as one comparison.
        const uint32_t span = last_query[row] - key;
        const uint32_t query = step + lane % 4 * 2 + e % 2 - key;
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          if (query + j * 8 > span) s[0][j][e] = -INFINITY;
        }
      }
    }
    float ds[1][kColumns][4] = {};
    MultiplyTransposed<d>(ds, shared.v + warp_row * d, shared.do_[stage]);
    Slopes(s, ds, scale_log2, shared.lse[stage], shared.delta[stage]);
    uint32_t left[1][kQueries / 16][4];
    ToLeftFactor(s, left);
    Multiply<d>(dv, left, shared.do_[stage]);
    ToLeftFactor(ds, left);
    Multiply<d>(dk, left, shared.q[stage]);
  }

  const float scale[1][2] = {{problem.scale, problem.scale}};
  const float one[1][2] = {{1.0f, 1.0f}};
  const int64_t offset = head.offset + int64_t{first_key} * head.stride;
  StoreRows<d>(dk, scale, shared.k + warp_row * d, grad.dk + offset, head.stride,
               tokens - first_key);
  StoreRows<d>(dv, one, shared.v + warp_row * d, grad.dv + offset, head.stride, tokens - first_key);
}

}  // namespace key_pass

template <int d, bool kBlocks>
void Launch(const AttentionProblem& problem, const AttentionGradPointers& grad, CudaQueue& queue) {
  constexpr int kQueryBytes = sizeof(query_pass::Shared<d>);
  constexpr int kKeyBytes = sizeof(key_pass::Shared<d>);
  static_assert(std::max(kQueryBytes, kKeyBytes) ==
                (d > 64 ? kAttentionSharedBytes128 : kAttentionSharedBytes64));
  CUDA_CHECK(cudaFuncSetAttribute(query_pass::QueryGradKernel<d, kBlocks>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kQueryBytes));
  CUDA_CHECK(cudaFuncSetAttribute(key_pass::KeyGradKernel<d, kBlocks>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kKeyBytes));
  const dim3 query_grid(problem.heads, CeilDiv(problem.tokens, query_pass::kQueries),
                        problem.slots);
  query_pass::QueryGradKernel<d, kBlocks>
      <<<query_grid, kAttentionThreads, kQueryBytes, queue.stream()>>>(problem, grad);
  CheckLaunch("QueryGradKernel");
  // After the query pass, which writes delta.
  const dim3 key_grid(problem.heads, CeilDiv(problem.tokens, key_pass::kKeys), problem.slots);
  key_pass::KeyGradKernel<d, kBlocks>
      <<<key_grid, kAttentionThreads, kKeyBytes, queue.stream()>>>(problem, grad);
  CheckLaunch("KeyGradKernel");
}

template <int d>
void Launch(const AttentionProblem& problem, const AttentionGradPointers& grad, CudaQueue& queue) {
  if (problem.window_block == 1) {
    Launch<d, false>(problem, grad, queue);
  } else {
    Launch<d, true>(problem, grad, queue);
  }
}

}  // namespace

void LaunchAttentionGradPortable(const AttentionProblem& problem, const AttentionGradPointers& grad,
                                 CudaQueue& queue) {
  if (problem.head_dim == 64) {
    Launch<64>(problem, grad, queue);
  } else {
    Launch<128>(problem, grad, queue);
  }
}

void LaunchAttentionGrad(const AttentionProblem& problem, const AttentionGradPointers& grad,
                         CudaQueue& queue) {
  if (AttentionGradHopperSupports(problem)) {
    LaunchAttentionGradHopper(problem, grad, queue);
  } else {
    LaunchAttentionGradPortable(problem, grad, queue);
  }
}

}  // namespace kernels::cuda
