// The output head on the CPU. w is converted (or quantised) to f32 once a call; then each slot
// goes through in chunks of kChunkRows rows:
//
//   logits tile [rows, V] = x w^T      tasks of kVocabBlock columns
//   losses, and the tile becomes g     tasks of kLossRows rows
//   dx = g w                           tasks of kGradRows rows
//   dw += g^T x                        tasks of kVocabBlock rows of dw
//
// A transposed w [D, V] stays so: the products read it as it lies, and the last one becomes
// dw += x^T g in tasks of kVocabBlock columns.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/head_rows.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

constexpr int64_t kChunkRows = 256;
constexpr int64_t kConvertBlock = 65536;
constexpr int64_t kVocabBlock = 128;  // so that small vocabularies keep two cores busy, too
constexpr int64_t kLossRows = 8;
constexpr int64_t kGradRows = 32;

int64_t Blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// The parts of args.workspace, all f32. The widened w takes 154 MB at the full size (V 50304,
// D 768); quantising it again for each chunk would save them for a few percent of the time.
struct Workspace {
  float* w;     // like args.w
  float* x;     // [kChunkRows, D]
  float* tile;  // [kChunkRows, V]
};

int64_t WorkspaceFloats(int64_t vocab, int64_t dim) {
  return vocab * dim + kChunkRows * (dim + vocab);
}

class CpuHeadOps : public HeadOps {
 public:
  explicit CpuHeadOps(ThreadPool& pool) : pool_(pool) {}

  void HeadLoss(const HeadArgs& args, Tensor losses, Queue&) const override {
    Run(args, losses, Tensor(), Tensor());
  }

  void HeadLossGrad(const HeadArgs& args, Tensor losses, Tensor dx, Tensor dw,
                    Queue&) const override {
    Run(args, losses, dx, dw);
  }

  void HeadLogits(const HeadArgs& args, Tensor logits, Queue&) const override {
    const Workspace work = Split(args);
    const int64_t vocab = HeadVocab(args);
    const int64_t dim = args.x.cols();
    WidenW(args, work);
    for (int64_t begin = 0; begin < args.x.dim(1); begin += kChunkRows) {
      const int64_t rows = std::min(kChunkRows, args.x.dim(1) - begin);
      float* const out = logits.f32() + begin * vocab;
      Convert(args.x.bf16() + begin * dim, rows * dim, args.precision.fp8, args.precision.x_scale,
              work.x);
      Logits(args, work, rows, out);
      pool_.ParallelFor(rows,
                        [&](int64_t row) { CapHeadRow(vocab, Curve(args), out + row * vocab); });
    }
  }

  // The same for any number of slots and tokens.
  int64_t HeadWorkspaceBytes(int64_t, int64_t, int64_t vocab, int64_t dim) const override {
    return WorkspaceFloats(vocab, dim) * int64_t{sizeof(float)};
  }

 private:
  static HeadCurve Curve(const HeadArgs& args) {
    return {.kind = args.softcap_kind,
            .cap = args.softcap,
            .temperature = args.softcap_temperature,
            .shift = args.softcap_shift};
  }

  static Workspace Split(const HeadArgs& args) {
    const int64_t vocab = HeadVocab(args);
    const int64_t dim = args.x.cols();
    float* const start = static_cast<float*>(args.workspace.data());
    return {start, start + vocab * dim, start + (vocab + kChunkRows) * dim};
  }

  static void CheckTargets(const HeadArgs& args) {
    const int64_t vocab = HeadVocab(args);
    const int32_t* const targets = args.targets.i32();
    const int64_t tokens = args.x.dim(1);
    for (int64_t i = 0; i < args.targets.size(); ++i) {
      CHECK(targets[i] >= 0 && targets[i] < vocab)
          << "head: the target of slot " << i / tokens << ", row " << i % tokens << " is "
          << targets[i] << ", outside the vocabulary of " << vocab;
    }
  }

  static void CheckWeights(const HeadArgs& args) {
    for (int64_t k = 0; k < args.loss_weights.size(); ++k) {
      const float weight = args.loss_weights.f32()[k];
      CHECK(weight >= 0 && std::isfinite(weight))
          << "head: loss weight " << k << " is " << weight << ", which is not a weight";
    }
  }

  // Of row t of a slot whose targets begin at `targets`.
  static HeadTerms Terms(const HeadArgs& args, const int32_t* targets, int64_t t) {
    const bool weighted = !args.loss_weights.empty();
    const int64_t count = weighted ? args.loss_weights.size() : 1;
    HeadTerms terms = {};
    terms.count = static_cast<int>(std::min(count, args.x.dim(1) - t));
    for (int k = 0; k < terms.count; ++k) {
      terms.target[k] = targets[t + k];
      terms.weight[k] = weighted ? args.loss_weights.f32()[k] : 1.0f;
    }
    return terms;
  }

  static void Convert(const BF16* from, int64_t size, bool fp8, float scale, float* to) {
    if (fp8) {
      QuantiseHead(from, 1.0f / scale, size, to);
    } else {
      WidenHead(from, size, to);
    }
  }

  void WidenW(const HeadArgs& args, const Workspace& work) const {
    const int64_t size = args.w.size();
    pool_.ParallelFor(Blocks(size, kConvertBlock), [&](int64_t block) {
      const int64_t begin = block * kConvertBlock;
      Convert(args.w.bf16() + begin, std::min(kConvertBlock, size - begin), args.precision.fp8,
              args.precision.w_scale, work.w + begin);
    });
  }

