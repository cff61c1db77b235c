// Embedding, smear gate and first norm on CUDA. A warp does a row; lane l holds vectors l, l + 32,
// ... of it, and feature l of those that the gate reads. Embedding rows are gathered again in the
// backward pass rather than kept.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/embedding_grad.h"
#include "kernels/cuda/move_rows.h"
#include "kernels/cuda/partials.cuh"
#include "kernels/ops/norm.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

using namespace cuda;  // NOLINT: device helpers

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMaxVectors = 4;  // of a lane
constexpr int kMaxFeatures = kWarp;
// Neighbouring rows of a warp in the backward pass. Each row's dx is needed by two rows, so a
// warp computes one more than it has.
constexpr int kRun = 8;
static_assert(kRun + 2 <= kWarp, "a lane per token that a run reads");

struct Problem {
  explicit Problem(const EmbedSmearNormArgs& a)
      : slots(a.tokens.dim(0)),
        tokens(a.tokens.dim(1)),
        dim(static_cast<int>(a.x0.cols())),
        features(a.smear_w ? static_cast<int>(a.smear_w.cols()) : 0),
        token_ids(a.tokens.i32()),
        table(a.table.bf16()),
        smear_w(a.smear_w ? a.smear_w.bf16() : nullptr),
        lambda(a.smear_lambda < 0 ? nullptr : a.scalars.f32() + a.smear_lambda),
        x0(a.x0.bf16()),
        inv_rms(a.inv_rms.f32()) {}

  __device__ const BF16* Embedding(int32_t token) const { return table + int64_t{token} * dim; }
  // Zero beyond the features that the gate reads.
  __device__ float Feature(const BF16* row) const {
    const int lane = threadIdx.x % kWarp;
    return lane < features ? ToF32(row[lane]) : 0.0f;
  }

  int64_t slots, tokens;
  int dim, features;
  const int32_t* token_ids;
  const BF16* table;
  const BF16* smear_w;
  const float* lambda;  // null without a smear, when there are no features either
  BF16* x0;
  float* inv_rms;
};

// A lane's vectors of a row.
template <int vectors>
struct PackedRow {
  // Zero beyond the row, and all of it without `row`.
  __device__ void Load(const BF16* row, int dim) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const int column = (v * kWarp + threadIdx.x % kWarp) * 8;
      packed[v] = row != nullptr && column < dim ? Load8(row + column) : BF16x8{};
    }
  }
  BF16x8 packed[vectors];
};

template <int vectors>
__device__ __forceinline__ void Store(const float (&row)[vectors][8], int dim, BF16* out) {
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    const int column = (v * kWarp + threadIdx.x % kWarp) * 8;
    if (column < dim) Store8(out + column, Pack(row[v]));
  }
}

// An element of x. Both passes compute the same bits.
__device__ __forceinline__ float Smeared(float e, float weight, float before) {
  return RoundF32(fmaf(weight, before, e));
}

// Bytes per token: 2 D gathered (twice, the second time from a cache), 2 D written.
template <int vectors>
__global__ void __launch_bounds__(kThreads) SmearNorm(Problem p) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row >= p.slots * p.tokens) return;
  const bool smeared = p.lambda != nullptr && row % p.tokens != 0;
  const BF16* e = p.Embedding(p.token_ids[row]);
  PackedRow<vectors> own, before;
  own.Load(e, p.dim);
  before.Load(smeared ? p.Embedding(p.token_ids[row - 1]) : nullptr, p.dim);
  const float gate = Sigmoid(WarpSum(p.Feature(p.smear_w) * p.Feature(e)));
  const float weight = p.lambda == nullptr ? 0.0f : *p.lambda * gate;

  float x[vectors][8];
  float sum = 0;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    float b[8];
    Unpack(own.packed[v], x[v]);
    Unpack(before.packed[v], b);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (smeared) x[v][i] = Smeared(x[v][i], weight, b[i]);
      sum += x[v][i] * x[v][i];
    }
  }
  const float inv_rms = 1.0f / sqrtf(WarpSum(sum) / p.dim + kRmsEpsilon);
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
#pragma unroll
    for (float& value : x[v]) value *= inv_rms;
  }
  Store(x, p.dim, p.x0 + row * p.dim);
  if (threadIdx.x % kWarp == 0) p.inv_rms[row] = inv_rms;
}

