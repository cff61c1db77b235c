// Head split, QK norm, rotary and value mix on CUDA: one pass over the data each way.
//
// A group of `half / 8` neighbouring threads does one head of q, k or v of one token. Each thread
// holds 8 features of the first half and their partners of the second, so that the rotation needs
// no exchange. The row of qkv is 3 * heads such groups side by side, hence group g of a pass
// starts at feature g * 2 * half of qkv.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/head_gate.h"
#include "kernels/cuda/partials.cuh"
#include "kernels/ops/norm.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

using namespace cuda;  // NOLINT: device helpers

constexpr int kThreads = 256;
// Of one slot in the backward pass: whole waves of two, three or four blocks on 132 SMs.
constexpr int64_t kMaxBlocks = 132 * 12;

struct Problem {
  explicit Problem(const QkvArgs& args)
      : slots(static_cast<uint32_t>(args.qkv.dim(0))),
        tokens(static_cast<uint32_t>(args.qkv.dim(1))),
        heads(static_cast<uint32_t>(args.heads)),
        statistics((args.norm_value ? 3 : 2) * heads),
        qkv(args.qkv.bf16()),
        cos(args.cos.data()),
        sin(args.sin.data()),
        token_ids(args.value_table ? args.tokens.i32() : nullptr),
        value_table(args.value_table ? args.value_table.bf16() : nullptr),
        lambdas(args.scalars.f32() + args.value_lambda),
        inv_rms(args.inv_rms.f32()) {}

  uint32_t slots, tokens, heads;
  uint32_t statistics;  // of a row of inv_rms
  const BF16* qkv;
  const void* cos;  // see Angles
  const void* sin;
  const int32_t* token_ids;
  const BF16* value_table;  // null without one
  const float* lambdas;
  float* inv_rms;
};

// Three tensors [slots, T, D]: q's, k's and v's.
template <typename T>
struct Triple {
  T *q, *k, *v;
};

// A thread's place: head `unit % heads` of q (unit < heads), k or v of one token, and in it
// features [feature, feature + 8) of each half.
template <int half>
struct Place {
  static constexpr int kLanes = half / 8;
  static constexpr int kGroups = kThreads / kLanes;  // of a block

  // `group` counts from the token `first_row`, position 0 of a slot or of the first slot.
  __device__ Place(const Problem& p, uint32_t first_row, uint32_t group)
      : feature(threadIdx.x % kLanes * 8) {
    const uint32_t units = 3 * p.heads;
    const uint32_t token = group / units;
    unit = group - token * units;
    row = first_row + token;
    position = token % p.tokens;
    kind = unit < p.heads ? 0 : unit < 2 * p.heads ? 1 : 2;
    in_qkv = (int64_t{row} * units + unit) * 2 * half + feature;
    in_row = (unit - kind * p.heads) * 2 * half + feature;
    in_part = int64_t{row} * p.heads * 2 * half + in_row;
  }

  __device__ bool rotary() const { return kind < 2; }
  template <typename T>
  __device__ T* Of(const Triple<T>& triple) const {
    return (kind == 0 ? triple.q : kind == 1 ? triple.k : triple.v) + in_part;
  }
  __device__ int64_t InTable() const { return int64_t{position} * half + feature; }
  __device__ int64_t Statistic(const Problem& p) const {
    return int64_t{row} * p.statistics + unit;
  }
  __device__ const BF16* Value(const Problem& p) const {
    return p.value_table + int64_t{p.token_ids[row]} * p.heads * 2 * half + in_row;
  }

  uint32_t feature, unit, row, position, kind;
  int64_t in_qkv;   // offset in qkv
  int64_t in_part;  // offset in q, k or v
  uint32_t in_row;  // offset in a row of D features
};

