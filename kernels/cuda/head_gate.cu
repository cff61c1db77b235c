// The sparse attention gate on CUDA: a warp per token, as gate_rows.cuh deals lanes.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gate_rows.cuh"
#include "kernels/cuda/head_gate.h"
#include "kernels/cuda/partials.cuh"
#include "third_party/absl_compat/check.h"

namespace kernels::cuda {
namespace {

// In the forward pass. The weights are loaded once a block, so a block does many rows.
constexpr int kBlocksPerSm = 6;

struct Problem {
  Problem(const Tensor& o_tensor, const Tensor& u_tensor, const Tensor& gate_w_tensor)
      : tokens(o_tensor.dim(1)),
        rows(o_tensor.rows()),
        heads(static_cast<int>(gate_w_tensor.dim(0))),
        k(static_cast<int>(gate_w_tensor.dim(1))),
        u_dim(u_tensor.dim(2)),
        o(o_tensor.bf16()),
        u(u_tensor.bf16()),
        gate_w(gate_w_tensor.bf16()) {}

  int64_t tokens, rows;
  int heads, k;
  int64_t u_dim;
  const BF16* o;
  const BF16* u;
  const BF16* gate_w;
};

// Bytes per token: 2 D read, 2 D written, and a sector of u.
template <int head_dim>
__global__ void __launch_bounds__(kGateThreads, kBlocksPerSm) GateKernel(Problem p, BF16* y) {
  __shared__ GateWeights weights;
  weights.Load(p.gate_w, p.heads, p.k);
  const int lane = threadIdx.x % kWarp;
  const int vectors = p.heads * (head_dim / 8);
  const int64_t stride = int64_t{gridDim.x} * kGateWarps;
  for (int64_t row = int64_t{blockIdx.x} * kGateWarps + threadIdx.x / kWarp; row < p.rows;
       row += stride) {
    const int64_t at = row * vectors * 8;
    const float u = lane < p.k ? ToF32(p.u[row * p.u_dim + lane]) : 0.0f;
    float gate = 0;
    for (int first = 0; first < vectors; first += kGateInFlight * kWarp) {
      BF16x8 packed[kGateInFlight];
#pragma unroll
      for (int c = 0; c < kGateInFlight; ++c) {
        const int vector = first + c * kWarp + lane;
        if (vector < vectors) packed[c] = LoadStreaming8(p.o + at + vector * 8);
      }
      if (first == 0) gate = weights.Gate(u);  // while o is on its way
#pragma unroll
      for (int c = 0; c < kGateInFlight; ++c) {
        const int vector = first + c * kWarp + lane;
        const float factor = OfVectorsHead<head_dim>(gate, vector);
        if (vector >= vectors) continue;
        float f[8];
        Unpack(packed[c], f);
#pragma unroll
        for (float& x : f) x *= factor;
        Store8(y + at + vector * 8, Pack(f));
      }
    }
  }
}

// Scales dy of one token by the gates of the lanes; returns dy . o of lane `head`'s head.
template <int head_dim>
__device__ __forceinline__ float ScaleRow(const BF16* dy, const BF16* o, BF16* do_, int vectors,
                                          float gate) {
  const int lane = threadIdx.x % kWarp;
  float mine = 0;
  for (int first = 0; first < vectors; first += kGateInFlight * kWarp) {
    BF16x8 packed_dy[kGateInFlight], packed_o[kGateInFlight];
#pragma unroll
    for (int c = 0; c < kGateInFlight; ++c) {
      const int vector = first + c * kWarp + lane;
      packed_dy[c] = packed_o[c] = BF16x8{};
      if (vector >= vectors) continue;
      packed_dy[c] = LoadStreaming8(dy + vector * 8);
      packed_o[c] = LoadStreaming8(o + vector * 8);
    }
#pragma unroll
    for (int c = 0; c < kGateInFlight; ++c) {
      const int vector = first + c * kWarp + lane;
      const float factor = OfVectorsHead<head_dim>(gate, vector);
      float g[8], x[8];
      Unpack(packed_dy[c], g);
      Unpack(packed_o[c], x);
      float dot = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) dot += g[i] * x[i];
      CollectHeadSums<head_dim>(dot, first / kWarp + c, mine);
      if (vector >= vectors) continue;
#pragma unroll
      for (float& value : g) value *= factor;
      Store8(do_ + vector * 8, Pack(g));
    }
  }
  return mine;
}

// Bytes per token: 4 D read, 2 D written, a sector of u and 4 k of du_head. `do_` may be dy: each
// thread has read what it overwrites. A slot's tokens are dealt to its blocks' warps in turn.
// partials: dgate_w [heads * k].
template <int head_dim>
__global__ void __launch_bounds__(kGateThreads)
    GateGradKernel(Problem p, const BF16* dy, BF16* do_, float* du_head, Partials partials) {
  __shared__ GateWeights weights;
  __shared__ GateWeightSums sums;
  weights.Load(p.gate_w, p.heads, p.k);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int vectors = p.heads * (head_dim / 8);
  float dw[kMaxGateFeatures] = {};  // of lane `head`
  for (int64_t token = int64_t{blockIdx.x} * kGateWarps + warp; token < p.tokens;
       token += int64_t{gridDim.x} * kGateWarps) {
    const int64_t row = blockIdx.y * p.tokens + token;
    const int64_t at = row * vectors * 8;
    const float u = lane < p.k ? ToF32(p.u[row * p.u_dim + lane]) : 0.0f;
    const float gate = weights.Gate(u);
    const float dgate = ScaleRow<head_dim>(dy + at, p.o + at, do_ + at, vectors, gate);
    const float slope = dgate * gate * (1.0f - gate);
#pragma unroll
    for (int i = 0; i < kMaxGateFeatures; ++i) dw[i] += slope * __shfl_sync(0xffffffffu, u, i);
    const float du = weights.UGrad(slope, p.heads);
    if (lane < p.k) du_head[row * p.k + lane] = du;
  }
  sums.Write(dw, p.heads, p.k, partials);
}

// Returns head_dim.
int64_t CheckGate(const Tensor& o, const Tensor& gate_w) {
  const int64_t head_dim = o.dim(2) / gate_w.dim(0);
  CHECK(head_dim == 64 || head_dim == 128) << "HeadGate: head_dim " << head_dim << " of o " << o
                                           << ", gate_w " << gate_w << "; on CUDA 64 or 128";
  CHECK(gate_w.dim(0) <= kMaxGateHeads && gate_w.dim(1) <= kMaxGateFeatures)
      << "HeadGate: gate_w " << gate_w << "; on CUDA at most " << kMaxGateHeads << " heads and "
      << kMaxGateFeatures << " features";
  return head_dim;
}

}  // namespace

