// The output head on CUDA: products by cuBLASLt, losses and gradients by softcap_loss.h.
//
// Each slot goes through in chunks of rows, cut by the slot's length alone, so that a slot's bits
// do not depend on how many slots a pass has. Chunks are as large as they can be: dx = g w has
// only D / 256 tiles along its columns and needs many rows to fill the card, and each chunk reads
// and writes all of dw (309 MB at V 50,304, D 768: 72 us).
//
// In fp8, per chunk of R rows:
//   x8 [R, D], x8t [D, R]     logits [R, V] = x8 w8^T     g8 [R, V]
//   dx = g8 w8t^T             dw += g8^T x8t^T
// and w8 [V, D], w8t [D, V] once a call. dw is one kernel on Hopper (fp8_grad_gemm.h); elsewhere
// the library's product, which wants g8t [V, R], a copy.
//
// Of a transposed w, which lies [D, V], w8t is the quantised copy and w8 its transpose; both come
// from the same single pass over w. And dw [D, V] += x8t g8.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "kernels/cuda/card_memory.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/fp8_cast.h"
#include "kernels/cuda/fp8_grad_gemm.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/softcap_loss.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

constexpr int64_t kGradChunkRows = cuda::kHeadGradChunkRows;
constexpr int64_t kLossChunkRows = 16384;
constexpr int64_t kRowMultiple = 16;  // of the fp8 products' sizes
constexpr int64_t kAlignment = 256;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t multiple) { return CeilDiv(a, multiple) * multiple; }

// Rows of a slot's chunks but the last: nearly equal ones, at most `most` each.
int64_t ChunkRows(int64_t tokens, int64_t most) {
  return RoundUp(CeilDiv(tokens, CeilDiv(tokens, most)), kRowMultiple);
}

// Whether dw comes from g8 itself.
bool FromRows(int64_t rows, int64_t vocab, int64_t dim) {
  return cuda::Fp8GradGemmSupports({.rows = rows, .classes = vocab, .dim = dim});
}

// The parts of args.workspace. For losses alone the chunks are no larger, and the gradients' parts
// stay unused.
struct Workspace {
  BF16* logits;       // [R, V]
  uint8_t *g8, *g8t;  // [R, V], [V, R]; g8t where the product for dw needs it
  uint8_t *x8, *x8t;  // [R, D], [D, R]
  uint8_t *w8, *w8t;  // [V, D], [D, V]
  int64_t bytes;
};

Workspace Layout(void* start, int64_t tokens, int64_t vocab, int64_t dim) {
  const bool from_rows = FromRows(cuda::HeadChunkRows(tokens), vocab, dim);
  const cuda::HeadLayout layout = cuda::LayOutHead(tokens, vocab, dim, !from_rows);
  uint8_t* const bytes = static_cast<uint8_t*>(start);
  return {.logits = reinterpret_cast<BF16*>(bytes + layout.logits),
          .g8 = bytes + layout.g8,
          .g8t = bytes + layout.g8t,
          .x8 = bytes + layout.x8,
          .x8t = bytes + layout.x8t,
          .w8 = bytes + layout.w8,
          .w8t = bytes + layout.w8t,
          .bytes = layout.bytes};
}

// Rows of one slot.
struct Chunk {
  const BF16* x;  // [rows, D]
  int64_t rows;
  cuda::SoftcapRows loss;
};

class CudaHeadOps : public HeadOps {
 public:
  explicit CudaHeadOps(Gemm& gemm) : gemm_(gemm) {}

  void HeadLoss(const HeadArgs& args, Tensor losses, Queue& queue) const override {
    Run(args, losses, Tensor(), Tensor(), Cuda(queue));
  }

  void HeadLossGrad(const HeadArgs& args, Tensor losses, Tensor dx, Tensor dw,
                    Queue& queue) const override {
    Run(args, losses, dx, dw, Cuda(queue));
  }

  void HeadLogits(const HeadArgs& args, Tensor logits, Queue& queue) const override {
    const Workspace work = Split(args);
    const int64_t tokens = args.x.dim(1);
    const int64_t vocab = HeadVocab(args);
    const int64_t dim = args.x.cols();
    if (args.precision.fp8) QuantiseW(args, work, /*grad=*/false, Cuda(queue));
    const int64_t step = ChunkRows(tokens, kLossChunkRows);
    for (int64_t begin = 0; begin < tokens; begin += step) {
      const Chunk chunk = {
          .x = args.x.bf16() + begin * dim, .rows = std::min(step, tokens - begin), .loss = {}};
      Logits(args, work, chunk, /*grad=*/false, Cuda(queue));
      cuda::Softcap(work.logits, chunk.rows * vocab, Curve(args), logits.f32() + begin * vocab,
                    Cuda(queue));
    }
  }