// 8 values of a table of cosines or sines, or of the bf16 value table, as they are loaded.
template <typename Angle>
struct Angles;
template <>
struct Angles<BF16> {
  __device__ void Load(const BF16* p) { packed = Load8(p); }
  __device__ void Get(float (&x)[8]) const { Unpack(packed, x); }
  BF16x8 packed = {};
};
template <>
struct Angles<float> {
  __device__ void Load(const float* p) {
    low = *reinterpret_cast<const float4*>(p);
    high = *reinterpret_cast<const float4*>(p + 4);
  }
  __device__ void Load(const BF16* p) {
    float x[8];
    Unpack(Load8(p), x);
    low = make_float4(x[0], x[1], x[2], x[3]);
    high = make_float4(x[4], x[5], x[6], x[7]);
  }
  __device__ void Get(float (&x)[8]) const {
    x[0] = low.x;
    x[1] = low.y;
    x[2] = low.z;
    x[3] = low.w;
    x[4] = high.x;
    x[5] = high.y;
    x[6] = high.z;
    x[7] = high.w;
  }
  float4 low = {}, high = {};
};

// Bytes per token: 12 D read and written, 2 D of the value table.
template <int half, typename Angle, bool norm_value>
__global__ void __launch_bounds__(kThreads)
    SplitNormRotary(Problem p, Triple<BF16> out, uint32_t groups) {
  constexpr int kLanes = Place<half>::kLanes;
  const uint32_t group = blockIdx.x * Place<half>::kGroups + threadIdx.x / kLanes;
  const bool live = group < groups;  // the others only take part in the sums of their warp
  const Place<half> at(p, 0, min(group, groups - 1));

  const BF16x8 packed1 = LoadStreaming8(p.qkv + at.in_qkv);
  const BF16x8 packed2 = LoadStreaming8(p.qkv + at.in_qkv + half);
  // cos and sin, or both halves of the value embedding.
  Angles<Angle> other1, other2;
  if (at.rotary()) {
    other1.Load(static_cast<const Angle*>(p.cos) + at.InTable());
    other2.Load(static_cast<const Angle*>(p.sin) + at.InTable());
  } else if (p.value_table != nullptr) {
    const BF16* value = at.Value(p);
    other1.Load(value);
    other2.Load(value + half);
  }
  float x1[8], x2[8], c[8], s[8];
  Unpack(packed1, x1);
  Unpack(packed2, x2);
  other1.Get(c);
  other2.Get(s);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += x1[i] * x1[i] + x2[i] * x2[i];
  sum = WarpSum<kLanes>(sum);

  const float inv_rms = 1.0f / sqrtf(sum / (2 * half) + kRmsEpsilon);
  const bool normed = norm_value || at.rotary();
  if (normed && live && at.feature == 0) p.inv_rms[at.Statistic(p)] = inv_rms;
  if (at.rotary()) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float a = x1[i] * inv_rms, b = x2[i] * inv_rms;
      x1[i] = a * c[i] + b * s[i];
      x2[i] = b * c[i] - a * s[i];
    }
  } else {
    float a0 = p.lambdas[0];
    if constexpr (norm_value) a0 *= inv_rms;
    const float a1 = p.value_table == nullptr ? 0.0f : p.lambdas[1];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x1[i] = a1 * c[i] + a0 * x1[i];
      x2[i] = a1 * s[i] + a0 * x2[i];
    }
  }
  if (!live) return;
  BF16* y = at.Of(out);
  Store8(y, Pack(x1));
  Store8(y + half, Pack(x2));
}

__device__ __forceinline__ float Dot(const float (&a)[8], const float (&b)[8]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += a[i] * b[i];
  return sum;
}

