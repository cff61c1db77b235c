// Adam in one pass. A flat update is the same for each of its parameters, all at once.
#include "kernels/cpu/adam.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adam.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Where Adam finds its weights.
template <typename P>
struct Whole {
  using Gradient = P;
  explicit Whole(const AdamArgs& args, int64_t begin) : p(static_cast<P*>(args.p.data()) + begin) {}
  VF Load(DF d, int64_t i, int64_t n) const { return LoadAny(d, p + i, n); }
  void Store(DF d, VF v, int64_t i, int64_t n) const { StoreAny(d, v, p + i, n); }

  P* p;
};
struct Halves {
  using Gradient = BF16;
  explicit Halves(const AdamArgs& args, int64_t begin)
      : upper(static_cast<uint16_t*>(args.p.data()) + begin), lower(args.mantissa.u16() + begin) {}
  VF Load(DF d, int64_t i, int64_t n) const { return JoinHalves(d, upper + i, lower + i, n); }
  void Store(DF d, VF v, int64_t i, int64_t n) const { SplitHalves(d, v, upper + i, lower + i, n); }

  uint16_t *upper, *lower;
};

template <bool cautious, typename P, typename M>
void AdamTyped(const AdamArgs& args, int64_t begin, int64_t size) {
  const DF d;
  const P p(args, begin);
  const float* HWY_RESTRICT g = args.g.f32() + begin;
  M* HWY_RESTRICT m = static_cast<M*>(args.m.data()) + begin;
  M* HWY_RESTRICT v = static_cast<M*>(args.v.data()) + begin;
  const VF step_size = hn::Set(d, args.rates.f32()[0]);
  const VF decay = hn::Set(d, args.rates.f32()[1]);
  const VF beta1 = hn::Set(d, args.beta1);
  const VF beta2 = hn::Set(d, args.beta2);
  const VF rest1 = hn::Set(d, 1.0f - args.beta1);
  const VF rest2 = hn::Set(d, 1.0f - args.beta2);
  const VF eps = hn::Set(d, args.rates.f32()[2]);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    const VF grad =
        RoundLike(d, LoadAny(d, g + i, n), static_cast<const typename P::Gradient*>(nullptr));
    const VF new_m = hn::MulAdd(beta1, LoadAny(d, m + i, n), hn::Mul(rest1, grad));
    const VF new_v = hn::MulAdd(beta2, LoadAny(d, v + i, n), hn::Mul(rest2, hn::Mul(grad, grad)));
    const VF ratio = hn::Div(new_m, hn::Add(hn::Sqrt(new_v), eps));
    const VF weight = p.Load(d, i, n);
    if constexpr (cautious) {
      const VF step = hn::Mul(step_size, ratio);
      const auto smaller = hn::Gt(hn::Mul(step, weight), hn::Zero(d));
      const VF update = hn::IfThenElse(smaller, hn::MulAdd(weight, decay, step), step);
      p.Store(d, hn::Sub(weight, update), i, n);
    } else {
      p.Store(d, hn::NegMulAdd(step_size, ratio, hn::Mul(weight, decay)), i, n);
    }
    StoreAny(d, new_m, m + i, n);
    StoreAny(d, new_v, v + i, n);
  });
}

template <typename P, typename M>
void AdamOfTypes(const AdamArgs& args, int64_t begin, int64_t size) {
  args.cautious ? AdamTyped<true, P, M>(args, begin, size)
                : AdamTyped<false, P, M>(args, begin, size);
}

void AdamRange(const AdamArgs& args, int64_t begin, int64_t size) {
  const bool moments_f32 = args.m.dtype() == DType::kF32;
  if (!args.mantissa.empty()) {
    moments_f32 ? AdamOfTypes<Halves, float>(args, begin, size)
                : AdamOfTypes<Halves, BF16>(args, begin, size);
  } else if (args.p.dtype() == DType::kF32) {
    moments_f32 ? AdamOfTypes<Whole<float>, float>(args, begin, size)
                : AdamOfTypes<Whole<float>, BF16>(args, begin, size);
  } else {
    moments_f32 ? AdamOfTypes<Whole<BF16>, float>(args, begin, size)
                : AdamOfTypes<Whole<BF16>, BF16>(args, begin, size);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(AdamRange);

// Elements of one task, as of the other optimizer ops.
constexpr int64_t kBlock = 16384;

int64_t Blocks(int64_t size) { return (size + kBlock - 1) / kBlock; }

void UpdateBlock(const AdamArgs& args, int64_t block) {
  const int64_t begin = block * kBlock;
  KERNELS_DISPATCH(AdamRange)(args, begin, std::min(kBlock, args.p.size() - begin));
}

// What AdamUpdate would be told of parameter i, which begins at `begin`.
AdamArgs ArgsOf(const AdamFlatArgs& args, int64_t i, int64_t begin) {
  const Tensor rates = args.rates.At(i);
  const int64_t size = args.p[i].size();
  return {.p = args.p[i],
          .g = args.g.Slice(begin, size),
          .m = args.m.Slice(begin, size),
          .v = args.v.Slice(begin, size),
          .rates = rates.Slice(0, 3),
          .beta1 = rates.f32()[3],
          .beta2 = rates.f32()[4],
          .cautious = args.cautious};
}

}  // namespace

void cpu::AdamUpdate(const AdamArgs& args, ThreadPool& pool) {
  pool.ParallelFor(Blocks(args.p.size()), [&](int64_t block) { UpdateBlock(args, block); });
}

void cpu::AdamFlat(const AdamFlatArgs& args, ThreadPool& pool) {
  int64_t blocks = 0;
  for (const Tensor& p : args.p) blocks += Blocks(p.size());
  pool.ParallelFor(blocks, [&](int64_t task) {
    int64_t i = 0, begin = 0;
    for (; task >= Blocks(args.p[i].size()); ++i) {
      task -= Blocks(args.p[i].size());
      begin += args.p[i].size();
    }
    const bool active = args.rates.At(i).f32()[5] != 0;
    if (active) UpdateBlock(ArgsOf(args, i, begin), task);
  });
}

}  // namespace kernels
#endif  // HWY_ONCE
