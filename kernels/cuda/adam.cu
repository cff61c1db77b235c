// Adam in one pass: 4 + 2 weight + 4 moment bytes an element, for weights and moments of 4 (f32) or
// 2 (bf16) bytes each. A flat update has one launch for all of its parameters, an element a thread:
// they are small, and lie one behind the other without regard to alignment.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/adam.h"
#include "kernels/cuda/optimizer_elementwise.cuh"

namespace kernels::cuda {
namespace {

constexpr int kRates = 6;    // of a parameter in AdamFlatArgs::rates
constexpr int kAtOnce = 32;  // parameters of a launch, whose places are arguments of the kernel

// Where Adam finds its weights.
template <typename P>
struct Whole {
  using Gradient = P;
  P* p;

  __host__ __device__ explicit Whole(P* p) : p(p) {}
  explicit Whole(const AdamArgs& args) : Whole(static_cast<P*>(args.p.data())) {}
  bool aligned() const { return Aligned({p}); }
  template <int count>
  __device__ void Read(int64_t i, float (&x)[count]) const {
    Load(p + i, x);
  }
  template <int count>
  __device__ void Write(int64_t i, const float (&x)[count]) const {
    Store(p + i, x);
  }
};
struct Halves {
  using Gradient = BF16;
  uint16_t *upper, *lower;

  explicit Halves(const AdamArgs& args)
      : upper(static_cast<uint16_t*>(args.p.data())), lower(args.mantissa.u16()) {}
  bool aligned() const { return Aligned({upper, lower}); }
  template <int count>
  __device__ void Read(int64_t i, float (&x)[count]) const {
    uint32_t high[count], low[count];
    LoadBits(upper + i, high);
    LoadBits(lower + i, low);
#pragma unroll
    for (int j = 0; j < count; ++j) x[j] = __uint_as_float(high[j] << 16 | low[j]);
  }
  template <int count>
  __device__ void Write(int64_t i, const float (&x)[count]) const {
    uint32_t high[count], low[count];
#pragma unroll
    for (int j = 0; j < count; ++j) {
      low[j] = __float_as_uint(x[j]);
      high[j] = low[j] >> 16;
    }
    StoreBits(upper + i, high);
    StoreBits(lower + i, low);
  }
};

template <bool cautious, typename P, typename M>
struct Adam {
  P p;
  const float* g;
  M *m, *v;
  const float* rates;
  float beta1, beta2, rest1, rest2;

