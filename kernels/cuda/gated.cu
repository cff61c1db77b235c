// QK norm, interleaved rotary and key offset on CUDA: one pass over q and k each way.
//
// A group of `half / 8` neighbouring threads does one head of q or k of one token. Each thread
// holds features [feature, feature + 8) of either half: whole pairs, so that the rotation needs no
// exchange, and of one parity of quarters, so that the key offset moves all of them or none.
#include <cstdint>
#include <memory>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gated.h"
#include "kernels/ops/norm.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

using namespace cuda;  // NOLINT: device helpers

constexpr int kThreads = 256;

struct Problem {
  explicit Problem(const GatedQkvArgs& args)
      : tokens(static_cast<uint32_t>(args.qkv.dim(1))),
        heads(static_cast<uint32_t>(args.heads)),
        groups(static_cast<uint32_t>(args.qkv.rows()) * 2 * heads),
        paired(args.paired),
        key_offset(args.key_offset),
        qkv(args.qkv.bf16()),
        cos(args.cos.bf16()),
        sin(args.sin.bf16()),
        inv_rms(args.inv_rms.f32()) {}

  uint32_t tokens, heads, groups;
  bool paired, key_offset;
  const BF16* qkv;
  const BF16* cos;
  const BF16* sin;
  float* inv_rms;
};

// A thread's place: head `unit % heads` of q (unit < heads) or k of one token.
template <int half>
struct Place {
  static constexpr int kLanes = half / 8;
  static constexpr int kGroups = kThreads / kLanes;  // of a block

  __device__ Place(const Problem& p, uint32_t group) : feature(threadIdx.x % kLanes * 8) {
    const uint32_t units = 2 * p.heads;
    const uint32_t row = group / units;
    const uint32_t unit = group - row * units;
    is_key = unit >= p.heads;
    const uint32_t head = is_key ? unit - p.heads : unit;
    t = row % p.tokens;
    dim = p.heads * 2 * half;
    in_qkv = (int64_t{row} * 3 * p.heads + unit) * 2 * half + feature;
    in_part = (int64_t{row} * p.heads + head) * 2 * half + feature;
    const uint32_t position = p.paired ? 2 * t + head % 2 : t;
    angle = int64_t{position} * half + feature / 2;
    moved = p.key_offset && is_key && feature >= half / 2;
    has_next = t + 1 < p.tokens;
  }

  uint32_t feature, t, dim;
  int64_t in_qkv;         // offset in qkv
  int64_t in_part;        // offset in q or k; that of the next token is `dim` further
  int64_t angle;          // offset in cos and sin
  bool is_key, has_next;  // the slot has a token after this one
  bool moved;             // to the next token, once rotated
};

// Cosines and sines of a thread's pairs in both halves.
template <int half>
struct Angles {
  __device__ __forceinline__ Angles(const Problem& p, int64_t angle) {
    Load4(p.cos + angle, c1);
    Load4(p.cos + angle + half / 2, c2);
    Load4(p.sin + angle, s1);
    Load4(p.sin + angle + half / 2, s2);
  }
  __device__ static __forceinline__ void Load4(const BF16* p, float (&f)[4]) {
    const uint2 bits = *reinterpret_cast<const uint2*>(p);
    f[0] = __uint_as_float(bits.x << 16);
    f[1] = __uint_as_float(bits.x & 0xffff0000u);
    f[2] = __uint_as_float(bits.y << 16);
    f[3] = __uint_as_float(bits.y & 0xffff0000u);
  }

  float c1[4], c2[4], s1[4], s2[4];
};

// By -theta.
__device__ __forceinline__ void Rotate(const float (&c)[4], const float (&s)[4], float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * c[i] + b * s[i];
    x[2 * i + 1] = b * c[i] - a * s[i];
  }
}

__device__ __forceinline__ void RotateBack(const float (&c)[4], const float (&s)[4],
                                           float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * c[i] - b * s[i];
    x[2 * i + 1] = a * s[i] + b * c[i];
  }
}

__device__ __forceinline__ float Dot(const float (&a)[8], const float (&b)[8]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += a[i] * b[i];
  return sum;
}

// Bytes per token: 4 D read, 4 D written.
template <int half>
__global__ void __launch_bounds__(kThreads) NormRotary(Problem p, BF16* q, BF16* k) {
  const uint32_t group = blockIdx.x * Place<half>::kGroups + threadIdx.x / Place<half>::kLanes;
  const bool live = group < p.groups;  // the others only take part in the sums of their warp
  const Place<half> at(p, min(group, p.groups - 1));

  const BF16x8 packed1 = LoadStreaming8(p.qkv + at.in_qkv);
  const BF16x8 packed2 = LoadStreaming8(p.qkv + at.in_qkv + half);
  const Angles<half> angles(p, at.angle);
  float x1[8], x2[8];
  Unpack(packed1, x1);
  Unpack(packed2, x2);
  const float sum = WarpSum<Place<half>::kLanes>(Dot(x1, x1) + Dot(x2, x2));
  const float inv_rms = 1.0f / sqrtf(sum / (2 * half) + kRmsEpsilon);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x1[i] *= inv_rms;
    x2[i] *= inv_rms;
  }
  Rotate(angles.c1, angles.s1, x1);
  Rotate(angles.c2, angles.s2, x2);
  if (!live) return;
  if (at.feature == 0) p.inv_rms[group] = inv_rms;
  BF16* y = (at.is_key ? k : q) + at.in_part;
  const BF16x8 y1 = Pack(x1), y2 = Pack(x2);
  if (!at.moved || at.t == 0) {
    Store8(y, y1);
    Store8(y + half, y2);
  }
  if (at.moved && at.has_next) {
    Store8(y + at.dim, y1);
    Store8(y + at.dim + half, y2);
  }
}

