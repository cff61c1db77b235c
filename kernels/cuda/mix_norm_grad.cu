// The backward pass of MixNorm on CUDA. Bytes a row of D columns: 14 D (reads dresidual, du, x, x0,
// dx0, writes dx, dx0); dx_extra 2 D more, a skip connection 4 D more, without a norm 2 D less
// (du). The mix, which the norm's gradient needs, is computed again. At D = 768, 393,216 rows
// and 4.29 TB/s: 0.99 ms to 1.41 ms.
#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/norm_rows.cuh"

namespace kernels::norm {
namespace {

// Rows of a MixNormGrad block. Long enough that the block's sums cost nothing, short enough for
// several waves of blocks in a slot of 48 Ki tokens; fixes the order in which dscalars adds up.
constexpr int kMixGradRows = 32;
constexpr int kSums = 3;  // of dmixed times: x + s * saved; x0; saved
constexpr int kSumThreads = 256;

struct MixGrad {
  const BF16* dresidual;  // may be null
  const BF16* du;         // with inv_rms only if there is a norm
  const float* du_head;   // [rows, head_cols], may be null
  int head_cols;
  const float* inv_rms;
  const BF16 *x, *x0, *saved;  // saved may be null
  const float* scalars;
  MixScalars which;
  const BF16* dx_extra;  // may be null
  BF16 *dx, *dsaved, *dx0;
  float* partials;  // [slots, kSums, blocks of a slot]
  int64_t tokens;
  int cols;
};

// g = the row's part of du_head, zeros elsewhere.
template <typename S>
__device__ __forceinline__ void LoadHead(const MixGrad& a, int64_t row, float (&g)[S::kVecs][8]) {
  const int head_cols = a.du_head == nullptr ? 0 : a.head_cols;
#pragma unroll
  for (int i = 0; i < S::kVecs; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) g[i][j] = 0.0f;
    if (ColumnOf<S>(i) >= head_cols) continue;  // all but few lanes: the head is narrow
    const float* head = a.du_head + row * head_cols + ColumnOf<S>(i);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (ColumnOf<S>(i) + j < head_cols) g[i][j] = head[j];
    }
  }
}

// Adds this thread's part of the row to `sums`. dx may be dresidual or du, and dx0 is read and
// written: each element is so by one thread, which stores after its loads.
template <typename S, bool normed>
__device__ __forceinline__ void MixGradRow(const MixGrad& a, int64_t row, const MixWeights& w,
                                           float (&sums)[kSums]) {
  const int cols = a.cols;
  const int64_t at = row * cols;
  BF16x8 du[S::kVecs], residual[S::kVecs], x[S::kVecs], x0[S::kVecs];
  BF16x8 dx0[S::kVecs], saved[S::kVecs], extra[S::kVecs];
  float g[S::kVecs][8];
  float rho = 0;
  if constexpr (normed) {
    rho = a.inv_rms[row];
    LoadHead<S>(a, row, g);
    LoadRow<S>(a.du + at, cols, du);
  }
  LoadOptionalRow<S>(a.dresidual, at, cols, residual);
  LoadRow<S>(a.x + at, cols, x);
  LoadRow<S>(a.x0 + at, cols, x0);
  LoadRow<S>(a.dx0 + at, cols, dx0);
  LoadOptionalRow<S>(a.saved, at, cols, saved);
  LoadOptionalRow<S>(a.dx_extra, at, cols, extra);
  float share = 0;
  if constexpr (normed) {
    float dot = 0;
#pragma unroll
    for (int i = 0; i < S::kVecs; ++i) {
      float f[8], now[8], first[8], old[8];
      cuda::Unpack(du[i], f);
      cuda::Unpack(x[i], now);
      cuda::Unpack(x0[i], first);
      cuda::Unpack(saved[i], old);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        g[i][j] += f[j];
        dot = fmaf(cuda::RoundF32(Mixed(w, now[j], first[j], old[j])), g[i][j], dot);
      }
    }
    share = ShareOfX(rho, RowSum<S>(dot) / cols);
  }
  const float wxs = w.x * w.s;
#pragma unroll
  for (int i = 0; i < S::kVecs; ++i) {
    float base[8], now[8], first[8], old[8], dx[8], dfirst[8], dold[8];
    cuda::Unpack(residual[i], base);
    cuda::Unpack(x[i], now);
    cuda::Unpack(x0[i], first);
    cuda::Unpack(saved[i], old);
    cuda::Unpack(extra[i], dx);
    cuda::Unpack(dx0[i], dfirst);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float dmixed = base[j];
      if constexpr (normed) {
        // Again, as before the sum: a register for each element of the row would be too many.
        const float mixed = cuda::RoundF32(Mixed(w, now[j], first[j], old[j]));
        dmixed = fmaf(rho, fmaf(-mixed, share, g[i][j]), base[j]);
      }
      sums[0] = fmaf(dmixed, fmaf(w.s, old[j], now[j]), sums[0]);
      sums[1] = fmaf(dmixed, first[j], sums[1]);
      sums[2] = fmaf(dmixed, old[j], sums[2]);
      dx[j] = fmaf(w.x, dmixed, dx[j]);
      dfirst[j] = fmaf(w.x0, dmixed, dfirst[j]);
      dold[j] = wxs * dmixed;
    }
    const int col = ColumnOf<S>(i);
    if (col >= cols) continue;
    cuda::Store8(a.dx + at + col, cuda::Pack(dx));
    cuda::Store8(a.dx0 + at + col, cuda::Pack(dfirst));
    if (a.saved != nullptr) cuda::Store8(a.dsaved + at + col, cuda::Pack(dold));
  }
}

