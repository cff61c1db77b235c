// Matrix products: cuBLASLt for the dense ones, own kernels for what it cannot do or does in two
// passes.
#include <algorithm>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/relu2_gemm.h"
#include "kernels/cuda/symmetric.h"

namespace kernels {
namespace {

constexpr int kThreads = 256;

GemmOperand Operand(const Tensor& matrices, bool trans) {
  GemmOperand operand;
  operand.data = matrices.data();
  operand.dtype = matrices.dtype();
  operand.ld = matrices.cols();
  if (matrices.rank() == 3) operand.stride = matrices.dim(1) * matrices.dim(2);
  operand.trans = trans;
  return operand;
}

// One thread an element, for the gates of a few numbers: rows of 6 or 12 elements are not aligned
// as the library wants them.
__global__ void SmallProduct(GemmArgs g) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= g.batch * g.m * g.n) return;
  const int64_t col = i % g.n, row = i / g.n % g.m, matrix = i / g.n / g.m;
  const BF16* a = static_cast<const BF16*>(g.a.data) + matrix * g.a.stride;
  const BF16* b = static_cast<const BF16*>(g.b.data) + matrix * g.b.stride;
  float sum = 0;
  for (int64_t k = 0; k < g.k; ++k) {
    sum = fmaf(cuda::ToF32(a[g.a.trans ? k * g.a.ld + row : row * g.a.ld + k]),
               cuda::ToF32(b[g.b.trans ? col * g.b.ld + k : k * g.b.ld + col]), sum);
  }
  const int64_t at = matrix * g.d_stride + row * g.d_ld + col;
  sum *= g.alpha;
  if (g.d_dtype == DType::kF32) {
    if (g.beta != 0) sum += g.beta * static_cast<const float*>(g.c)[at];
    static_cast<float*>(g.d)[at] = sum;
  } else {
    if (g.beta != 0) sum += g.beta * cuda::ToF32(static_cast<const BF16*>(g.c)[at]);
    static_cast<BF16*>(g.d)[at] = cuda::Round(sum);
  }
}

// Whether rows start at multiples of 16 bytes, which the library's fast kernels need.
bool Aligned(const GemmArgs& g) {
  const auto row_aligned = [](DType dtype, int64_t ld) { return ld * SizeOf(dtype) % 16 == 0; };
  return row_aligned(g.a.dtype, g.a.ld) && row_aligned(g.b.dtype, g.b.ld) &&
         row_aligned(g.d_dtype, g.d_ld);
}

void Run(const GemmArgs& g, Gemm& gemm, CudaQueue& queue) {
  if (g.batch == 0) return;
  if (Aligned(g) || g.a.dtype != DType::kBF16) return gemm.Run(g, queue);
  const int64_t elements = g.batch * g.m * g.n;
  CHECK_LE(elements * g.k, int64_t{1} << 32)
      << "a product of " << g.m << " x " << g.n << " x " << g.k
      << " whose rows are not multiples of 16 bytes is too large for the simple kernel";
  SmallProduct<<<cuda::CeilDiv(elements, kThreads), kThreads, 0, queue.stream()>>>(g);
  CheckLaunch("SmallProduct");
}

// b = max(a, 0)^2: reads 2 bytes and writes 2 an element.
__global__ void Relu2(const BF16* a, BF16* b, int64_t vectors) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= vectors) return;
  float x[8];
  cuda::Unpack(cuda::Load8(a + 8 * i), x);
#pragma unroll
  for (float& value : x) {
    const float positive = fmaxf(value, 0.0f);
    value = value != value ? value : positive * positive;  // fmaxf would drop a NaN
  }
  cuda::Store8(b + 8 * i, cuda::Pack(x));
}

// da <- da * 2 max(a, 0): reads 4 bytes and writes 2 an element.
__global__ void Relu2Grad(const BF16* a, BF16* da, int64_t vectors) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= vectors) return;
  float x[8], dx[8];
  cuda::Unpack(cuda::LoadStreaming8(a + 8 * i), x);
  cuda::Unpack(cuda::Load8(da + 8 * i), dx);
#pragma unroll
  for (int j = 0; j < 8; ++j) dx[j] *= 2.0f * fmaxf(x[j], 0.0f);
  cuda::Store8(da + 8 * i, cuda::Pack(dx));
}

int64_t Vectors(const char* op, const Tensor& x) {
  CHECK_EQ(x.size() % 8, 0) << op << " on CUDA takes multiples of 8 elements: " << x;
  return x.size() / 8;
}

class CudaMatMulOps : public MatMulOps {
 public:
  explicit CudaMatMulOps(Gemm& gemm) : gemm_(gemm) {}