// Of row t: the gradient dx of x_t, and what the gate's gradient needs.
template <int vectors>
struct RowGrad {
  // `before` is e_{t-1}, or null for a row without a gate: a slot's first, or any without a smear.
  __device__ void Compute(const Problem& p, const BF16* dx0, int64_t row, const BF16* e,
                          const BF16* before, float w, float lambda) {
    PackedRow<vectors> packed_dy, packed_x, packed_before;
    packed_dy.Load(dx0 + row * p.dim, p.dim);
    packed_x.Load(e, p.dim);  // x_t as soon as the gate is known
    packed_before.Load(before, p.dim);
    const float inv_rms = p.inv_rms[row];
    feature = p.Feature(e);
    gate = before == nullptr ? 0.0f : Sigmoid(WarpSum(w * feature));
    const float weight = lambda * gate;
    float x_dy = 0, dy_before = 0, x_before = 0;
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      float dy[8], x[8], b[8];
      Unpack(packed_dy.packed[v], dy);
      Unpack(packed_x.packed[v], x);
      Unpack(packed_before.packed[v], b);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (before != nullptr) x[i] = Smeared(x[i], weight, b[i]);
        x_dy += x[i] * dy[i];
        dy_before += dy[i] * b[i];
        x_before += x[i] * b[i];
      }
      packed_x.packed[v] = Pack(x);  // loses nothing: x is rounded
    }
    const float share = inv_rms * inv_rms * (WarpSum(x_dy) / p.dim);  // n mean(n dy) = x share
    dot = inv_rms * WarpSum(dy_before - x_before * share);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      float dy[8], x[8];
      Unpack(packed_dy.packed[v], dy);
      Unpack(packed_x.packed[v], x);
#pragma unroll
      for (int i = 0; i < 8; ++i) dx[v][i] = inv_rms * (dy[i] - x[i] * share);
    }
  }

  float dx[vectors][8];
  float gate;
  float dot;      // dx . e_{t-1}
  float feature;  // of e_t
};

// With x_t = e_t + lambda g_t e_{t-1}, g_t = sigmoid(w . e_t), and dx_t from the norm:
//   de_t = dx_t + lambda g_{t+1} dx_{t+1} + lambda (dx_t . e_{t-1}) g_t (1 - g_t) w
// Bytes per token: 2 D read, 2 D gathered, both (kRun + 1) / kRun times; 2 D written.
// partials: dsmear_w [features], then the gradient of lambda.
template <int vectors>
__global__ void __launch_bounds__(kThreads, vectors <= 3 ? 2 : 1)
    SmearNormGrad(Problem p, const BF16* dx0, BF16* de, Partials partials) {
  __shared__ float sums[kWarps][kMaxFeatures + 1];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t slot_row = blockIdx.y * p.tokens;
  const int64_t begin = (int64_t{blockIdx.x} * kWarps + warp) * kRun;
  const int64_t end = min(begin + kRun, p.tokens);
  const float lambda = *p.lambda, w = p.Feature(p.smear_w);
  float own_w[8];  // of the features in this lane's first vector
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int feature = lane * 8 + i;
    own_w[i] = feature < p.features ? ToF32(p.smear_w[feature]) : 0.0f;
  }

  float w_sum = 0, lambda_sum = 0;
  if (begin < end) {
    // Lane l: the token of row begin - 1 + l, where the slot has it.
    const int64_t mine = min(max(begin - 1 + lane, int64_t{0}), p.tokens - 1);
    const int32_t token = p.token_ids[slot_row + mine];
    const auto embedding = [&](int64_t t) {
      return p.Embedding(__shfl_sync(0xffffffffu, token, static_cast<int>(t - begin + 1)));
    };
    RowGrad<vectors> row, next;
    const BF16* e = embedding(begin);
    const BF16* before = embedding(begin - 1);
    row.Compute(p, dx0, slot_row + begin, e, begin == 0 ? nullptr : before, w, lambda);
    for (int64_t t = begin; t < end; ++t) {
      const bool followed = t + 1 < p.tokens;
      if (followed) {
        before = e;
        e = embedding(t + 1);
        next.Compute(p, dx0, slot_row + t + 1, e, before, w, lambda);
      }
      const float slope = lambda * row.dot * row.gate * (1.0f - row.gate);
      w_sum += slope * row.feature;
      lambda_sum += row.gate * row.dot;
#pragma unroll
      for (int i = 0; i < 8; ++i) row.dx[0][i] += slope * own_w[i];
      if (followed) {
        const float weight = lambda * next.gate;
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
#pragma unroll
          for (int i = 0; i < 8; ++i) row.dx[v][i] += weight * next.dx[v][i];
        }
      }
      Store(row.dx, p.dim, de + (slot_row + t) * p.dim);
      row = next;
    }
  }
  if (lane < p.features) sums[warp][lane] = w_sum;
  if (lane == 0) sums[warp][p.features] = lambda_sum;
  __syncthreads();
  if (threadIdx.x > p.features) return;
  float sum = 0;
  for (int i = 0; i < kWarps; ++i) sum += sums[i][threadIdx.x];
  *partials.at(blockIdx.y, threadIdx.x, blockIdx.x) = sum;
}