// With dn = rotary' dy and n = x * inv_rms: dx = inv_rms * (dn - n * mean(n * dn)).
// dv = a0 * dv', dvalue_rows += a1 * dv'; partials: sums of dv' * v and dv' * value. With
// norm_value dv = a0 * inv_rms * (dv' - n * mean(n * dv')), and the first sum is of dv' * n.
// Bytes per token: 12 D read, 6 D written; with a value table 4 D more read, 2 D more written.
// A slot's groups are dealt to the blocks in turn.
template <int half, typename Angle, bool norm_value>
__global__ void __launch_bounds__(kThreads)
    SplitNormRotaryGrad(Problem p, Triple<const BF16> dy, BF16* dqkv, BF16* dvalue_rows,
                        Partials partials) {
  constexpr int kLanes = Place<half>::kLanes, kGroups = Place<half>::kGroups;
  __shared__ float shared[2][kThreads / kWarp];
  const uint32_t groups = p.tokens * 3 * p.heads;
  const float a0 = p.lambdas[0], a1 = p.value_table == nullptr ? 0.0f : p.lambdas[1];
  float da0 = 0, da1 = 0;
  for (uint32_t begin = blockIdx.x * kGroups; begin < groups; begin += gridDim.x * kGroups) {
    const uint32_t group = begin + threadIdx.x / kLanes;
    const bool live = group < groups;  // the others only take part in the sums of their warp
    const Place<half> at(p, blockIdx.y * p.tokens, min(group, groups - 1));
    const bool mix = !at.rotary() && p.value_table != nullptr;

    const BF16* g = at.Of(dy);
    BF16* drow = dvalue_rows + at.in_part;
    const BF16x8 packed_x1 = LoadStreaming8(p.qkv + at.in_qkv);
    const BF16x8 packed_x2 = LoadStreaming8(p.qkv + at.in_qkv + half);
    const BF16x8 packed_g1 = LoadStreaming8(g);
    const BF16x8 packed_g2 = LoadStreaming8(g + half);
    // cos and sin, or both halves of the value embedding.
    Angles<Angle> other1, other2;
    BF16x8 drow1 = {}, drow2 = {};
    float inv_rms = 0;
    if (norm_value || at.rotary()) inv_rms = p.inv_rms[at.Statistic(p)];
    if (at.rotary()) {
      other1.Load(static_cast<const Angle*>(p.cos) + at.InTable());
      other2.Load(static_cast<const Angle*>(p.sin) + at.InTable());
    } else if (mix) {
      const BF16* value = at.Value(p);
      other1.Load(value);
      other2.Load(value + half);
      drow1 = LoadStreaming8(drow);
      drow2 = LoadStreaming8(drow + half);
    }
    float x1[8], x2[8], g1[8], g2[8], c[8], s[8];
    Unpack(packed_x1, x1);
    Unpack(packed_x2, x2);
    Unpack(packed_g1, g1);
    Unpack(packed_g2, g2);
    other1.Get(c);
    other2.Get(s);
    if (at.rotary()) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float a = g1[i], b = g2[i];
        g1[i] = a * c[i] - b * s[i];
        g2[i] = a * s[i] + b * c[i];
      }
    }
    const float dot = Dot(x1, g1) + Dot(x2, g2);
    const float mean = WarpSum<kLanes>(dot) * inv_rms / (2 * half);
    if (!at.rotary() && live) {
      da0 += norm_value ? dot * inv_rms : dot;
      da1 += Dot(c, g1) + Dot(s, g2);
    }
    if (mix && live) {
      float d1[8], d2[8];
      Unpack(drow1, d1);
      Unpack(drow2, d2);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        d1[i] += a1 * g1[i];
        d2[i] += a1 * g2[i];
      }
      Store8(drow, Pack(d1));
      Store8(drow + half, Pack(d2));
    }
    // Without norm_value v has no statistic, so its inv_rms and with it the factor of x is 0.
    const float weight = norm_value ? a0 * inv_rms : a0;
    const float scale = at.rotary() ? inv_rms : weight, factor = mean * inv_rms;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      g1[i] = (g1[i] - x1[i] * factor) * scale;
      g2[i] = (g2[i] - x2[i] * factor) * scale;
    }
    if (!live) continue;
    Store8(dqkv + at.in_qkv, Pack(g1));
    Store8(dqkv + at.in_qkv + half, Pack(g2));
  }
  da0 = BlockSum<kThreads>(da0, shared[0]);
  da1 = BlockSum<kThreads>(da1, shared[1]);
  if (threadIdx.x == 0) {
    *partials.at(blockIdx.y, 0, blockIdx.x) = da0;
    *partials.at(blockIdx.y, 1, blockIdx.x) = da1;
  }
}