void HeadGate(const Tensor& o, const Tensor& u, const Tensor& gate_w, const Tensor& y,
              CudaQueue& queue) {
  const auto kernel = CheckGate(o, gate_w) == 64 ? GateKernel<64> : GateKernel<128>;
  const Problem p(o, u, gate_w);
  const int64_t blocks =
      std::min(CeilDiv(p.rows, kGateWarps), int64_t{queue.sm_count()} * kBlocksPerSm);
  kernel<<<static_cast<unsigned>(blocks), kGateThreads, 0, queue.stream()>>>(p, y.bf16());
  CheckLaunch("HeadGate");
}

void HeadGateGrad(const HeadGateGradArgs& args, CudaQueue& queue) {
  const Tensor& o = args.o;
  const auto kernel = CheckGate(o, args.gate_w) == 64 ? GateGradKernel<64> : GateGradKernel<128>;
  const Problem p(o, args.u, args.gate_w);
  const int values = p.heads * p.k;
  const int64_t blocks = std::min(CeilDiv(p.tokens, kGateWarps), kMaxGateBlocks);
  Partials partials = {nullptr, o.dim(0), values, static_cast<int>(blocks)};
  partials.data = static_cast<float*>(queue.Scratch(partials.bytes()));
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(o.dim(0)));
  kernel<<<grid, kGateThreads, 0, queue.stream()>>>(p, args.dy.bf16(), args.do_.bf16(),
                                                    args.du_head.f32(), partials);
  CheckLaunch("HeadGateGrad");
  AddPartials(partials, 0, values, args.dgate_w, 0, queue.stream());
}

}  // namespace kernels::cuda
