// The gated skip connection on CUDA: a warp per token. For the gate lane `feature` stands for a
// feature; of a row a lane holds vectors lane, lane + 32, ...
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gated.h"
#include "kernels/cuda/partials.cuh"
#include "third_party/absl_compat/check.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// Vectors of a row that a lane loads before it uses the first: all of a row of 768.
constexpr int kInFlight = 3;
constexpr int kBlocksPerSm = 5;
// Of one slot in the backward pass: whole waves of three or six blocks on 132 SMs.
constexpr int64_t kMaxBlocks = 132 * 6;

struct Problem {
  explicit Problem(const GatedSkipArgs& args)
      : tokens(args.saved.dim(1)),
        rows(args.saved.rows()),
        dim(static_cast<int>(args.saved.dim(2))),
        k(static_cast<int>(args.gate.dim(1))),
        x0(args.x0.bf16()),
        saved(args.saved.bf16()),
        gate(args.gate.bf16()),
        lambda(args.scalars.f32() + args.skip) {}

  // The weight of lane `feature`, and the feature of a token; 0 in the other lanes.
  __device__ float Weight() const {
    const int lane = threadIdx.x % kWarp;
    return lane < k ? ToF32(gate[lane]) : 0.0f;
  }
  __device__ float Feature(int64_t row) const {
    const int lane = threadIdx.x % kWarp;
    return lane < k ? ToF32(x0[row * dim + lane]) : 0.0f;
  }

  int64_t tokens, rows;
  int dim, k;
  const BF16* x0;
  const BF16* saved;
  const BF16* gate;
  const float* lambda;
};

// Bytes per token: 4 D read, 2 D written, and a sector of x0. `y` may be x: each thread has read
// what it overwrites.
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    SkipKernel(Problem p, const BF16* x, BF16* y) {
  const int lane = threadIdx.x % kWarp;
  const int vectors = p.dim / 8;
  const float weight = p.Weight();
  const float twice = 2.0f * Sigmoid(*p.lambda);
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; row < p.rows;
       row += int64_t{gridDim.x} * kWarps) {
    const int64_t at = row * p.dim;
    const float feature = p.Feature(row);
    float s = 0;
    for (int first = 0; first < vectors; first += kInFlight * kWarp) {
      BF16x8 packed_x[kInFlight], packed_saved[kInFlight];
#pragma unroll
      for (int c = 0; c < kInFlight; ++c) {
        const int vector = first + c * kWarp + lane;
        if (vector >= vectors) continue;
        packed_x[c] = LoadStreaming8(x + at + vector * 8);
        packed_saved[c] = LoadStreaming8(p.saved + at + vector * 8);
      }
      // While the rows are on their way.
      if (first == 0) s = twice * Sigmoid(WarpSum(weight * feature));
#pragma unroll
      for (int c = 0; c < kInFlight; ++c) {
        const int vector = first + c * kWarp + lane;
        if (vector >= vectors) continue;
        float f[8], g[8];
        Unpack(packed_x[c], f);
        Unpack(packed_saved[c], g);
#pragma unroll
        for (int i = 0; i < 8; ++i) f[i] += s * g[i];
        Store8(y + at + vector * 8, Pack(f));
      }
    }
  }
}

// dsaved = s * dy of one token; returns this lane's part of dy . saved.
__device__ __forceinline__ float ScaleRow(const BF16* dy, const BF16* saved, BF16* dsaved,
                                          int vectors, float s) {
  const int lane = threadIdx.x % kWarp;
  float dot = 0;
  for (int first = 0; first < vectors; first += kInFlight * kWarp) {
    BF16x8 packed_dy[kInFlight], packed_saved[kInFlight];
#pragma unroll
    for (int c = 0; c < kInFlight; ++c) {
      const int vector = first + c * kWarp + lane;
      if (vector >= vectors) continue;
      packed_dy[c] = LoadStreaming8(dy + vector * 8);
      packed_saved[c] = LoadStreaming8(saved + vector * 8);
    }
#pragma unroll
    for (int c = 0; c < kInFlight; ++c) {
      const int vector = first + c * kWarp + lane;
      if (vector >= vectors) continue;
      float g[8], x[8];
      Unpack(packed_dy[c], g);
      Unpack(packed_saved[c], x);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        dot += g[i] * x[i];
        g[i] *= s;
      }
      Store8(dsaved + vector * 8, Pack(g));
    }
  }
  return dot;
}

