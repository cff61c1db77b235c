// The values of GatedQkv on CUDA: a warp per token, as gate_rows.cuh deals lanes.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gate_rows.cuh"
#include "kernels/cuda/gated.h"
#include "kernels/cuda/partials.cuh"
#include "third_party/absl_compat/check.h"

namespace kernels::cuda {
namespace {

// In the forward pass. The weights are loaded once a block, so a block does many rows.
constexpr int kBlocksPerSm = 5;

struct Problem {
  explicit Problem(const GatedQkvArgs& args)
      : tokens(args.qkv.dim(1)),
        rows(args.qkv.rows()),
        heads(args.heads),
        k(static_cast<int>(args.value_gate.dim(1))),
        dim(static_cast<int>(args.qkv.dim(2) / 3)),
        qkv(args.qkv.bf16()),
        token_ids(args.tokens.i32()),
        table(args.value_table.bf16()),
        u(args.u.bf16()),
        gate(args.value_gate.bf16()) {}

  __device__ const BF16* Value(int64_t row) const { return table + int64_t{token_ids[row]} * dim; }
  // The feature of lane `feature`.
  __device__ float U(int64_t row) const {
    const int lane = threadIdx.x % kWarp;
    return lane < k ? ToF32(u[row * dim + lane]) : 0.0f;
  }

  int64_t tokens, rows;
  int heads, k, dim;
  const BF16* qkv;
  const int32_t* token_ids;
  const BF16* table;
  const BF16* u;
  const BF16* gate;
};

// v + gamma * value. Bytes per token: 4 D read, 2 D written, and a sector of u.
template <int head_dim>
__global__ void __launch_bounds__(kGateThreads, kBlocksPerSm) ValuesKernel(Problem p, BF16* y) {
  __shared__ GateWeights weights;
  weights.Load(p.gate, p.heads, p.k);
  const int lane = threadIdx.x % kWarp;
  const int vectors = p.dim / 8;
  for (int64_t row = int64_t{blockIdx.x} * kGateWarps + threadIdx.x / kWarp; row < p.rows;
       row += int64_t{gridDim.x} * kGateWarps) {
    const BF16* value = p.Value(row);
    const BF16* v = p.qkv + (row * 3 + 2) * p.dim;
    const float u = p.U(row);
    float gamma = 0;
    for (int first = 0; first < vectors; first += kGateInFlight * kWarp) {
      BF16x8 packed_v[kGateInFlight], packed_value[kGateInFlight];
#pragma unroll
      for (int c = 0; c < kGateInFlight; ++c) {
        const int vector = first + c * kWarp + lane;
        if (vector < vectors) packed_v[c] = LoadStreaming8(v + vector * 8);
      }
#pragma unroll
      for (int c = 0; c < kGateInFlight; ++c) {
        const int vector = first + c * kWarp + lane;
        if (vector < vectors) packed_value[c] = Load8(value + vector * 8);
      }
      if (first == 0) gamma = 2.0f * weights.Gate(u);  // while the rows are on their way
#pragma unroll
      for (int c = 0; c < kGateInFlight; ++c) {
        const int vector = first + c * kWarp + lane;
        const float factor = OfVectorsHead<head_dim>(gamma, vector);
        if (vector >= vectors) continue;
        float f[8], g[8];
        Unpack(packed_v[c], f);
        Unpack(packed_value[c], g);
#pragma unroll
        for (int i = 0; i < 8; ++i) f[i] += factor * g[i];
        Store8(y + row * p.dim + vector * 8, Pack(f));
      }
    }
  }
}

// One token's dv: copied to `dv_out`, and gamma of the lanes' heads times it added to `drow`.
// Returns dv . value of lane `head`'s head.
template <int head_dim>
__device__ __forceinline__ float AddRows(const BF16* dv, const BF16* value, BF16* dv_out,
                                         BF16* drow, int vectors, float gamma) {
  const int lane = threadIdx.x % kWarp;
  float mine = 0;
  for (int first = 0; first < vectors; first += kGateInFlight * kWarp) {
    BF16x8 packed_dv[kGateInFlight], packed_value[kGateInFlight], packed_row[kGateInFlight];
#pragma unroll
    for (int c = 0; c < kGateInFlight; ++c) {
      const int vector = first + c * kWarp + lane;
      packed_dv[c] = packed_value[c] = packed_row[c] = BF16x8{};
      if (vector >= vectors) continue;
      packed_dv[c] = LoadStreaming8(dv + vector * 8);
      packed_row[c] = LoadStreaming8(drow + vector * 8);
      packed_value[c] = Load8(value + vector * 8);
    }
#pragma unroll
    for (int c = 0; c < kGateInFlight; ++c) {
      const int vector = first + c * kWarp + lane;
      const float factor = OfVectorsHead<head_dim>(gamma, vector);
      float g[8], x[8], sum[8];
      Unpack(packed_dv[c], g);
      Unpack(packed_value[c], x);
      Unpack(packed_row[c], sum);
      float dot = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) dot += g[i] * x[i];
      CollectHeadSums<head_dim>(dot, first / kWarp + c, mine);
      if (vector >= vectors) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] += factor * g[i];
      Store8(dv_out + vector * 8, packed_dv[c]);
      Store8(drow + vector * 8, Pack(sum));
    }
  }
  return mine;
}

