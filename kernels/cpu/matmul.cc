// Matrix products on the CPU. An output tile is the unit of work: its operands' blocks are widened
// to f32 in scratch and multiplied by oneDNN on one thread (bf16 products are exact in f32), block
// after block along K, and the epilogue rounds once. Tiles are cut by shape and never across
// matrices, so bits depend neither on threads nor on the number of slots.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "hwy/highway.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void Widen(const BF16* from, int64_t from_stride, int64_t rows, int64_t cols, float* to) {
  const DF d;
  for (int64_t r = 0; r < rows; ++r) {
    ForEachVec(d, cols, [&](int64_t i, int64_t n) {
      StoreAny(d, LoadAny(d, from + r * from_stride + i, n), to + r * cols + i, n);
    });
  }
}

// out = alpha * tile + beta * addend for one row; addend may be out.
template <typename T>
void AxpbyRow(const float* tile, float alpha, float beta, const T* addend, T* out, int64_t cols) {
  const DF d;
  const VF a = hn::Set(d, alpha), b = hn::Set(d, beta);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    VF v = hn::Mul(a, LoadAny(d, tile + i, n));
    if (addend != nullptr) v = hn::MulAdd(b, LoadAny(d, addend + i, n), v);
    StoreAny(d, v, out + i, n);
  });
}

void AxpbyRowF32(const float* tile, float alpha, float beta, const float* addend, float* out,
                 int64_t cols) {
  AxpbyRow(tile, alpha, beta, addend, out, cols);
}

void AxpbyRowBF16(const float* tile, float alpha, float beta, const BF16* addend, BF16* out,
                  int64_t cols) {
  AxpbyRow(tile, alpha, beta, addend, out, cols);
}

void Relu2Row(const float* tile, BF16* a, BF16* b, int64_t cols) {
  const DF d;
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    const VF v = RoundVecToBF16(d, LoadAny(d, tile + i, n));
    const VF positive = hn::Max(v, hn::Zero(d));
    StoreAny(d, v, a + i, n);
    StoreAny(d, hn::Mul(positive, positive), b + i, n);
  });
}