// With dn = rotary' dy and n = x * inv_rms: dx = inv_rms * (dn - n * mean(n * dn)).
// Bytes per token: 8 D read, 4 D written.
template <int half>
__global__ void __launch_bounds__(kThreads)
    NormRotaryGrad(Problem p, const BF16* dq, const BF16* dk, BF16* dqkv) {
  const uint32_t group = blockIdx.x * Place<half>::kGroups + threadIdx.x / Place<half>::kLanes;
  const bool live = group < p.groups;  // the others only take part in the sums of their warp
  const Place<half> at(p, min(group, p.groups - 1));

  const BF16* own = (at.is_key ? dk : dq) + at.in_part;
  const BF16x8 packed_x1 = LoadStreaming8(p.qkv + at.in_qkv);
  const BF16x8 packed_x2 = LoadStreaming8(p.qkv + at.in_qkv + half);
  BF16x8 packed_g1 = {}, packed_g2 = {};
  if (!at.moved || at.has_next) {
    const BF16* from = at.moved ? own + at.dim : own;
    packed_g1 = LoadStreaming8(from);
    packed_g2 = LoadStreaming8(from + half);
  }
  const Angles<half> angles(p, at.angle);
  const float inv_rms = p.inv_rms[min(group, p.groups - 1)];
  float x1[8], x2[8], g1[8], g2[8];
  Unpack(packed_x1, x1);
  Unpack(packed_x2, x2);
  Unpack(packed_g1, g1);
  Unpack(packed_g2, g2);
  if (at.moved && at.t == 0) {  // the first key was kept as well
    float kept1[8], kept2[8];
    Unpack(Load8(own), kept1);
    Unpack(Load8(own + half), kept2);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      g1[i] += kept1[i];
      g2[i] += kept2[i];
    }
  }
  RotateBack(angles.c1, angles.s1, g1);
  RotateBack(angles.c2, angles.s2, g2);
  const float dot = WarpSum<Place<half>::kLanes>(Dot(x1, g1) + Dot(x2, g2));
  const float factor = dot * inv_rms / (2 * half) * inv_rms;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    g1[i] = (g1[i] - x1[i] * factor) * inv_rms;
    g2[i] = (g2[i] - x2[i] * factor) * inv_rms;
  }
  if (!live) return;
  Store8(dqkv + at.in_qkv, Pack(g1));
  Store8(dqkv + at.in_qkv + half, Pack(g2));
}

template <int half>
void Forward(const GatedQkvArgs& args, CudaQueue& queue) {
  const Problem p(args);
  const auto blocks = static_cast<unsigned>(CeilDiv(p.groups, Place<half>::kGroups));
  NormRotary<half><<<blocks, kThreads, 0, queue.stream()>>>(p, args.q.bf16(), args.k.bf16());
  CheckLaunch("GatedQkv");
}

template <int half>
void Backward(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad, CudaQueue& queue) {
  const Problem p(forward);
  const auto blocks = static_cast<unsigned>(CeilDiv(p.groups, Place<half>::kGroups));
  NormRotaryGrad<half><<<blocks, kThreads, 0, queue.stream()>>>(p, grad.dq.bf16(), grad.dk.bf16(),
                                                                grad.dqkv.bf16());
  CheckLaunch("GatedQkvGrad");
}

int64_t HeadDim(const GatedQkvArgs& args) {
  const Tensor& qkv = args.qkv;
  const int64_t head_dim = qkv.dim(2) / 3 / args.heads;
  CHECK(head_dim == 64 || head_dim == 128) << "GatedQkv: head_dim " << head_dim << " of qkv " << qkv
                                           << ", heads " << args.heads << "; on CUDA 64 or 128";
  CHECK(qkv.rows() * 2 * args.heads <= INT32_MAX)
      << "GatedQkv: qkv " << qkv << ", heads " << args.heads
      << "; on CUDA at most 2^31 heads of all tokens";
  return head_dim;
}

class CudaGatedOps : public GatedOps {
 public:
  void GatedQkv(const GatedQkvArgs& args, Queue& queue) const override {
    const auto run = HeadDim(args) == 64 ? Forward<32> : Forward<64>;
    run(args, Cuda(queue));
    GatedValues(args, Cuda(queue));
  }

  void GatedQkvGrad(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad,
                    Queue& queue) const override {
    const auto run = HeadDim(forward) == 64 ? Backward<32> : Backward<64>;
    run(forward, grad, Cuda(queue));
    GatedValuesGrad(forward, grad, Cuda(queue));
  }

  void GatedSkip(const GatedSkipArgs& args, Queue& queue) const override {
    cuda::GatedSkip(args, Cuda(queue));
  }

  void GatedSkipGrad(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad,
                     Queue& queue) const override {
    cuda::GatedSkipGrad(forward, grad, Cuda(queue));
  }
};

}  // namespace

std::unique_ptr<GatedOps> MakeCudaGatedOps() { return std::make_unique<CudaGatedOps>(); }

}  // namespace kernels