  int64_t HeadWorkspaceBytes(int64_t, int64_t slot_tokens, int64_t vocab,
                             int64_t dim) const override {
    return Layout(nullptr, slot_tokens, vocab, dim).bytes;
  }

 private:
  static Workspace Split(const HeadArgs& args) {
    CHECK(args.w.dim(0) % 16 == 0 && args.w.dim(1) % 16 == 0)
        << "head on CUDA: w " << args.w << " needs dims that are multiples of 16";
    CHECK_EQ(reinterpret_cast<uintptr_t>(args.workspace.data()) % kAlignment, 0u)
        << "head on CUDA: workspace " << args.workspace << " is not aligned to 256 bytes";
    return Layout(args.workspace.data(), args.x.dim(1), HeadVocab(args), args.x.cols());
  }

  static cuda::SoftcapCurve Curve(const HeadArgs& args) {
    return {.kind = args.softcap_kind,
            .cap = args.softcap,
            .temperature = args.softcap_temperature,
            .shift = args.softcap_shift};
  }

  // w8t is for gradients; from a transposed w it is made on the way to w8.
  static void QuantiseW(const HeadArgs& args, const Workspace& work, bool grad, CudaQueue& queue) {
    const int64_t vocab = HeadVocab(args);
    const int64_t dim = args.x.cols();
    const float scale = args.precision.w_scale;
    if (args.w_transposed) {
      cuda::QuantiseE4M3Both(args.w.bf16(), dim, vocab, scale, work.w8t, work.w8, queue);
    } else if (grad) {
      cuda::QuantiseE4M3Both(args.w.bf16(), vocab, dim, scale, work.w8, work.w8t, queue);
    } else {
      cuda::QuantiseE4M3(args.w.bf16(), vocab, dim, scale, work.w8, queue);
    }
  }

  // w as the right operand of a product that contracts its features, or else its classes.
  static GemmOperand W(const HeadArgs& args, bool features) {
    return {.data = args.w.data(),
            .dtype = DType::kBF16,
            .ld = args.w.cols(),
            .trans = features != args.w_transposed};
  }

  // bf16 logits into work.logits; in fp8 from x8, which is made on the way, and x8t for gradients.
  void Logits(const HeadArgs& args, const Workspace& work, const Chunk& chunk, bool grad,
              CudaQueue& queue) const {
    const int64_t vocab = HeadVocab(args);
    const int64_t dim = args.x.cols();
    const HeadPrecision& precision = args.precision;
    GemmArgs product = {.m = chunk.rows, .n = vocab, .k = dim};
    product.a = {.data = chunk.x, .dtype = DType::kBF16, .ld = dim};
    product.b = W(args, /*features=*/true);
    product.d = work.logits;
    product.d_dtype = DType::kBF16;
    product.d_ld = vocab;
    if (precision.fp8) {
      if (grad) {
        cuda::QuantiseE4M3Both(chunk.x, chunk.rows, dim, precision.x_scale, work.x8, work.x8t,
                               queue);
      } else {
        cuda::QuantiseE4M3(chunk.x, chunk.rows, dim, precision.x_scale, work.x8, queue);
      }
      product.a = {.data = work.x8, .dtype = DType::kF8E4M3, .ld = dim};
      product.b = {.data = work.w8, .dtype = DType::kF8E4M3, .ld = dim, .trans = true};
      product.alpha = precision.x_scale * precision.w_scale;
      product.fast_accumulate = true;
    }
    gemm_.Run(product, queue);
  }

  // work.logits become g there, or g8.
  void Gradients(const HeadArgs& args, const Workspace& work, const Chunk& chunk, float* losses,
                 CudaQueue& queue) const {
    if (!args.precision.fp8) {
      cuda::SoftcapLossGrad(work.logits, chunk.loss, losses, queue);
      return;
    }
    cuda::SoftcapLossGradFp8(work.logits, chunk.loss, args.precision.grad_scale, losses, work.g8,
                             queue);
  }

  void GradX(const HeadArgs& args, const Workspace& work, const Chunk& chunk, BF16* dx,
             CudaQueue& queue) const {
    const int64_t vocab = HeadVocab(args);
    const int64_t dim = args.x.cols();
    const HeadPrecision& precision = args.precision;
    GemmArgs product = {.m = chunk.rows, .n = dim, .k = vocab};
    product.a = {.data = work.logits, .dtype = DType::kBF16, .ld = vocab};
    product.b = W(args, /*features=*/false);
    product.d = dx;
    product.d_dtype = DType::kBF16;
    product.d_ld = dim;
    if (precision.fp8) {
      product.a = {.data = work.g8, .dtype = DType::kF8E5M2, .ld = vocab};
      product.b = {.data = work.w8t, .dtype = DType::kF8E4M3, .ld = vocab, .trans = true};
      product.alpha = precision.grad_scale * precision.w_scale;
    }
    gemm_.Run(product, queue);
  }