void Relu2GradRow(const float* tile, const BF16* a, BF16* da, int64_t cols) {
  const DF d;
  const VF two = hn::Set(d, 2.0f);
  ForEachVec(d, cols, [&](int64_t i, int64_t n) {
    const VF slope = hn::Mul(two, hn::Max(LoadAny(d, a + i, n), hn::Zero(d)));
    StoreAny(d, hn::Mul(slope, LoadAny(d, tile + i, n)), da + i, n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

KERNELS_EXPORT(Widen);
KERNELS_EXPORT(AxpbyRowF32);
KERNELS_EXPORT(AxpbyRowBF16);
KERNELS_EXPORT(Relu2Row);
KERNELS_EXPORT(Relu2GradRow);

// 256 x 256 x 512 makes 2 * 256^2 * 512 = 67 MFLOP against 262,144 widened elements, which cost
// less than a tenth of it; both blocks and the tile (1.25 MiB) stay in a core's L2 cache.
constexpr int64_t kTileRows = 256;
constexpr int64_t kTileCols = 256;
constexpr int64_t kTileDepth = 512;
constexpr int64_t kSquare = 128;  // tiles of symmetric products: finer, as half of them is skipped

// op(x) of one matrix: element (i, j) of op(x), x stored row-major with `stride`.
struct Operand {
  const void* data;
  DType dtype;
  int64_t stride;
  bool trans;

  // The stored block of op(x)'s [row, row + rows) x [col, col + cols) as f32, and its stride.
  const float* Block(int64_t row, int64_t rows, int64_t col, int64_t cols, int scratch,
                     int64_t* block_stride) const {
    if (trans) {
      std::swap(row, col);
      std::swap(rows, cols);
    }
    const int64_t at = row * stride + col;
    if (dtype == DType::kF32) {
      *block_stride = stride;
      return static_cast<const float*>(data) + at;
    }
    float* widened = ThreadScratch(scratch, std::max(kTileRows, kTileCols) * kTileDepth);
    KERNELS_DISPATCH(Widen)(static_cast<const BF16*>(data) + at, stride, rows, cols, widened);
    *block_stride = cols;
    return widened;
  }
};

Operand OperandOf(const Tensor& t, int64_t index, bool trans) {
  const int64_t size = t.dim(-2) * t.dim(-1);
  const int64_t at = t.rank() == 3 && t.dim(0) > 1 ? index * size : 0;
  return {static_cast<const char*>(t.data()) + at * SizeOf(t.dtype()), t.dtype(), t.dim(-1), trans};
}

struct Tile {
  int64_t row, rows, col, cols;
};

// tile [rows, cols] = op(a) op(b), in this thread's scratch.
const float* TileProduct(const Operand& a, const Operand& b, int64_t depth, const Tile& tile) {
  float* product = ThreadScratch(2, kTileRows * kTileCols);
  for (int64_t k = 0; k < depth; k += kTileDepth) {
    const int64_t n = std::min(kTileDepth, depth - k);
    int64_t a_stride = 0, b_stride = 0;
    const float* a_block = a.Block(tile.row, tile.rows, k, n, 0, &a_stride);
    const float* b_block = b.Block(k, n, tile.col, tile.cols, 1, &b_stride);
    Sgemm(a.trans, b.trans, tile.rows, tile.cols, n, 1.0f, a_block, a_stride, b_block, b_stride,
          k == 0 ? 0.0f : 1.0f, product, tile.cols);
  }
  if (depth == 0) std::fill_n(product, tile.rows * tile.cols, 0.0f);
  return product;
}

class CpuMatMulOps : public MatMulOps {
 public:
  explicit CpuMatMulOps(ThreadPool& pool) : pool_(pool) {}

  void MatMul(Tensor a, Tensor b, Tensor c, const MatMulOptions& options, Tensor addend,
              Queue&) const override {
    const int64_t depth = a.dim(options.trans_a ? -2 : -1), cols = c.dim(-1);
    const int64_t size = c.dim(-2) * cols;
    const bool add = options.beta != 0;
    ForTiles(c, [&](int64_t matrix, const Tile& tile) {
      const float* product = TileProduct(OperandOf(a, matrix, options.trans_a),
                                         OperandOf(b, matrix, options.trans_b), depth, tile);
      for (int64_t r = 0; r < tile.rows; ++r) {
        const int64_t at = matrix * size + (tile.row + r) * cols + tile.col;
        if (c.dtype() == DType::kF32) {
          KERNELS_DISPATCH(AxpbyRowF32)
          (product + r * tile.cols, options.alpha, options.beta, add ? addend.f32() + at : nullptr,
           c.f32() + at, tile.cols);
        } else {
          KERNELS_DISPATCH(AxpbyRowBF16)
          (product + r * tile.cols, options.alpha, options.beta, add ? addend.bf16() + at : nullptr,
           c.bf16() + at, tile.cols);
        }
      }
    });
  }

  void WeightGrad(Tensor dy, Tensor x, Tensor dw, Queue&) const override {
    const int64_t slots = x.dim(0), tokens = x.dim(1), cols = dw.dim(2);
    ForTiles(dw.At(0), [&](int64_t, const Tile& tile) {
      for (int64_t slot = 0; slot < slots; ++slot) {
        const float* product =
            TileProduct(OperandOf(dy, slot, true), OperandOf(x, slot, false), tokens, tile);
        float* leaf = dw.f32() + (dw.dim(0) == 1 ? 0 : slot) * dw.dim(1) * cols;
        for (int64_t r = 0; r < tile.rows; ++r) {
          float* row = leaf + (tile.row + r) * cols + tile.col;
          KERNELS_DISPATCH(AxpbyRowF32)
          (product + r * tile.cols, 1.0f, 1.0f, row, row, tile.cols);
        }
      }
    });
  }

  void LinearRelu2(Tensor u, Tensor w, HiddenDim hidden, Tensor a, Tensor b,
                   Queue&) const override {
    const bool rows = hidden == HiddenDim::kRows;
    ForTiles(a, [&](int64_t slot, const Tile& tile) {
      const float* product =
          TileProduct(OperandOf(u, slot, false), OperandOf(w, 0, rows), u.cols(), tile);
      for (int64_t r = 0; r < tile.rows; ++r) {
        const int64_t at = (slot * a.dim(1) + tile.row + r) * a.cols() + tile.col;
        KERNELS_DISPATCH(Relu2Row)
        (product + r * tile.cols, a.bf16() + at, b.bf16() + at, tile.cols);
      }
    });
  }

  void LinearRelu2Grad(Tensor dy, Tensor w, HiddenDim hidden, Tensor a, Tensor da,
                       Queue&) const override {
    const bool rows = hidden == HiddenDim::kRows;
    ForTiles(da, [&](int64_t slot, const Tile& tile) {
      const float* product =
          TileProduct(OperandOf(dy, slot, false), OperandOf(w, 0, rows), dy.cols(), tile);
      for (int64_t r = 0; r < tile.rows; ++r) {
        const int64_t at = (slot * a.dim(1) + tile.row + r) * a.cols() + tile.col;
        KERNELS_DISPATCH(Relu2GradRow)
        (product + r * tile.cols, a.bf16() + at, da.bf16() + at, tile.cols);
      }
    });
  }

  void SymmetricProduct(Tensor x, float alpha, float beta, Tensor addend, Tensor c,
                        Queue&) const override {
    const int64_t size = x.dim(1);
    const int64_t side = (size + kSquare - 1) / kSquare, tiles = side * (side + 1) / 2;
    pool_.ParallelFor(x.dim(0) * tiles, [&](int64_t task) {
      // The lower triangle's tiles, row by row.
      int64_t index = task % tiles, row = 0;
      while (index > row) index -= ++row;
      const Tile tile{row * kSquare, std::min(kSquare, size - row * kSquare), index * kSquare,
                      std::min(kSquare, size - index * kSquare)};
      const int64_t matrix = task / tiles;
      const float* product =
          TileProduct(OperandOf(x, matrix, false), OperandOf(x, matrix, true), x.dim(2), tile);
      BF16* out = c.bf16() + matrix * size * size;
      const BF16* base = beta != 0 ? addend.bf16() + matrix * size * size : nullptr;
      for (int64_t r = 0; r < tile.rows; ++r) {
        const int64_t at = (tile.row + r) * size + tile.col;
        // Of a diagonal tile only the lower triangle counts; the rest is its mirror image.
        const int64_t cols = row == index ? r + 1 : tile.cols;
        KERNELS_DISPATCH(AxpbyRowBF16)
        (product + r * tile.cols, alpha, beta, base == nullptr ? nullptr : base + at, out + at,
         cols);
        for (int64_t i = 0; i < cols; ++i) {
          out[(tile.col + i) * size + tile.row + r] = out[at + i];
        }
      }
    });
  }

 private:
  // work(matrix, tile) for all tiles of all matrices of c
  template <typename F>
  void ForTiles(const Tensor& c, const F& work) const {
    const int64_t rows = c.dim(-2), cols = c.dim(-1);
    const int64_t matrices = c.rank() == 3 ? c.dim(0) : 1;
    const int64_t down = (rows + kTileRows - 1) / kTileRows;
    const int64_t across = (cols + kTileCols - 1) / kTileCols;
    pool_.ParallelFor(matrices * down * across, [&](int64_t task) {
      const int64_t row = task / across % down * kTileRows, col = task % across * kTileCols;
      work(task / (down * across),
           Tile{row, std::min(kTileRows, rows - row), col, std::min(kTileCols, cols - col)});
    });
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<MatMulOps> MakeCpuMatMulOps(ThreadPool& pool) {
  return std::make_unique<CpuMatMulOps>(pool);
}

}  // namespace kernels
#endif  // HWY_ONCE