template <int half, typename Angle, bool norm_value>
void Forward(const QkvArgs& args, CudaQueue& queue) {
  const Problem p(args);
  const uint32_t groups = p.slots * p.tokens * 3 * p.heads;
  const auto blocks = static_cast<unsigned>(CeilDiv(groups, Place<half>::kGroups));
  SplitNormRotary<half, Angle, norm_value><<<blocks, kThreads, 0, queue.stream()>>>(
      p, {args.q.bf16(), args.k.bf16(), args.v.bf16()}, groups);
  CheckLaunch("QkvSplitNormRotary");
}

template <int half, typename Angle, bool norm_value>
void Backward(const QkvArgs& forward, const Triple<const BF16>& dy, BF16* dqkv, BF16* dvalue_rows,
              const Tensor& dscalars, CudaQueue& queue) {
  const Problem p(forward);
  const int64_t groups = int64_t{p.tokens} * 3 * p.heads;
  const int64_t blocks = std::min(CeilDiv(groups, Place<half>::kGroups), kMaxBlocks);
  Partials partials = {nullptr, p.slots, 2, static_cast<int>(blocks)};
  partials.data = static_cast<float*>(queue.Scratch(partials.bytes()));
  const dim3 grid(static_cast<unsigned>(blocks), p.slots);
  SplitNormRotaryGrad<half, Angle, norm_value>
      <<<grid, kThreads, 0, queue.stream()>>>(p, dy, dqkv, dvalue_rows, partials);
  CheckLaunch("QkvSplitNormRotaryGrad");
  AddPartials(partials, 0, forward.value_table ? 2 : 1, dscalars, forward.value_lambda,
              queue.stream());
}

int64_t HeadDim(const QkvArgs& args) {
  const Tensor& qkv = args.qkv;
  const int64_t head_dim = qkv.dim(2) / 3 / args.heads;
  CHECK(head_dim == 64 || head_dim == 128)
      << "QkvSplitNormRotary: head_dim " << head_dim << " of qkv " << qkv << ", heads "
      << args.heads << "; on CUDA 64 or 128";
  CHECK(qkv.rows() * 3 * args.heads <= INT32_MAX)
      << "QkvSplitNormRotary: qkv " << qkv << ", heads " << args.heads
      << "; on CUDA at most 2^31 heads of all tokens";
  return head_dim;
}

// run(half, angle, norm_value): constants, or values of the type, by which the kernels differ.
template <typename F>
void ForKernel(const QkvArgs& args, const F& run) {
  const auto with_half = [&](auto half) {
    const auto with_angle = [&](auto angle) {
      args.norm_value ? run(half, angle, std::true_type()) : run(half, angle, std::false_type());
    };
    args.cos.dtype() == DType::kF32 ? with_angle(float{}) : with_angle(BF16{});
  };
  HeadDim(args) == 64 ? with_half(std::integral_constant<int, 32>())
                      : with_half(std::integral_constant<int, 64>());
}

class CudaQkvOps : public QkvOps {
 public:
  void QkvSplitNormRotary(const QkvArgs& args, Queue& queue) const override {
    ForKernel(args, [&](auto half, auto angle, auto norm_value) {
      Forward<half, decltype(angle), norm_value>(args, Cuda(queue));
    });
  }

  void QkvSplitNormRotaryGrad(const QkvArgs& forward, const QkvGradArgs& grad,
                              Queue& queue) const override {
    ForKernel(forward, [&](auto half, auto angle, auto norm_value) {
      Backward<half, decltype(angle), norm_value>(
          forward, {grad.dq.bf16(), grad.dk.bf16(), grad.dv.bf16()}, grad.dqkv.bf16(),
          grad.dvalue_rows ? grad.dvalue_rows.bf16() : nullptr, grad.dscalars, Cuda(queue));
    });
  }

  void HeadGate(Tensor o, Tensor u, Tensor gate_w, Tensor y, Queue& queue) const override {
    cuda::HeadGate(o, u, gate_w, y, Cuda(queue));
  }

  void HeadGateGrad(const HeadGateGradArgs& args, Queue& queue) const override {
    cuda::HeadGateGrad(args, Cuda(queue));
  }
};

}  // namespace

std::unique_ptr<QkvOps> MakeCudaQkvOps() { return std::make_unique<CudaQkvOps>(); }

}  // namespace kernels