// Block (b, slot) takes kMixGradRows rows of one slot, so that no bit depends on other slots.
template <typename S, bool normed>
__global__ void __launch_bounds__(kThreads, S::kVecs <= 3 ? 3 : 2)
    MixNormGradKernel(const MixGrad a) {
  __shared__ float shared[kSums][kWarps];
  const MixWeights w = WeightsOf(a.scalars, a.which);
  const int64_t slot = blockIdx.y, begin = int64_t{blockIdx.x} * kMixGradRows;
  const int64_t end = min(begin + kMixGradRows, a.tokens);
  float sums[kSums] = {};
  for (int64_t t = begin + threadIdx.x / S::kRowThreads; t < end; t += S::kRows) {
    MixGradRow<S, normed>(a, slot * a.tokens + t, w, sums);
  }
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const float sum = cuda::BlockSum<kThreads>(sums[i], shared[i]);
    if (threadIdx.x == 0) a.partials[(slot * kSums + i) * gridDim.x + blockIdx.x] = sum;
  }
}

// Block l adds its share of the slots to leaf l, slot after slot: all slots to the one leaf, or
// slot l alone. partials  [slots, kSums, blocks]
__global__ void __launch_bounds__(kSumThreads)
    MixScalarsGradKernel(const float* partials, int blocks, int slots_per_leaf,
                         const float* scalars, MixScalars which, int count, float* dscalars) {
  __shared__ float shared[kSums][kSumThreads / kWarp];
  const MixWeights w = WeightsOf(scalars, which);
  float* leaf = dscalars + int64_t{blockIdx.x} * count;
  partials += int64_t{blockIdx.x} * slots_per_leaf * kSums * blocks;
  for (int slot = 0; slot < slots_per_leaf; ++slot) {
    float totals[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i, partials += blocks) {
      float sum = 0;
      for (int b = threadIdx.x; b < blocks; b += kSumThreads) sum += partials[b];
      totals[i] = cuda::BlockSum<kSumThreads>(sum, shared[i]);
    }
    if (threadIdx.x == 0) {
      if (which.lambda_x >= 0) leaf[which.lambda_x] += totals[0];
      leaf[which.lambda_x0] += which.subtract_x0 ? -totals[1] : totals[1];
      if (which.skip >= 0) {
        const float factor = which.skip_is_weight ? w.x : w.x * w.s * (1 - w.s);
        // Rounded before it is added, so that a slot's part is what it is in a leaf of its own.
        leaf[which.skip] += __fmul_rn(factor, totals[2]);
      }
    }
    __syncthreads();  // the next slot writes `shared` again
  }
}

}  // namespace

void MixNormGrad(const MixNormGradArgs& args, CudaQueue& queue) {
  const int64_t slots = args.x.dim(0), tokens = args.x.dim(1);
  const int64_t blocks = CeilDiv(tokens, kMixGradRows), leaves = args.dscalars.dim(0);
  MixGrad grad;
  grad.dresidual = OptionalBF16(args.dresidual);
  grad.du = OptionalBF16(args.du);
  grad.du_head = args.du_head ? args.du_head.f32() : nullptr;
  grad.head_cols = args.du_head ? args.du_head.cols() : 0;
  grad.inv_rms = args.du ? args.inv_rms.f32() : nullptr;
  grad.x = args.x.bf16();
  grad.x0 = args.x0.bf16();
  grad.saved = OptionalBF16(args.saved);
  grad.scalars = args.scalars.f32();
  grad.which = args.which;
  grad.dx_extra = OptionalBF16(args.dx_extra);
  grad.dx = args.dx.bf16();
  grad.dsaved = args.dsaved ? args.dsaved.bf16() : nullptr;
  grad.dx0 = args.dx0.bf16();
  grad.partials = static_cast<float*>(queue.Scratch(slots * kSums * blocks * sizeof(float)));
  grad.tokens = tokens;
  grad.cols = args.x.cols();
  const cudaStream_t stream = queue.stream();
  ForColumns("MixNormGrad", args.x, [&](auto shape) {
    ForNorm(!args.du.empty(), [&](auto normed) {
      MixNormGradKernel<decltype(shape), normed>
          <<<dim3(blocks, slots), kThreads, 0, stream>>>(grad);
    });
  });
  CheckLaunch("MixNormGrad");
  MixScalarsGradKernel<<<leaves, kSumThreads, 0, stream>>>(
      grad.partials, blocks, slots / leaves, grad.scalars, grad.which, args.scalars.size(),
      args.dscalars.f32());
  CheckLaunch("MixNormGrad's scalars");
}

}  // namespace kernels::norm
