// Elementwise ops on the CPU. All are bound by memory; a range is cut into fixed pieces.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <typename X, typename Y>
void CopyTyped(const X* HWY_RESTRICT x, Y* HWY_RESTRICT y, int64_t size) {
  const DF d;
  ForEachVec(d, size, [&](int64_t i, int64_t n) { StoreAny(d, LoadAny(d, x + i, n), y + i, n); });
}

void Convert(const Tensor& x, const Tensor& y, int64_t begin, int64_t size) {
  if (x.dtype() == DType::kF32) {
    CopyTyped(x.f32() + begin, y.bf16() + begin, size);
  } else {
    CopyTyped(x.bf16() + begin, y.f32() + begin, size);
  }
}

// c = a + b; c may be a or b.
template <typename T>
void SumTyped(const T* a, const T* b, T* c, int64_t size) {
  const DF d;
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    StoreAny(d, hn::Add(LoadAny(d, a + i, n), LoadAny(d, b + i, n)), c + i, n);
  });
}

void SumRange(const Tensor& a, const Tensor& b, const Tensor& c, int64_t begin, int64_t size) {
  if (a.dtype() == DType::kF32) {
    SumTyped(a.f32() + begin, b.f32() + begin, c.f32() + begin, size);
  } else {
    SumTyped(a.bf16() + begin, b.bf16() + begin, c.bf16() + begin, size);
  }
}

void ScaleRange(float* x, float factor, int64_t size) {
  const DF d;
  const VF f = hn::Set(d, factor);
  ForEachVec(d, size, [&](int64_t i, int64_t n) {
    StoreAny(d, hn::Mul(LoadAny(d, x + i, n), f), x + i, n);
  });
}

float SumRow(const float* x, int64_t size) {
  const DF d;
  VF sum = hn::Zero(d);
  ForEachVec(d, size, [&](int64_t i, int64_t n) { sum = hn::Add(sum, LoadAny(d, x + i, n)); });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Position of the first NaN or infinity, or -1. x - x is 0 for every finite x and NaN otherwise.
template <typename T>
int64_t FirstNonFiniteTyped(const T* x, int64_t size) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < size; i += lanes) {
    const VF v = LoadAny(d, x + i, std::min(lanes, size - i));
    const VF zero = hn::Sub(v, v);
    if (hn::AllTrue(d, hn::Eq(zero, hn::Zero(d)))) continue;
    return i + hn::FindFirstTrue(d, hn::IsNaN(zero));
  }
  return -1;
}

int64_t FirstNonFiniteRange(const Tensor& x, int64_t begin, int64_t size) {
  return x.dtype() == DType::kF32 ? FirstNonFiniteTyped(x.f32() + begin, size)
                                  : FirstNonFiniteTyped(x.bf16() + begin, size);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(Convert);
KERNELS_EXPORT(SumRange);
KERNELS_EXPORT(ScaleRange);
KERNELS_EXPORT(SumRow);
KERNELS_EXPORT(FirstNonFiniteRange);

constexpr int64_t kPiece = 1 << 15;  // elements: enough work to outweigh handing it to a thread

class CpuElementwiseOps : public ElementwiseOps {
 public:
  explicit CpuElementwiseOps(ThreadPool& pool) : pool_(pool) {}

  void FillZero(Tensor x, Queue&) const override {
    ForPieces(x.bytes(), [&](int64_t begin, int64_t size) {
      std::memset(static_cast<char*>(x.data()) + begin, 0, size);
    });
  }

  void Copy(Tensor x, Tensor y, Queue&) const override {
    const int64_t width = SizeOf(x.dtype());
    ForPieces(x.size(), [&](int64_t begin, int64_t size) {
      if (x.dtype() == y.dtype()) {
        std::memmove(static_cast<char*>(y.data()) + begin * width,
                     static_cast<const char*>(x.data()) + begin * width, size * width);
      } else {
        KERNELS_DISPATCH(Convert)(x, y, begin, size);
      }
    });
  }

  void Add(Tensor x, Tensor y, Queue& queue) const override { Sum(x, y, y, queue); }

  void Sum(Tensor a, Tensor b, Tensor c, Queue&) const override {
    ForPieces(c.size(), [&](int64_t begin, int64_t size) {
      KERNELS_DISPATCH(SumRange)(a, b, c, begin, size);
    });
  }

  void Scale(Tensor x, float factor, Queue&) const override {
    ForPieces(x.size(), [&](int64_t begin, int64_t size) {
      KERNELS_DISPATCH(ScaleRange)(x.f32() + begin, factor, size);
    });
  }

  void RowSums(Tensor x, Tensor sums, Queue&) const override {
    pool_.ParallelFor(x.dim(0), [&](int64_t row) {
      sums.f32()[row] = KERNELS_DISPATCH(SumRow)(x.f32() + row * x.cols(), x.cols());
    });
  }

  void FirstNonFinite(Tensor x, Tensor index, Queue&) const override { index.i64()[0] = First(x); }

  void PoisonIfFound(Tensor found, Tensor y, Queue&) const override {
    const int64_t* at = found.i64();
    if (std::any_of(at, at + found.size(), [](int64_t i) { return i >= 0; })) {
      y.f32()[0] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  void ClearUnlessFinite(Tensor x, Tensor guard, Queue&) const override {
    if (First(x) >= 0) guard.i32()[0] = 0;
  }

 private:
  // Position of x's first NaN or infinity, or -1.
  int64_t First(const Tensor& x) const {
    std::vector<int64_t> found((x.size() + kPiece - 1) / kPiece, -1);
    ForPieces(x.size(), [&](int64_t begin, int64_t size) {
      const int64_t at = KERNELS_DISPATCH(FirstNonFiniteRange)(x, begin, size);
      found[begin / kPiece] = at < 0 ? -1 : begin + at;
    });
    const auto first = std::find_if(found.begin(), found.end(), [](int64_t at) { return at >= 0; });
    return first == found.end() ? -1 : *first;
  }

  template <typename F>
  void ForPieces(int64_t size, const F& work) const {
    pool_.ParallelFor((size + kPiece - 1) / kPiece, [&](int64_t piece) {
      const int64_t begin = piece * kPiece;
      work(begin, std::min(kPiece, size - begin));
    });
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<ElementwiseOps> MakeCpuElementwiseOps(ThreadPool& pool) {
  return std::make_unique<CpuElementwiseOps>(pool);
}

}  // namespace kernels
#endif  // HWY_ONCE