  void GradW(const HeadArgs& args, const Workspace& work, const Chunk& chunk, float* dw,
             CudaQueue& queue) const {
    const int64_t vocab = HeadVocab(args);
    const int64_t dim = args.x.cols();
    const HeadPrecision& precision = args.precision;
    if (precision.fp8 && FromRows(chunk.rows, vocab, dim)) {
      cuda::Fp8GradGemm(work.g8, work.x8t, precision.x_scale * precision.grad_scale, dw,
                        {chunk.rows, vocab, dim, args.w_transposed}, queue.sm_count(),
                        queue.stream());
      return;
    }
    GemmOperand g = {.data = work.logits, .dtype = DType::kBF16, .ld = vocab};
    GemmOperand x = {.data = chunk.x, .dtype = DType::kBF16, .ld = dim};
    GemmArgs product = {.k = chunk.rows, .beta = 1.0f, .c = dw, .d = dw, .d_dtype = DType::kF32};
    if (precision.fp8) {  // transposed copies of both
      cuda::TransposeBytes(work.g8, chunk.rows, vocab, work.g8t, queue);
      g = {.data = work.g8t, .dtype = DType::kF8E5M2, .ld = chunk.rows, .trans = true};
      x = {.data = work.x8t, .dtype = DType::kF8E4M3, .ld = chunk.rows, .trans = true};
      product.alpha = precision.x_scale * precision.grad_scale;
    }
    // The left operand is the transpose of what is named here.
    product.a = args.w_transposed ? x : g;
    product.b = args.w_transposed ? g : x;
    product.a.trans = !product.a.trans;
    product.m = args.w_transposed ? dim : vocab;
    product.n = args.w_transposed ? vocab : dim;
    product.d_ld = product.n;
    gemm_.Run(product, queue);
  }

  static void CheckLimits(const HeadArgs& args, bool grad) {
    CHECK_LE(args.softcap, cuda::kMaxSoftcap) << "head on CUDA: exponentials of z would leave f32";
    if (!grad) return;
    CHECK_LE(HeadVocab(args), cuda::kMaxGradVocab)
        << "head on CUDA: a block of threads cannot hold a row of logits of w " << args.w;
    CHECK(!args.precision.fp8 || args.x.dim(1) % kRowMultiple == 0)
        << "head on CUDA: fp8 gradients need a multiple of 16 tokens in a slot, x " << args.x;
  }

  // Without dx and dw: losses only. Chunks add to their leaf one by one, slot after slot.
  void Run(const HeadArgs& args, const Tensor& losses, const Tensor& dx, const Tensor& dw,
           CudaQueue& queue) const {
    const bool grad = !dx.empty();
    CheckLimits(args, grad);
    const Workspace work = Split(args);
    const int64_t tokens = args.x.dim(1);
    const int64_t dim = args.x.cols();
    const bool weighted = !args.loss_weights.empty();
    if (args.precision.fp8) QuantiseW(args, work, grad, queue);
    const int64_t step = ChunkRows(tokens, grad ? kGradChunkRows : kLossChunkRows);
    for (int64_t slot = 0; slot < args.x.dim(0); ++slot) {
      for (int64_t begin = 0; begin < tokens; begin += step) {
        const int64_t first = slot * tokens + begin;
        const int64_t rows = std::min(step, tokens - begin);
        const Chunk chunk = {
            .x = args.x.bf16() + first * dim,
            .rows = rows,
            .loss = {.targets = args.targets.i32() + first,
                     .target_count = tokens - begin,
                     .rows = rows,
                     .vocab = HeadVocab(args),
                     .curve = Curve(args),
                     .weights = weighted ? args.loss_weights.f32() : nullptr,
                     .weight_count = weighted ? static_cast<int>(args.loss_weights.size()) : 0}};
        Logits(args, work, chunk, grad, queue);
        if (!grad) {
          cuda::SoftcapLoss(work.logits, chunk.loss, losses.f32() + first, queue);
          continue;
        }
        Gradients(args, work, chunk, losses.f32() + first, queue);
        GradX(args, work, chunk, dx.bf16() + first * dim, queue);
        GradW(args, work, chunk, dw.At(dw.dim(0) == 1 ? 0 : slot).f32(), queue);
      }
    }
  }

  Gemm& gemm_;
};

}  // namespace

std::unique_ptr<HeadOps> MakeCudaHeadOps(Gemm& gemm) { return std::make_unique<CudaHeadOps>(gemm); }

}  // namespace kernels