// Without a smear: a warp a row. Bytes per token: 2 D read, 2 D gathered, 2 D written.
template <int vectors>
__global__ void __launch_bounds__(kThreads) EmbedNormGrad(Problem p, const BF16* dx0, BF16* de) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row >= p.slots * p.tokens) return;
  RowGrad<vectors> grad;
  grad.Compute(p, dx0, row, p.Embedding(p.token_ids[row]), nullptr, 0.0f, 0.0f);
  Store(grad.dx, p.dim, de + row * p.dim);
}

template <int vectors>
void Forward(const Problem& p, CudaQueue& queue) {
  const auto blocks = static_cast<unsigned>(CeilDiv(p.slots * p.tokens, kWarps));
  SmearNorm<vectors><<<blocks, kThreads, 0, queue.stream()>>>(p);
  CheckLaunch("EmbedSmearNorm");
}

template <int vectors>
void Backward(const Problem& p, const BF16* dx0, BF16* de, const Partials& partials,
              CudaQueue& queue) {
  const dim3 grid(static_cast<unsigned>(partials.blocks), static_cast<unsigned>(p.slots));
  SmearNormGrad<vectors><<<grid, kThreads, 0, queue.stream()>>>(p, dx0, de, partials);
  CheckLaunch("EmbedSmearNormGrad");
}

template <int vectors>
void BackwardWithoutSmear(const Problem& p, const BF16* dx0, BF16* de, CudaQueue& queue) {
  const auto blocks = static_cast<unsigned>(CeilDiv(p.slots * p.tokens, kWarps));
  EmbedNormGrad<vectors><<<blocks, kThreads, 0, queue.stream()>>>(p, dx0, de);
  CheckLaunch("EmbedSmearNormGrad");
}

// Vectors of a lane.
int Vectors(const EmbedSmearNormArgs& a) {
  const int64_t dim = a.x0.cols();
  CHECK(dim % 8 == 0 && dim <= kMaxVectors * kWarp * 8)
      << "EmbedSmearNorm: x0 " << a.x0 << "; on CUDA rows of at most " << kMaxVectors * kWarp
      << " whole vectors of 8";
  CHECK(a.smear_w.empty() || a.smear_w.cols() <= kMaxFeatures)
      << "EmbedSmearNorm: smear_w " << a.smear_w;
  return static_cast<int>(CeilDiv(dim, kWarp * 8));
}

class CudaEmbeddingOps : public EmbeddingOps {
 public:
  void EmbedSmearNorm(const EmbedSmearNormArgs& a, Queue& queue) const override {
    constexpr decltype(&Forward<1>) kRuns[kMaxVectors] = {Forward<1>, Forward<2>, Forward<3>,
                                                          Forward<4>};
    kRuns[Vectors(a) - 1](Problem(a), Cuda(queue));
  }

  void EmbedSmearNormGrad(const EmbedSmearNormArgs& a, Tensor dx0, Tensor de, Tensor dsmear_w,
                          Tensor dscalars, Queue& queue) const override {
    constexpr decltype(&Backward<1>) kRuns[kMaxVectors] = {Backward<1>, Backward<2>, Backward<3>,
                                                           Backward<4>};
    constexpr decltype(&BackwardWithoutSmear<1>) kPlainRuns[kMaxVectors] = {
        BackwardWithoutSmear<1>, BackwardWithoutSmear<2>, BackwardWithoutSmear<3>,
        BackwardWithoutSmear<4>};
    CudaQueue& cuda_queue = Cuda(queue);
    const Problem p(a);
    if (a.smear_lambda < 0) return kPlainRuns[Vectors(a) - 1](p, dx0.bf16(), de.bf16(), cuda_queue);
    Partials partials = {nullptr, p.slots, p.features + 1,
                         static_cast<int>(CeilDiv(p.tokens, kWarps * kRun))};
    partials.data = static_cast<float*>(cuda_queue.Scratch(partials.bytes()));
    kRuns[Vectors(a) - 1](p, dx0.bf16(), de.bf16(), partials, cuda_queue);
    AddPartials(partials, 0, p.features, dsmear_w, 0, cuda_queue.stream());
    AddPartials(partials, p.features, 1, dscalars, a.smear_lambda, cuda_queue.stream());
  }

  void EmbeddingGrad(Tensor tokens, Tensor de, Tensor dtable, Tensor workspace,
                     Queue& queue) const override {
    cuda::EmbeddingGrad(tokens, de, dtable, workspace, Cuda(queue));
  }

  int64_t EmbeddingGradWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab,
                                      int64_t dim) const override {
    return cuda::EmbeddingGradWorkspaceBytes(slots, slot_tokens, vocab, dim);
  }

  void MoveRows(RowMove move, Tensor rows, Tensor table, Tensor packed,
                Queue& queue) const override {
    cuda::MoveRows(move, rows, table, packed, Cuda(queue));
  }
};

}  // namespace

std::unique_ptr<EmbeddingOps> MakeCudaEmbeddingOps() {
  return std::make_unique<CudaEmbeddingOps>();
}

}  // namespace kernels