  void MatMul(Tensor a, Tensor b, Tensor c, const MatMulOptions& options, Tensor addend,
              Queue& queue) const override {
    GemmArgs g;
    g.m = c.dim(-2);
    g.n = c.dim(-1);
    g.k = options.trans_a ? a.dim(-2) : a.dim(-1);
    g.batch = c.rank() == 3 ? c.dim(0) : 1;
    g.a = Operand(a, options.trans_a);
    g.b = Operand(b, options.trans_b);
    g.alpha = options.alpha;
    g.beta = options.beta;
    g.c = addend.data();
    g.d = c.data();
    g.d_dtype = c.dtype();
    g.d_ld = g.n;
    g.d_stride = g.m * g.n;
    CudaQueue& stream = Cuda(queue);
    const bool shared_b = g.batch > 1 && (b.rank() == 2 || b.dim(0) == 1);
    if (!shared_b) return Run(g, gemm_, stream);
    if (!stream.deterministic() && !options.trans_a) {  // one tall product
      g.m *= g.batch;
      g.batch = 1;
      return Run(g, gemm_, stream);
    }
    // Each slot's product alone, so that its algorithm does not depend on the number of slots.
    const int64_t slots = g.batch;
    g.batch = 1;
    for (int64_t slot = 0; slot < slots; ++slot) {
      g.a.data = a.At(slot).data();
      g.d = c.At(slot).data();
      if (g.beta != 0) g.c = addend.At(slot).data();
      Run(g, gemm_, stream);
    }
  }

  void WeightGrad(Tensor dy, Tensor x, Tensor dw, Queue& queue) const override {
    CudaQueue& stream = Cuda(queue);
    const int64_t slots = dy.dim(0), tokens = dy.dim(1), leaves = dw.dim(0);
    GemmArgs g;
    g.m = dy.dim(2);
    g.n = x.dim(2);
    g.k = tokens;
    g.a = Operand(dy, true);
    g.b = Operand(x, false);
    g.beta = 1.0f;
    g.d_dtype = DType::kF32;
    g.d_ld = g.n;
    g.d_stride = g.m * g.n;
    g.c = g.d = dw.data();
    if (leaves == 1 && !stream.deterministic()) {  // the sum over slots inside of one product
      g.k *= slots;
      return Run(g, gemm_, stream);
    }
    for (int64_t slot = 0; slot < slots; ++slot) {
      g.a.data = dy.At(slot).data();
      g.b.data = x.At(slot).data();
      g.c = g.d = dw.At(leaves == 1 ? 0 : slot).data();
      Run(g, gemm_, stream);
    }
  }

  void LinearRelu2(Tensor u, Tensor w, HiddenDim hidden, Tensor a, Tensor b,
                   Queue& queue) const override {
    const cuda::Relu2GemmShape shape = {a.dim(0) * a.dim(1), a.dim(2), u.dim(2), hidden};
    if (cuda::Relu2GemmSupports(shape)) {
      CudaQueue& stream = Cuda(queue);
      return cuda::Relu2Gemm(u.bf16(), w.bf16(), a.bf16(), b.bf16(), shape, stream.sm_count(),
                             stream.stream());
    }
    const int64_t vectors = Vectors("LinearRelu2", a);
    MatMul(u, w, a, {.trans_b = hidden == HiddenDim::kRows}, Tensor(), queue);
    Relu2<<<cuda::CeilDiv(vectors, kThreads), kThreads, 0, Cuda(queue).stream()>>>(
        a.bf16(), b.bf16(), vectors);
    CheckLaunch("Relu2");
  }

  void LinearRelu2Grad(Tensor dy, Tensor w, HiddenDim hidden, Tensor a, Tensor da,
                       Queue& queue) const override {
    const cuda::Relu2GemmShape shape = {a.dim(0) * a.dim(1), a.dim(2), dy.dim(2), hidden};
    if (cuda::Relu2GemmSupports(shape)) {
      CudaQueue& stream = Cuda(queue);
      return cuda::Relu2GradGemm(dy.bf16(), w.bf16(), a.bf16(), da.bf16(), shape, stream.sm_count(),
                                 stream.stream());
    }
    const int64_t vectors = Vectors("LinearRelu2Grad", a);
    MatMul(dy, w, da, {.trans_b = hidden == HiddenDim::kRows}, Tensor(), queue);
    Relu2Grad<<<cuda::CeilDiv(vectors, kThreads), kThreads, 0, Cuda(queue).stream()>>>(
        a.bf16(), da.bf16(), vectors);
    CheckLaunch("Relu2Grad");
  }

  void SymmetricProduct(Tensor x, float alpha, float beta, Tensor addend, Tensor c,
                        Queue& queue) const override {
    cuda::SymmetricProduct(x.bf16(), beta == 0 ? nullptr : addend.bf16(), c.bf16(), x.dim(0),
                           x.dim(1), x.dim(2), alpha, beta, Cuda(queue));
  }

 private:
  Gemm& gemm_;
};

}  // namespace

std::unique_ptr<MatMulOps> MakeCudaMatMulOps(Gemm& gemm) {
  return std::make_unique<CudaMatMulOps>(gemm);
}

}  // namespace kernels
