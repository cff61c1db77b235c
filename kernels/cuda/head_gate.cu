// The sparse attention gate on CUDA: a warp per token. For the gates lane `head` stands for a head;
// for o a lane holds vectors lane, lane + 32, ... of the row.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/head_gate.h"
#include "kernels/cuda/partials.cuh"
#include "third_party/absl_compat/check.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMaxHeads = 32;  // lanes
constexpr int kMaxK = 16;
// Vectors of a row that a lane loads before it uses the first: all of a row of 768.
constexpr int kInFlight = 3;
// In the forward pass. The weights are loaded once a block, so a block does many rows.
constexpr int kBlocksPerProcessor = 6;
// Of one slot in the backward pass: whole waves of two or three blocks on 132 processors.
constexpr int64_t kMaxBlocks = 132 * 6;

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

// gate_w in f32, zero where there is no head or feature. The odd stride lets 32 lanes read one
// feature of 32 heads without bank conflicts.
struct SharedWeights {
  static constexpr int kStride = kMaxK + 1;

  // Ends with a barrier.
  __device__ void Load(const Problem& p) {
    for (int i = threadIdx.x; i < kMaxHeads * kMaxK; i += kThreads) {
      const int head = i / kMaxK, feature = i % kMaxK;
      const bool real = head < p.heads && feature < p.k;
      w[head * kStride + feature] = real ? ToF32(p.gate_w[head * p.k + feature]) : 0.0f;
    }
    __syncthreads();
  }
  __device__ float At(int head, int feature) const { return w[head * kStride + feature]; }

  float w[kMaxHeads * kStride];
};

// Of lane `head`, from u of lane `feature`.
__device__ __forceinline__ float Gate(const SharedWeights& weights, float u) {
  const int lane = threadIdx.x % kWarp;
  float dot = 0;
#pragma unroll
  for (int i = 0; i < kMaxK; ++i) {
    dot += weights.At(lane, i) * __shfl_sync(0xffffffffu, u, i);
  }
  return Sigmoid(dot);
}