  float step_size, decay, eps;
  __device__ void Begin(int64_t /*matrix*/) {
    step_size = rates[0];
    decay = rates[1];
    eps = rates[2];
  }
  template <int count>
  __device__ void Run(int64_t i) const {
    float grad[count], new_m[count], new_v[count], weight[count];
    Load(g + i, grad);
    Load(m + i, new_m);
    Load(v + i, new_v);
    p.Read(i, weight);
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const float gj = RoundLike(grad[j], static_cast<const typename P::Gradient*>(nullptr));
      new_m[j] = __fmaf_rn(beta1, new_m[j], __fmul_rn(rest1, gj));
      new_v[j] = __fmaf_rn(beta2, new_v[j], __fmul_rn(rest2, __fmul_rn(gj, gj)));
      const float ratio = __fdiv_rn(new_m[j], __fadd_rn(__fsqrt_rn(new_v[j]), eps));
      if constexpr (cautious) {
        float update = __fmul_rn(step_size, ratio);
        if (__fmul_rn(update, weight[j]) > 0) update = __fmaf_rn(weight[j], decay, update);
        weight[j] = __fsub_rn(weight[j], update);
      } else {
        weight[j] = __fmaf_rn(-step_size, ratio, __fmul_rn(weight[j], decay));
      }
    }
    p.Write(i, weight);
    Store(m + i, new_m);
    Store(v + i, new_v);
  }
};

template <bool cautious, typename P, typename M>
void LaunchAdam(const AdamArgs& args, CudaQueue& queue) {
  Adam<cautious, P, M> op{.p = P(args)};
  op.g = args.g.f32();
  op.m = static_cast<M*>(args.m.data());
  op.v = static_cast<M*>(args.v.data());
  op.rates = args.rates.f32();
  op.beta1 = args.beta1;
  op.beta2 = args.beta2;
  op.rest1 = 1.0f - args.beta1;
  op.rest2 = 1.0f - args.beta2;
  LaunchElementwise("AdamUpdate", op, 1, args.p.size(), args.guard,
                    op.p.aligned() && Aligned({op.g, op.m, op.v}), queue);
}

template <bool cautious>
void LaunchAdamOfTypes(const AdamArgs& args, CudaQueue& queue) {
  const bool moments_f32 = args.m.dtype() == DType::kF32;
  if (!args.mantissa.empty()) {
    moments_f32 ? LaunchAdam<cautious, Halves, float>(args, queue)
                : LaunchAdam<cautious, Halves, BF16>(args, queue);
  } else if (args.p.dtype() == DType::kF32) {
    moments_f32 ? LaunchAdam<cautious, Whole<float>, float>(args, queue)
                : LaunchAdam<cautious, Whole<float>, BF16>(args, queue);
  } else {
    moments_f32 ? LaunchAdam<cautious, Whole<BF16>, float>(args, queue)
                : LaunchAdam<cautious, Whole<BF16>, BF16>(args, queue);
  }
}

// Some of a flat update's parameters: parameter k is elements [begin[k], begin[k + 1]).
template <typename P>
struct Places {
  P* p[kAtOnce];
  int64_t begin[kAtOnce + 1];
  int count;
};

template <bool cautious, typename P, typename M>
__global__ void FlatAdam(Places<P> places, const float* g, M* m, M* v, const float* rates,
                         const int32_t* guard) {
  if (guard != nullptr && *guard == 0) return;
  const int64_t i = places.begin[0] + int64_t{blockIdx.x} * kElementwiseThreads + threadIdx.x;
  if (i >= places.begin[places.count]) return;
  int k = 0;
  while (i >= places.begin[k + 1]) ++k;
  const float* const row = rates + k * kRates;
  if (row[5] == 0) return;  // inactive
  const int64_t begin = places.begin[k];
  Adam<cautious, Whole<P>, M> op{.p = Whole<P>(places.p[k])};
  op.g = g + begin;
  op.m = m + begin;
  op.v = v + begin;
  op.rates = row;
  op.beta1 = row[3];
  op.beta2 = row[4];
  op.rest1 = __fsub_rn(1.0f, row[3]);
  op.rest2 = __fsub_rn(1.0f, row[4]);
  op.Begin(0);
  op.template Run<1>(i - begin);
}

template <bool cautious, typename P, typename M>
void LaunchFlat(const AdamFlatArgs& args, CudaQueue& queue) {
  const int64_t parameters = static_cast<int64_t>(args.p.size());
  int64_t end = 0;
  for (int64_t first = 0; first < parameters; first += kAtOnce) {
    Places<P> places;
    places.count = static_cast<int>(std::min<int64_t>(kAtOnce, parameters - first));
    places.begin[0] = end;
    for (int k = 0; k < places.count; ++k) {
      places.p[k] = static_cast<P*>(args.p[first + k].data());
      places.begin[k + 1] = end += args.p[first + k].size();
    }
    const int64_t n = end - places.begin[0];
    if (n == 0) continue;
    FlatAdam<cautious><<<CeilDiv(n, kElementwiseThreads), kElementwiseThreads, 0, queue.stream()>>>(
        places, args.g.f32(), static_cast<M*>(args.m.data()), static_cast<M*>(args.v.data()),
        args.rates.f32() + first * kRates, args.guard.empty() ? nullptr : args.guard.i32());
    CheckLaunch("AdamFlat");
  }
}

template <bool cautious>
void LaunchFlatOfTypes(const AdamFlatArgs& args, CudaQueue& queue) {
  const bool moments_f32 = args.m.dtype() == DType::kF32;
  if (args.p[0].dtype() == DType::kF32) {
    moments_f32 ? LaunchFlat<cautious, float, float>(args, queue)
                : LaunchFlat<cautious, float, BF16>(args, queue);
  } else {
    moments_f32 ? LaunchFlat<cautious, BF16, float>(args, queue)
                : LaunchFlat<cautious, BF16, BF16>(args, queue);
  }
}

}  // namespace

void AdamUpdate(const AdamArgs& args, CudaQueue& queue) {
  args.cautious ? LaunchAdamOfTypes<true>(args, queue) : LaunchAdamOfTypes<false>(args, queue);
}

void AdamFlat(const AdamFlatArgs& args, CudaQueue& queue) {
  args.cautious ? LaunchFlatOfTypes<true>(args, queue) : LaunchFlatOfTypes<false>(args, queue);
}

}  // namespace kernels::cuda
