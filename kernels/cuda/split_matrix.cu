// An f32 weight lies in two arrays, its upper and its lower 16 bits. 10 bytes an element: p and
// mantissa are read and written, o is read; a gate is 4 more.
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/optimizer_elementwise.cuh"
#include "kernels/cuda/split_matrix.h"

namespace kernels::cuda {
namespace {

enum class Decay : uint8_t { kPlain, kCautious, kGated };

template <Decay decides>
struct Split {
  uint16_t* p;  // bits of bf16: the upper halves
  uint16_t* mantissa;
  const BF16* o;
  const float* gate;  // kGated
  const float *lr, *decay;
  int64_t size;  // of a matrix

  float rate, factor;
  __device__ void Begin(int64_t matrix) {
    rate = lr[matrix];
    factor = decay[matrix];
    p += matrix * size;
    mantissa += matrix * size;
    o += matrix * size;
    if constexpr (decides == Decay::kGated) gate += matrix * size;
  }
  template <int count>
  __device__ void Run(int64_t i) const {
    if (decides != Decay::kPlain && rate == 0) return;
    uint32_t upper[count], lower[count];
    float update[count], sign[count];
    LoadBits(p + i, upper);
    LoadBits(mantissa + i, lower);
    Load(o + i, update);
    if constexpr (decides == Decay::kGated) {
      Load(gate + i, sign);
    } else {
      Load(o + i, sign);
    }
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const float x = __uint_as_float(upper[j] << 16 | lower[j]);
      float decayed;
      if constexpr (decides != Decay::kPlain) {
        const float mask = __fmul_rn(sign[j], x) >= 0 ? 1.0f : 0.0f;
        decayed = __fsub_rn(x, __fmul_rn(__fmul_rn(__fmul_rn(x, mask), factor), rate));
      } else {
        decayed = __fmul_rn(x, factor);
      }
      lower[j] = __float_as_uint(__fsub_rn(decayed, __fmul_rn(update[j], rate)));
      upper[j] = lower[j] >> 16;
    }
    StoreBits(p + i, upper);
    StoreBits(mantissa + i, lower);
  }
};

template <Decay decides>
void Launch(const SplitMatrixArgs& args, CudaQueue& queue) {
  Split<decides> op;
  op.p = static_cast<uint16_t*>(args.p.data());
  op.mantissa = args.mantissa.u16();
  op.o = args.o.bf16();
  op.gate = decides == Decay::kGated ? args.gate.f32() : nullptr;
  op.lr = args.lr.f32();
  op.decay = args.decay.f32();
  op.size = args.p.dim(1) * args.p.dim(2);
  LaunchElementwise("SplitMatrixUpdate", op, args.p.dim(0), op.size, args.guard,
                    Aligned({op.p, op.mantissa, op.o, op.gate}), queue);
}

}  // namespace

void SplitMatrixUpdate(const SplitMatrixArgs& args, CudaQueue& queue) {
  if (!args.cautious) {
    Launch<Decay::kPlain>(args, queue);
  } else if (args.gate.empty()) {
    Launch<Decay::kCautious>(args, queue);
  } else {
    Launch<Decay::kGated>(args, queue);
  }
}

}  // namespace kernels::cuda