// Bytes per token: 2 D read, 2 D written, and a sector of u.
template <int head_dim>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor) GateKernel(Problem p, BF16* y) {
  constexpr int kHeadVectors = head_dim / 8;
  __shared__ SharedWeights weights;
  weights.Load(p);
  const int lane = threadIdx.x % kWarp;
  const int vectors = p.heads * kHeadVectors;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; row < p.rows;
       row += stride) {
    const int64_t at = row * vectors * 8;
    const float u = lane < p.k ? ToF32(p.u[row * p.u_dim + lane]) : 0.0f;
    float gate = 0;
    for (int first = 0; first < vectors; first += kInFlight * kWarp) {
      BF16x8 packed[kInFlight];
#pragma unroll
      for (int c = 0; c < kInFlight; ++c) {
        const int vector = first + c * kWarp + lane;
        if (vector < vectors) packed[c] = LoadStreaming8(p.o + at + vector * 8);
      }
      if (first == 0) gate = Gate(weights, u);  // while o is on its way
#pragma unroll
      for (int c = 0; c < kInFlight; ++c) {
        const int vector = first + c * kWarp + lane;
        const float factor = __shfl_sync(0xffffffffu, gate, vector / kHeadVectors % kWarp);
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
  constexpr int kHeadVectors = head_dim / 8;
  constexpr int kHeadsAtOnce = kWarp / kHeadVectors;  // that a warp's vectors cover
  const int lane = threadIdx.x % kWarp;
  float mine = 0;
  for (int first = 0; first < vectors; first += kInFlight * kWarp) {
    BF16x8 packed_dy[kInFlight], packed_o[kInFlight];
#pragma unroll
    for (int c = 0; c < kInFlight; ++c) {
      const int vector = first + c * kWarp + lane;
      packed_dy[c] = packed_o[c] = BF16x8{};
      if (vector >= vectors) continue;
      packed_dy[c] = LoadStreaming8(dy + vector * 8);
      packed_o[c] = LoadStreaming8(o + vector * 8);
    }
#pragma unroll
    for (int c = 0; c < kInFlight; ++c) {
      const int vector = first + c * kWarp + lane;
      const float factor = __shfl_sync(0xffffffffu, gate, vector / kHeadVectors % kWarp);
      float g[8], x[8];
      Unpack(packed_dy[c], g);
      Unpack(packed_o[c], x);
      float dot = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) dot += g[i] * x[i];
      dot = WarpSum<kHeadVectors>(dot);
      // From the lanes of a head's vectors to the head's lane.
      const float dots = __shfl_sync(0xffffffffu, dot, lane % kHeadsAtOnce * kHeadVectors);
      if (lane / kHeadsAtOnce == first / kWarp + c) mine = dots;
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
__global__ void __launch_bounds__(kThreads)
    GateGradKernel(Problem p, const BF16* dy, BF16* do_, float* du_head, Partials partials) {
  __shared__ SharedWeights weights;
  __shared__ float sums[kWarps][kMaxHeads * SharedWeights::kStride];
  weights.Load(p);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int vectors = p.heads * (head_dim / 8);
  float dw[kMaxK] = {};  // of lane `head`
  for (int64_t token = int64_t{blockIdx.x} * kWarps + warp; token < p.tokens;
       token += int64_t{gridDim.x} * kWarps) {
    const int64_t row = blockIdx.y * p.tokens + token;
    const int64_t at = row * vectors * 8;
    const float u = lane < p.k ? ToF32(p.u[row * p.u_dim + lane]) : 0.0f;
    const float gate = Gate(weights, u);
    const float dgate = ScaleRow<head_dim>(dy + at, p.o + at, do_ + at, vectors, gate);
    const float slope = dgate * gate * (1.0f - gate);
#pragma unroll
    for (int i = 0; i < kMaxK; ++i) dw[i] += slope * __shfl_sync(0xffffffffu, u, i);
    float du = 0;  // of lane `feature`
    for (int head = 0; head < p.heads; ++head) {
      du += weights.At(head, lane % kMaxK) * __shfl_sync(0xffffffffu, slope, head);
    }
    if (lane < p.k) du_head[row * p.k + lane] = du;
  }
#pragma unroll
  for (int i = 0; i < kMaxK; ++i) sums[warp][lane * SharedWeights::kStride + i] = dw[i];
  __syncthreads();
  for (int i = threadIdx.x; i < p.heads * p.k; i += kThreads) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) {
      sum += sums[w][i / p.k * SharedWeights::kStride + i % p.k];
    }
    *partials.at(blockIdx.y, i, blockIdx.x) = sum;
  }
}

// Returns head_dim.
int64_t CheckGate(const Tensor& o, const Tensor& gate_w) {
  const int64_t head_dim = o.dim(2) / gate_w.dim(0);
  CHECK(head_dim == 64 || head_dim == 128) << "HeadGate: head_dim " << head_dim << " of o " << o
                                           << ", gate_w " << gate_w << "; on CUDA 64 or 128";
  CHECK(gate_w.dim(0) <= kMaxHeads && gate_w.dim(1) <= kMaxK)
      << "HeadGate: gate_w " << gate_w << "; on CUDA at most " << kMaxHeads << " heads and "
      << kMaxK << " features";
  return head_dim;
}

}  // namespace

void HeadGate(const Tensor& o, const Tensor& u, const Tensor& gate_w, const Tensor& y,
              CudaQueue& queue) {
  const auto kernel = CheckGate(o, gate_w) == 64 ? GateKernel<64> : GateKernel<128>;
  const Problem p(o, u, gate_w);
  const int64_t blocks =
      std::min(CeilDiv(p.rows, kWarps), int64_t{queue.processors()} * kBlocksPerProcessor);
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, queue.stream()>>>(p, y.bf16());
  CheckLaunch("HeadGate");
}

void HeadGateGrad(const Tensor& dy, const Tensor& o, const Tensor& u, const Tensor& gate_w,
                  const Tensor& do_, const Tensor& du_head, const Tensor& dgate_w,
                  CudaQueue& queue) {
  const auto kernel = CheckGate(o, gate_w) == 64 ? GateGradKernel<64> : GateGradKernel<128>;
  const Problem p(o, u, gate_w);
  const int values = p.heads * p.k;
  const int64_t blocks = std::min(CeilDiv(p.tokens, kWarps), kMaxBlocks);
  Partials partials = {nullptr, o.dim(0), values, static_cast<int>(blocks)};
  partials.data = static_cast<float*>(queue.Scratch(partials.bytes()));
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(o.dim(0)));
  kernel<<<grid, kThreads, 0, queue.stream()>>>(p, dy.bf16(), do_.bf16(), du_head.f32(), partials);
  CheckLaunch("HeadGateGrad");
  AddPartials(partials, 0, values, dgate_w, 0, queue.stream());
}

}  // namespace kernels::cuda
