// The rails in one pass: 22 bytes an element. g is read, both rails are read and written, u is
// written.
#include <cstdint>

#include "kernels/cuda/optimizer_elementwise.cuh"
#include "kernels/cuda/twin_rail.h"

namespace kernels::cuda {
namespace {

// a + w (b - a)
__device__ __forceinline__ float Lerp(float a, float b, float w) {
  return __fmaf_rn(w, __fsub_rn(b, a), a);
}

// G: what g is rounded to.
template <typename G>
struct Rails {
  const float* g;
  float *fast, *slow;
  const float* rates;
  BF16* u;
  float slow_rate;

  float lookahead, fast_rate, weight;
  __device__ void Begin(int64_t /*matrix*/) {
    lookahead = rates[0];
    fast_rate = __fsub_rn(1.0f, rates[1]);
    weight = rates[2];
  }
  template <int count>
  __device__ void Run(int64_t i) const {
    float grad[count], new_fast[count], new_slow[count], direction[count];
    Load(g + i, grad);
    Load(fast + i, new_fast);
    Load(slow + i, new_slow);
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const float gj = RoundLike(grad[j], static_cast<const G*>(nullptr));
      new_fast[j] = Lerp(new_fast[j], gj, fast_rate);
      new_slow[j] = Lerp(new_slow[j], gj, slow_rate);
      direction[j] = Lerp(gj, Lerp(new_slow[j], new_fast[j], weight), lookahead);
    }
    Store(fast + i, new_fast);
    Store(slow + i, new_slow);
    Store(u + i, direction);
  }
};

template <typename G>
void Launch(const TwinRailArgs& args, CudaQueue& queue) {
  Rails<G> op;
  op.g = args.g.f32();
  op.fast = args.fast.f32();
  op.slow = args.slow.f32();
  op.rates = args.rates.f32();
  op.u = args.u.bf16();
  op.slow_rate = args.slow_rate;
  LaunchElementwise("TwinRailUpdate", op, 1, args.g.size(), args.guard,
                    Aligned({op.g, op.fast, op.slow, op.u}), queue);
}

}  // namespace

void TwinRailUpdate(const TwinRailArgs& args, CudaQueue& queue) {
  args.gradient == DType::kF32 ? Launch<float>(args, queue) : Launch<BF16>(args, queue);
}

}  // namespace kernels::cuda
