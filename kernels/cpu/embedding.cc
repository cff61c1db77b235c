// Embedding, smear gate and first norm on the CPU. Rows are gathered again in the backward pass
// rather than kept. Tables' gradients are cut by columns, so each task adds its tokens in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"
#include "kernels/ops/norm.h"
#include "third_party/absl_compat/check.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// x = e + weight * before, rounded to bf16; `before` is null for a row without a predecessor.
void SmearInto(const BF16* e, const BF16* before, float weight, int64_t cols, float* out) {
  const DF d;
  const VF w = hn::Set(d, weight);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    VF x = LoadAny(d, e + i, n);
    if (before != nullptr) x = RoundVecToBF16(d, hn::MulAdd(w, LoadAny(d, before + i, n), x));
    StoreAny(d, x, out + i, n);
  });
}

// x0 = rms(x), with x as SmearInto makes it.
void SmearNormRow(const BF16* e, const BF16* before, float weight, int64_t cols, float* scratch,
                  BF16* x0, float* inv_rms) {
  const DF d;
  SmearInto(e, before, weight, cols, scratch);
  VF sum = hn::Zero(d);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    const VF x = LoadAny(d, scratch + i, n);
    sum = hn::MulAdd(x, x, sum);
  });
  *inv_rms = 1.0f / std::sqrt(hn::GetLane(hn::SumOfLanes(d, sum)) / cols + kRmsEpsilon);
  const VF rho = hn::Set(d, *inv_rms);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    StoreAny(d, hn::Mul(LoadAny(d, scratch + i, n), rho), x0 + i, n);
  });
}

// dx = inv_rms * (dy - n * mean(n * dy)), n = x * inv_rms with x as SmearInto makes it, which goes
// to `x`; returns dx . before if there is one, else 0.
float NormGradRow(const BF16* dy, const BF16* e, const BF16* before, float weight, float inv_rms,
                  int64_t cols, float* x, float* dx) {
  const DF d;
  SmearInto(e, before, weight, cols, x);
  VF sum = hn::Zero(d);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    sum = hn::MulAdd(LoadAny(d, x + i, n), LoadAny(d, dy + i, n), sum);
  });
  // n * mean(n * dy) = x * share
  const VF share = hn::Set(d, inv_rms * inv_rms * (hn::GetLane(hn::SumOfLanes(d, sum)) / cols));
  const VF rho = hn::Set(d, inv_rms);
  VF dot = hn::Zero(d);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    const VF g = hn::Mul(rho, hn::NegMulAdd(LoadAny(d, x + i, n), share, LoadAny(d, dy + i, n)));
    if (before != nullptr) dot = hn::MulAdd(g, LoadAny(d, before + i, n), dot);
    StoreAny(d, g, dx + i, n);
  });
  return hn::GetLane(hn::SumOfLanes(d, dot));
}

// sum += weight * row
void AddScaledRow(const float* row, float weight, float* sum, int64_t cols) {
  const DF d;
  const VF w = hn::Set(d, weight);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    StoreAny(d, hn::MulAdd(w, LoadAny(d, row + i, n), LoadAny(d, sum + i, n)), sum + i, n);
  });
}

void StoreRow(const float* row, BF16* out, int64_t cols) {
  const DF d;
  ForEachVec(d, cols,
             [&](int64_t i, int64_t n) { StoreAny(d, LoadAny(d, row + i, n), out + i, n); });
}