// Bytes per token: 6 D read, 4 D written, a sector of u, and 4 k of du_head read and written. A
// slot's tokens are dealt to its blocks' warps in turn. partials: dvalue_gate [heads * k].
template <int head_dim>
__global__ void __launch_bounds__(kGateThreads)
    ValuesGradKernel(Problem p, const BF16* dv, BF16* dqkv, BF16* dvalue_rows, float* du_head,
                     Partials partials) {
  __shared__ GateWeights weights;
  __shared__ GateWeightSums sums;
  weights.Load(p.gate, p.heads, p.k);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  float dw[kMaxGateFeatures] = {};  // of lane `head`
  for (int64_t token = int64_t{blockIdx.x} * kGateWarps + warp; token < p.tokens;
       token += int64_t{gridDim.x} * kGateWarps) {
    const int64_t row = blockIdx.y * p.tokens + token;
    const float u = p.U(row);
    const float gate = weights.Gate(u);
    const float dgamma =
        AddRows<head_dim>(dv + row * p.dim, p.Value(row), dqkv + (row * 3 + 2) * p.dim,
                          dvalue_rows + row * p.dim, p.dim / 8, 2.0f * gate);
    const float slope = dgamma * 2.0f * gate * (1.0f - gate);
#pragma unroll
    for (int i = 0; i < kMaxGateFeatures; ++i) dw[i] += slope * __shfl_sync(0xffffffffu, u, i);
    const float du = weights.UGrad(slope, p.heads);
    if (lane < p.k) du_head[row * p.k + lane] += du;
  }
  sums.Write(dw, p.heads, p.k, partials);
}

// Rows of `vectors` vectors. Bytes per token: 2 D read, 2 D written.
__global__ void __launch_bounds__(kGateThreads)
    CopyRowsKernel(const BF16* from, int64_t from_stride, BF16* to, int64_t to_stride, int64_t rows,
                   int vectors) {
  const int lane = threadIdx.x % kWarp;
  for (int64_t row = int64_t{blockIdx.x} * kGateWarps + threadIdx.x / kWarp; row < rows;
       row += int64_t{gridDim.x} * kGateWarps) {
    for (int first = 0; first < vectors; first += kGateInFlight * kWarp) {
      BF16x8 packed[kGateInFlight];
#pragma unroll
      for (int c = 0; c < kGateInFlight; ++c) {
        const int vector = first + c * kWarp + lane;
        if (vector < vectors) packed[c] = LoadStreaming8(from + row * from_stride + vector * 8);
      }
#pragma unroll
      for (int c = 0; c < kGateInFlight; ++c) {
        const int vector = first + c * kWarp + lane;
        if (vector < vectors) Store8(to + row * to_stride + vector * 8, packed[c]);
      }
    }
  }
}

// Blocks of a grid that walks over the rows of all slots.
unsigned Blocks(int64_t rows, const CudaQueue& queue) {
  return static_cast<unsigned>(
      std::min(CeilDiv(rows, kGateWarps), int64_t{queue.sm_count()} * kBlocksPerSm));
}

void CopyRows(const BF16* from, int64_t from_stride, BF16* to, int64_t to_stride,
              const GatedQkvArgs& args, CudaQueue& queue) {
  const int64_t rows = args.qkv.rows();
  const int vectors = static_cast<int>(args.qkv.dim(2) / 3 / 8);
  CopyRowsKernel<<<Blocks(rows, queue), kGateThreads, 0, queue.stream()>>>(
      from, from_stride, to, to_stride, rows, vectors);
  CheckLaunch("GatedQkv's copy of values");
}

// Returns head_dim, which the caller has found to be 64 or 128.
int64_t CheckGate(const GatedQkvArgs& args) {
  CHECK(args.heads <= kMaxGateHeads && args.value_gate.dim(1) <= kMaxGateFeatures)
      << "GatedQkv: value_gate " << args.value_gate << "; on CUDA at most " << kMaxGateHeads
      << " heads and " << kMaxGateFeatures << " features";
  return args.qkv.dim(2) / 3 / args.heads;
}

}  // namespace

void GatedValues(const GatedQkvArgs& args, CudaQueue& queue) {
  if (!args.value_table) {
    const int64_t dim = args.v.dim(2);
    CopyRows(args.qkv.bf16() + 2 * dim, 3 * dim, args.v.bf16(), dim, args, queue);
    return;
  }
  const auto kernel = CheckGate(args) == 64 ? ValuesKernel<64> : ValuesKernel<128>;
  const Problem p(args);
  kernel<<<Blocks(p.rows, queue), kGateThreads, 0, queue.stream()>>>(p, args.v.bf16());
  CheckLaunch("GatedQkv's values");
}

void GatedValuesGrad(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad, CudaQueue& queue) {
  if (!forward.value_table) {
    const int64_t dim = grad.dv.dim(2);
    CopyRows(grad.dv.bf16(), dim, grad.dqkv.bf16() + 2 * dim, 3 * dim, forward, queue);
    return;
  }
  const auto kernel = CheckGate(forward) == 64 ? ValuesGradKernel<64> : ValuesGradKernel<128>;
  const Problem p(forward);
  const int64_t slots = forward.qkv.dim(0);
  const int values = p.heads * p.k;
  const int64_t blocks = std::min(CeilDiv(p.tokens, kGateWarps), kMaxGateBlocks);
  Partials partials = {nullptr, slots, values, static_cast<int>(blocks)};
  partials.data = static_cast<float*>(queue.Scratch(partials.bytes()));
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(slots));
  kernel<<<grid, kGateThreads, 0, queue.stream()>>>(
      p, grad.dv.bf16(), grad.dqkv.bf16(), grad.dvalue_rows.bf16(), grad.du_head.f32(), partials);
  CheckLaunch("GatedQkvGrad's values");
  AddPartials(partials, 0, values, grad.dvalue_gate, 0, queue.stream());
}

}  // namespace kernels::cuda