  // f32 products, not yet rounded to bf16: out [rows, V].
  void Logits(const HeadArgs& args, const Workspace& work, int64_t rows, float* out) const {
    const int64_t vocab = HeadVocab(args);
    const int64_t dim = args.x.cols();
    const HeadPrecision& precision = args.precision;
    const float alpha = precision.fp8 ? precision.x_scale * precision.w_scale : 1.0f;
    pool_.ParallelFor(Blocks(vocab, kVocabBlock), [&](int64_t block) {
      const int64_t begin = block * kVocabBlock;
      const int64_t classes = std::min(kVocabBlock, vocab - begin);
      if (args.w_transposed) {
        Sgemm(false, false, rows, classes, dim, alpha, work.x, dim, work.w + begin, vocab, 0.0f,
              out + begin, vocab);
      } else {
        Sgemm(false, true, rows, classes, dim, alpha, work.x, dim, work.w + begin * dim, dim, 0.0f,
              out + begin, vocab);
      }
    });
  }

  // Of the tile's rows, from row `begin` of a slot whose targets and losses are given.
  void Losses(const HeadArgs& args, bool grad, const Workspace& work, int64_t begin, int64_t rows,
              const int32_t* targets, float* losses) const {
    const HeadPrecision& precision = args.precision;
    const HeadRow row = {.vocab = HeadVocab(args),
                         .curve = Curve(args),
                         .grad = grad,
                         .fp8 = precision.fp8,
                         .inv_grad_scale = grad && precision.fp8 ? 1.0f / precision.grad_scale : 0};
    pool_.ParallelFor(Blocks(rows, kLossRows), [&](int64_t block) {
      float* const z = ThreadScratch(0, row.vocab);
      const int64_t end = std::min(rows, (block + 1) * kLossRows);
      for (int64_t i = block * kLossRows; i < end; ++i) {
        const HeadTerms terms = Terms(args, targets, begin + i);
        losses[begin + i] = HeadLossRow(row, terms, work.tile + i * row.vocab, z);
      }
    });
  }

  void GradX(const HeadArgs& args, const Workspace& work, int64_t rows, BF16* dx) const {
    const int64_t vocab = HeadVocab(args);
    const int64_t dim = args.x.cols();
    const HeadPrecision& precision = args.precision;
    const float alpha = precision.fp8 ? precision.grad_scale * precision.w_scale : 1.0f;
    const bool transposed = args.w_transposed;
    pool_.ParallelFor(Blocks(rows, kGradRows), [&](int64_t block) {
      const int64_t begin = block * kGradRows;
      const int64_t count = std::min(kGradRows, rows - begin);
      float* const sums = ThreadScratch(0, kGradRows * dim);
      Sgemm(false, transposed, count, dim, vocab, alpha, work.tile + begin * vocab, vocab, work.w,
            transposed ? vocab : dim, 0.0f, sums, dim);
      NarrowHead(sums, count * dim, dx + begin * dim);
    });
  }

  void GradW(const HeadArgs& args, const Workspace& work, int64_t rows, float* dw) const {
    const int64_t vocab = HeadVocab(args);
    const int64_t dim = args.x.cols();
    const HeadPrecision& precision = args.precision;
    const float alpha = precision.fp8 ? precision.x_scale * precision.grad_scale : 1.0f;
    pool_.ParallelFor(Blocks(vocab, kVocabBlock), [&](int64_t block) {
      const int64_t begin = block * kVocabBlock;
      const int64_t classes = std::min(kVocabBlock, vocab - begin);
      if (args.w_transposed) {
        Sgemm(true, false, dim, classes, rows, alpha, work.x, dim, work.tile + begin, vocab, 1.0f,
              dw + begin, vocab);
      } else {
        Sgemm(true, false, classes, dim, rows, alpha, work.tile + begin, vocab, work.x, dim, 1.0f,
              dw + begin * dim, dim);
      }
    });
  }

  // Without dx and dw: losses only. Chunks add to their leaf one by one, slot after slot: one leaf
  // for all slots gets the bits that one call per slot would give it.
  void Run(const HeadArgs& args, const Tensor& losses, const Tensor& dx, const Tensor& dw) const {
    CheckTargets(args);
    CheckWeights(args);
    const Workspace work = Split(args);
    const int64_t tokens = args.x.dim(1);
    const int64_t dim = args.x.cols();
    WidenW(args, work);
    for (int64_t slot = 0; slot < args.x.dim(0); ++slot) {
      for (int64_t begin = 0; begin < tokens; begin += kChunkRows) {
        const int64_t rows = std::min(kChunkRows, tokens - begin);
        const int64_t first = slot * tokens + begin;
        Convert(args.x.bf16() + first * dim, rows * dim, args.precision.fp8, args.precision.x_scale,
                work.x);
        Logits(args, work, rows, work.tile);
        Losses(args, !dx.empty(), work, begin, rows, args.targets.i32() + slot * tokens,
               losses.f32() + slot * tokens);
        if (dx.empty()) continue;
        GradX(args, work, rows, dx.bf16() + first * dim);
        GradW(args, work, rows, dw.At(dw.dim(0) == 1 ? 0 : slot).f32());
      }
    }
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<HeadOps> MakeCpuHeadOps(ThreadPool& pool) {
  return std::make_unique<CpuHeadOps>(pool);
}

}  // namespace kernels