// table_row += row, for `cols` columns
void AddRow(const BF16* row, float* table_row, int64_t cols) {
  const DF d;
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    StoreAny(d, hn::Add(LoadAny(d, table_row + i, n), LoadAny(d, row + i, n)), table_row + i, n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(SmearNormRow);
KERNELS_EXPORT(NormGradRow);
KERNELS_EXPORT(AddScaledRow);
KERNELS_EXPORT(StoreRow);
KERNELS_EXPORT(AddRow);

constexpr int64_t kRows = 32;         // of one task; fixes the order of the sums
constexpr int64_t kGradColumns = 64;  // of one task in EmbeddingGrad

class CpuEmbeddingOps : public EmbeddingOps {
 public:
  explicit CpuEmbeddingOps(ThreadPool& pool) : pool_(pool) {}

  void EmbedSmearNorm(const EmbedSmearNormArgs& a, Queue&) const override {
    const int64_t slots = a.tokens.dim(0), tokens = a.tokens.dim(1), dim = a.x0.cols();
    const bool smears = a.smear_lambda >= 0;
    const float lambda = smears ? a.scalars.f32()[a.smear_lambda] : 0.0f;
    ForBlocks(slots, tokens, [&](int64_t, int64_t slot, int64_t begin, int64_t end) {
      float* scratch = ThreadScratch(0, dim);
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = slot * tokens + t;
        const bool smeared = smears && t > 0;
        const BF16* before = smeared ? Row(a, row - 1) : nullptr;
        const float weight = smeared ? lambda * GateOf(a, row) : 0.0f;
        KERNELS_DISPATCH(SmearNormRow)
        (Row(a, row), before, weight, dim, scratch, a.x0.bf16() + row * dim, a.inv_rms.f32() + row);
      }
    });
  }

  // With x_t = e_t + lambda g_t e_{t-1}, g_t = sigmoid(w . e_t), and dx_t from the norm:
  //   de_t = dx_t + lambda g_{t+1} dx_{t+1} + lambda (dx_t . e_{t-1}) g_t (1 - g_t) w
  // A block computes the dx of the row after its last one a second time. Without a smear it is dx.
  void EmbedSmearNormGrad(const EmbedSmearNormArgs& a, Tensor dx0, Tensor de, Tensor dsmear_w,
                          Tensor dscalars, Queue&) const override {
    const int64_t slots = a.tokens.dim(0), tokens = a.tokens.dim(1), dim = a.x0.cols();
    const bool smears = a.smear_lambda >= 0;
    const int64_t features = smears ? a.smear_w.cols() : 0;
    const float lambda = smears ? a.scalars.f32()[a.smear_lambda] : 0.0f;
    const int64_t blocks = (tokens + kRows - 1) / kRows;
    // Per block: the gradient of the gate's weights, then lambda's.
    std::vector<float> partial(slots * blocks * (features + 1), 0.0f);
    ForBlocks(slots, tokens, [&](int64_t task, int64_t slot, int64_t begin, int64_t end) {
      float* dx = ThreadScratch(0, dim);
      float* next = ThreadScratch(1, dim);
      float* sums = partial.data() + task * (features + 1);
      float gate = 0, dot = 0, next_gate = 0, next_dot = 0;
      Dx(a, dx0, slot * tokens + begin, begin, lambda, dx, &gate, &dot);
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = slot * tokens + t;
        if (t + 1 < tokens) Dx(a, dx0, row + 1, t + 1, lambda, next, &next_gate, &next_dot);
        if (smears && t > 0) {
          const BF16* e = Row(a, row);
          const float slope = lambda * dot * gate * (1 - gate);
          sums[features] += gate * dot;
          for (int64_t i = 0; i < features; ++i) {
            sums[i] += slope * ToFloat(e[i]);
            dx[i] += slope * ToFloat(a.smear_w.bf16()[i]);
          }
        }
        if (smears && t + 1 < tokens) {
          KERNELS_DISPATCH(AddScaledRow)(next, lambda * next_gate, dx, dim);
        }
        KERNELS_DISPATCH(StoreRow)(dx, de.bf16() + row * dim, dim);
        std::swap(dx, next);
        gate = next_gate;
        dot = next_dot;
      }
    });
    for (int64_t slot = 0; smears && slot < slots; ++slot) {
      std::vector<float> total(features + 1, 0.0f);
      for (int64_t block = 0; block < blocks; ++block) {
        const float* sums = partial.data() + (slot * blocks + block) * (features + 1);
        for (int64_t i = 0; i <= features; ++i) total[i] += sums[i];
      }
      const int64_t leaf = dsmear_w.dim(0) == 1 ? 0 : slot;
      for (int64_t i = 0; i < features; ++i) dsmear_w.f32()[leaf * features + i] += total[i];
      dscalars.f32()[(dscalars.dim(0) == 1 ? 0 : slot) * a.scalars.size() + a.smear_lambda] +=
          total[features];
    }
  }

  void EmbeddingGrad(Tensor tokens, Tensor de, Tensor dtable, Tensor, Queue&) const override {
    const int64_t slots = de.dim(0), length = de.dim(1), dim = de.cols(), vocab = dtable.dim(1);
    const int64_t pieces = (dim + kGradColumns - 1) / kGradColumns;
    pool_.ParallelFor(pieces, [&](int64_t piece) {
      const int64_t begin = piece * kGradColumns, cols = std::min(kGradColumns, dim - begin);
      for (int64_t slot = 0; slot < slots; ++slot) {
        float* table = dtable.f32() + (dtable.dim(0) == 1 ? 0 : slot) * vocab * dim;
        for (int64_t row = slot * length; row < (slot + 1) * length; ++row) {
          const int64_t token = tokens.i32()[row];
          CHECK(token >= 0 && token < vocab) << "EmbeddingGrad: token " << token << " at " << row;
          KERNELS_DISPATCH(AddRow)
          (de.bf16() + row * dim + begin, table + token * dim + begin, cols);
        }
      }
    });
  }

  int64_t EmbeddingGradWorkspaceBytes(int64_t, int64_t, int64_t, int64_t) const override {
    return 0;
  }

  void MoveRows(RowMove move, Tensor rows, Tensor table, Tensor packed, Queue&) const override {
    const int64_t count = rows.size(), cols = table.cols();
    const int64_t bytes = cols * SizeOf(table.dtype());
    pool_.ParallelFor((count + kRows - 1) / kRows, [&](int64_t task) {
      for (int64_t i = task * kRows; i < std::min(count, (task + 1) * kRows); ++i) {
        const int64_t row = rows.i32()[i];
        CHECK(row >= 0 && row < table.dim(0))
            << Name(move) << ": row " << row << " at " << i << ", table " << table;
        char* const named = static_cast<char*>(table.data()) + row * bytes;
        char* const other = static_cast<char*>(packed.data()) + i * bytes;
        if (move == RowMove::kAdd) {
          const float* from = packed.f32() + i * cols;
          float* to = table.f32() + row * cols;
          for (int64_t j = 0; j < cols; ++j) to[j] += from[j];
        } else {
          const bool gather = move == RowMove::kGather;
          std::memcpy(gather ? other : named, gather ? named : other, bytes);
        }
      }
    });
  }

 private:
  static const BF16* Row(const EmbedSmearNormArgs& a, int64_t row) {
    const int64_t token = a.tokens.i32()[row];
    CHECK(token >= 0 && token < a.table.dim(0))
        << "EmbedSmearNorm: token " << token << " at " << row << ", table " << a.table;
    return a.table.bf16() + token * a.table.cols();
  }

  static float GateOf(const EmbedSmearNormArgs& a, int64_t row) {
    const BF16* e = Row(a, row);
    float dot = 0;
    for (int64_t i = 0; i < a.smear_w.cols(); ++i) {
      dot += ToFloat(a.smear_w.bf16()[i]) * ToFloat(e[i]);
    }
    return 1.0f / (1.0f + std::exp(-dot));
  }

  // The norm's gradient of token t of its slot, the token's gate, and dx . e_{t-1}.
  static void Dx(const EmbedSmearNormArgs& a, const Tensor& dx0, int64_t row, int64_t t,
                 float lambda, float* dx, float* gate, float* dot) {
    const int64_t dim = a.x0.cols();
    const bool smeared = a.smear_lambda >= 0 && t > 0;
    const BF16* before = smeared ? Row(a, row - 1) : nullptr;
    *gate = smeared ? GateOf(a, row) : 0.0f;
    *dot =
        KERNELS_DISPATCH(NormGradRow)(dx0.bf16() + row * dim, Row(a, row), before, lambda * *gate,
                                      a.inv_rms.f32()[row], dim, ThreadScratch(2, dim), dx);
  }

  // work(task, slot, begin, end) for each block of rows of each slot
  template <typename F>
  void ForBlocks(int64_t slots, int64_t tokens, const F& work) const {
    const int64_t blocks = (tokens + kRows - 1) / kRows;
    pool_.ParallelFor(slots * blocks, [&](int64_t task) {
      const int64_t begin = task % blocks * kRows;
      work(task, task / blocks, begin, std::min(begin + kRows, tokens));
    });
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<EmbeddingOps> MakeCpuEmbeddingOps(ThreadPool& pool) {
  return std::make_unique<CpuEmbeddingOps>(pool);
}

}  // namespace kernels
#endif  // HWY_ONCE