// Bytes per token: 4 D read, 2 D written, a sector of x0, and one of dx0 read and written. A slot's
// tokens are dealt to its blocks' warps in turn. partials: dgate [k], then dlambda.
__global__ void __launch_bounds__(kThreads)
    SkipGradKernel(Problem p, const BF16* dy, BF16* dsaved, BF16* dx0, Partials partials) {
  __shared__ float sums[kWarps][kWarp + 1];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const float weight = p.Weight();
  const float lambda = Sigmoid(*p.lambda);
  float dweight = 0, dlambda = 0;  // of lane `feature`, and of each lane
  for (int64_t token = int64_t{blockIdx.x} * kWarps + warp; token < p.tokens;
       token += int64_t{gridDim.x} * kWarps) {
    const int64_t row = blockIdx.y * p.tokens + token;
    const int64_t at = row * p.dim;
    const float feature = p.Feature(row);
    const float old = lane < p.k ? ToF32(dx0[at + lane]) : 0.0f;
    const float gate = Sigmoid(WarpSum(weight * feature));
    const float ds =
        WarpSum(ScaleRow(dy + at, p.saved + at, dsaved + at, p.dim / 8, 2.0f * lambda * gate));
    dlambda += ds * 2.0f * gate;
    const float slope = ds * 2.0f * lambda * gate * (1.0f - gate);
    dweight += slope * feature;
    if (lane < p.k) dx0[at + lane] = Round(old + slope * weight);
  }
  sums[warp][lane] = dweight;
  if (lane == 0) sums[warp][kWarp] = dlambda * lambda * (1.0f - lambda);
  __syncthreads();
  if (threadIdx.x > p.k) return;
  const int column = threadIdx.x == p.k ? kWarp : static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += sums[w][column];
  *partials.at(blockIdx.y, static_cast<int>(threadIdx.x), blockIdx.x) = sum;
}

void CheckRow(const GatedSkipArgs& args) {
  CHECK(args.saved.dim(2) % 8 == 0 && args.gate.dim(1) <= kWarp)
      << "GatedSkip: saved " << args.saved << ", gate " << args.gate
      << "; on CUDA whole vectors of 8 features, and at most " << kWarp << " that the gate reads";
}

}  // namespace

void GatedSkip(const GatedSkipArgs& args, CudaQueue& queue) {
  CheckRow(args);
  const Problem p(args);
  const int64_t blocks =
      std::min(CeilDiv(p.rows, kWarps), int64_t{queue.sm_count()} * kBlocksPerSm);
  SkipKernel<<<static_cast<unsigned>(blocks), kThreads, 0, queue.stream()>>>(p, args.x.bf16(),
                                                                             args.y.bf16());
  CheckLaunch("GatedSkip");
}

void GatedSkipGrad(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad, CudaQueue& queue) {
  CheckRow(forward);
  const Problem p(forward);
  const int64_t slots = grad.dy.dim(0);
  const int64_t blocks = std::min(CeilDiv(p.tokens, kWarps), kMaxBlocks);
  Partials partials = {nullptr, slots, p.k + 1, static_cast<int>(blocks)};
  partials.data = static_cast<float*>(queue.Scratch(partials.bytes()));
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(slots));
  SkipGradKernel<<<grid, kThreads, 0, queue.stream()>>>(p, grad.dy.bf16(), grad.dsaved.bf16(),
                                                        grad.dx0.bf16(), partials);
  CheckLaunch("GatedSkipGrad");
  AddPartials(partials, 0, p.k, grad.dgate, 0, queue.stream());
  AddPartials(partials, p.k, 1, grad.dscalars, forward.skip, queue.stream());
}

}  // namespace kernels::cuda
