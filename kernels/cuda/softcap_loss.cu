// One row of logits is read once and stays on the multiprocessor until its gradient is written:
// 2 bytes read and 1 (e5m2) or 2 (bf16) written per logit, 1.73 ms for 49,152 x 50,304 in fp8 at
// 4.29 TB/s. What limits the kernel is the special function unit (exponentials and reciprocals,
// 16 a clock and multiprocessor) together with the issue of instructions: 3 of the former and
// some 28 instructions per logit.
//
//   pass 1  c = 1 / (1 + 2^(-logit log2(e) / temperature))    1 exponential, 1/4 reciprocal
//           sum += 2^((c - 1) cap log2(e))                    3/4
//   pass 2  g = p cap / temperature c (1 - c)                 1
//
// Between the passes c is kept in registers as a 16-bit fixed-point number, 1 = 65535. Its error
// of 7.6e-6 moves z by at most 2.3e-4 at a cap of 30, hence p by 2.3e-4 of itself, and c (1 - c)
// by less than a bf16 rounding for logits from -35 to 35; logits so far out that c becomes 0 or 1
// get the gradient 0. The target's gradient and the loss are computed from the logit itself.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/softcap_loss.h"

namespace kernels::cuda {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr int kVec = 8;             // logits in one 16-byte load
constexpr int kGradThreads = 1024;  // all of a multiprocessor's registers, 64 a thread
constexpr int kLossThreads = 256;
constexpr float kOne = 65535.0f;          // the fixed-point 1
constexpr float kShift = 8388608.0f;      // 2^23: adding it leaves an integer in the low bits
constexpr uint32_t kShiftBits = 0x4B00u;  // its upper half

// The factors that the formulas need, computed once on the host.
struct Factors {
  float softcap;
  float inv_temperature;
  float slope;           // cap / temperature
  float logit_log2;      // -log2(e) / temperature
  float cap_log2;        // cap log2(e)
  float kept_log2;       // cap log2(e) / 65535
  float slope_log2;      // log2(cap / temperature / 65535^2)
  float inv_grad_scale;  // fp8 only
};

Factors MakeFactors(float softcap, float temperature, float grad_scale) {
  const double cap_log2 = softcap * kLog2E;
  const double slope = static_cast<double>(softcap) / temperature;
  return {.softcap = softcap,
          .inv_temperature = 1.0f / temperature,
          .slope = softcap / temperature,
          .logit_log2 = static_cast<float>(-kLog2E / temperature),
          .cap_log2 = static_cast<float>(cap_log2),
          .kept_log2 = static_cast<float>(cap_log2 / kOne),
          .slope_log2 = static_cast<float>(std::log2(slope / kOne / kOne)),
          .inv_grad_scale = 1.0f / grad_scale};
}

// Relative error 2^-22; results below 2^-126 become 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The same on the multiply-add pipe, to a relative error of 3e-6: for |x| < 126 (so not for NaN).
// x = n + f, |f| <= 1/2; a polynomial (fitted for the least relative error) gives 2^f, and n is
// added to its exponent.
__device__ __forceinline__ float Exp2Poly(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: leaves n in the low bits
  const float shifted = x + kRound;
  const float f = x - (shifted - kRound);
  float y = 0.009570101f;
  y = fmaf(y, f, 0.05591786f);
  y = fmaf(y, f, 0.24024744f);
  y = fmaf(y, f, 0.69312179f);
  y = fmaf(y, f, 0.99999928f);
  return __uint_as_float(__float_as_uint(y) + (__float_as_uint(shifted) << 23));
}
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// NaN if one of them is.
__device__ __forceinline__ float MinOrNaN(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// One instruction per value; Unpack() takes two for the upper ones.
__device__ __forceinline__ void UnpackWords(const uint32_t (&word)[4], float (&f)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    f[2 * i] = __uint_as_float(word[i] << 16);
    f[2 * i + 1] = __uint_as_float(word[i] & 0xFFFF0000u);
  }
}

// Sigmoids of 8 logits. Four share a reciprocal: 1 / a = b c d / (a b c d). To keep the product
// finite, logits below -21 temperatures count as -21; c is 5e-10 there.
__device__ __forceinline__ void Sigmoids(const uint4& logits, float logit_log2, float (&c)[8]) {
  float y[8];
  UnpackWords({logits.x, logits.y, logits.z, logits.w}, y);
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i] = 1.0f + Exp2(MinOrNaN(y[i] * logit_log2, 31.0f));
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    const float first = y[i] * y[i + 1];
    const float second = y[i + 2] * y[i + 3];
    const float all = Reciprocal(first * second);
    const float inv_first = all * second;
    const float inv_second = all * first;
    c[i] = inv_first * y[i + 1];
    c[i + 1] = inv_first * y[i];
    c[i + 2] = inv_second * y[i + 3];
    c[i + 3] = inv_second * y[i + 2];
  }
}

// The sum of exp(z - cap). A quarter of the exponentials are polynomials, which evens the load of
// pass 1 on its two bottlenecks. They turn NaN into a number; the c of the same four classes are
// all NaN then, so the sum is NaN still.
__device__ __forceinline__ float SumExp(const float (&c)[8], float cap_log2) {
  float e[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float z_log2 = fmaf(c[i], cap_log2, -cap_log2);
    e[i] = i % 4 == 0 ? Exp2Poly(z_log2) : Exp2(z_log2);
  }
  return ((e[0] + e[1]) + (e[2] + e[3])) + ((e[4] + e[5]) + (e[6] + e[7]));
}

__device__ __forceinline__ uint4 Keep(const float (&c)[8]) {
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t low = __float_as_uint(fmaf(c[2 * i], kOne, kShift));
    const uint32_t high = __float_as_uint(fmaf(c[2 * i + 1], kOne, kShift));
    word[i] = __byte_perm(low, high, 0x5410);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

// g of 8 classes that are not the target: p * slope * c (1 - c), where `offset` holds the log2 of
// all that the row has in common.
__device__ __forceinline__ uint4 Gradients(const uint4& kept, float kept_log2, float offset) {
  const uint32_t word[4] = {kept.x, kept.y, kept.z, kept.w};
  float g[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t bits = __byte_perm(word[i / 2], kShiftBits, i % 2 == 0 ? 0x5410 : 0x5432);
    const float u = __uint_as_float(bits) - kShift;
    g[i] = Exp2(fmaf(u, kept_log2, offset)) * u * (kOne - u);
  }
  const BF16x8 rounded = Pack(g);
  return *reinterpret_cast<const uint4*>(&rounded);
}

__device__ __forceinline__ uint2 ToE5M2(const uint4& g, float inv_grad_scale) {
  float f[8];
  UnpackWords({g.x, g.y, g.z, g.w}, f);
#pragma unroll
  for (int i = 0; i < 8; ++i) f[i] *= inv_grad_scale;
  return make_uint2(ToFp8x4<__NV_E5M2>(f[0], f[1], f[2], f[3]),
                    ToFp8x4<__NV_E5M2>(f[4], f[5], f[6], f[7]));
}

// The target's part, with neither overflow nor cancellation in 1 - c.
struct Target {
  float loss;
  float grad;
};
__device__ __forceinline__ Target TargetOf(float logit, float sum, const Factors& k) {
  const float y = logit * k.inv_temperature;
  const float e = expf(-fabsf(y));
  const float larger = 1.0f / (1.0f + e);                         // sigmoid(|y|)
  const float smaller = e * larger;                               // sigmoid(-|y|)
  const float distance = k.softcap * (y < 0 ? larger : smaller);  // cap - z
  const float p = expf(-distance) / sum;
  return {.loss = logf(sum) + distance, .grad = (p - 1.0f) * k.slope * larger * smaller};
}

__device__ __forceinline__ void CopyAsync16(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
// Waits for this thread's own copies.
__device__ __forceinline__ void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A block per row, row after row. Each thread has the same kVectors places of 8 logits in all
// rows, and only it touches their shared memory; as soon as it has taken a row's logits from
// there, it starts the copy of the next row's, which then has all of pass 2 to arrive.
template <int kVectors, bool kFp8>
__global__ void __launch_bounds__(kGradThreads, 1)
    LossGradKernel(BF16* logits, const int32_t* __restrict__ targets, int64_t rows, int vocab,
                   Factors k, float* __restrict__ losses, uint8_t* __restrict__ g8) {
  extern __shared__ uint4 loaded[];  // [vocab / 8]
  // Two, so that a row's sums may be written while the last row's are still read.
  __shared__ float warp_sums[2][kGradThreads / kWarp];
  const int vectors = vocab / kVec;
  const int thread = threadIdx.x;

#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int v = thread + i * kGradThreads;
    if (v < vectors) CopyAsync16(&loaded[v], logits + blockIdx.x * int64_t{vocab} + v * kVec);
  }
  int parity = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, parity ^= 1) {
    BF16* const out = logits + row * vocab;
    const BF16* const next = out + gridDim.x * int64_t{vocab};
    const bool has_next = row + gridDim.x < rows;
    const int target = targets[row];
    const bool valid = target >= 0 && target < vocab;
    const bool owner = valid && target / kVec % kGradThreads == thread;
    WaitForCopies();
    float target_logit = 0;
    if (owner) target_logit = ToF32(reinterpret_cast<const BF16*>(loaded)[target]);

    uint4 kept[kVectors];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int v = thread + i * kGradThreads;
      if (v < vectors) {
        float c[8];
        Sigmoids(loaded[v], k.logit_log2, c);
        kept[i] = Keep(c);
        sum += SumExp(c, k.cap_log2);
        if (has_next) CopyAsync16(&loaded[v], next + v * kVec);
      }
    }
    sum = WarpSum(sum);
    if (thread % kWarp == 0) warp_sums[parity][thread / kWarp] = sum;
    __syncthreads();
    static_assert(kGradThreads == kWarp * kWarp);
    sum = WarpSum(warp_sums[parity][thread % kWarp]);

    const float offset = k.slope_log2 - k.cap_log2 - __log2f(sum);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int v = thread + i * kGradThreads;
      if (v < vectors) {
        const uint4 g = Gradients(kept[i], k.kept_log2, offset);
        if constexpr (kFp8) {
          *reinterpret_cast<uint2*>(g8 + row * vocab + v * kVec) = ToE5M2(g, k.inv_grad_scale);
        } else {
          *reinterpret_cast<uint4*>(out + v * kVec) = g;
        }
      }
    }
    // Over what the same thread has just stored there.
    if (owner) {
      const Target t = TargetOf(target_logit, sum, k);
      losses[row] = t.loss;
      if constexpr (kFp8) {
        g8[row * vocab + target] =
            static_cast<uint8_t>(ToFp8x2<__NV_E5M2>(RoundF32(t.grad) * k.inv_grad_scale, 0.0f));
      } else {
        out[target] = Round(t.grad);
      }
    }
    if (!valid && thread == 0) losses[row] = NAN;
  }
}

// A block per row.
__global__ void __launch_bounds__(kLossThreads)
    LossKernel(const BF16* __restrict__ logits, const int32_t* __restrict__ targets, int vocab,
               Factors k, float* __restrict__ losses) {
  __shared__ float warp_sums[kLossThreads / kWarp];
  const int64_t row = blockIdx.x;
  logits += row * vocab;
  float sum = 0;
#pragma unroll 4
  for (int i = threadIdx.x * kVec; i < vocab; i += kLossThreads * kVec) {
    float c[8];
    Sigmoids(__ldcs(reinterpret_cast<const uint4*>(logits + i)), k.logit_log2, c);
    sum += SumExp(c, k.cap_log2);
  }
  sum = BlockSum<kLossThreads>(sum, warp_sums);
  if (threadIdx.x != 0) return;
  const int target = targets[row];
  const bool valid = target >= 0 && target < vocab;
  losses[row] = valid ? TargetOf(ToF32(logits[target]), sum, k).loss : NAN;
}

__global__ void __launch_bounds__(kLossThreads)
    SoftcapKernel(const BF16* __restrict__ logits, int64_t vectors, Factors k,
                  float* __restrict__ z) {
  const int64_t i = int64_t{blockIdx.x} * kLossThreads + threadIdx.x;
  if (i >= vectors) return;
  float c[8];
  Sigmoids(reinterpret_cast<const uint4*>(logits)[i], k.logit_log2, c);
#pragma unroll
  for (int j = 0; j < 8; ++j) z[i * kVec + j] = k.softcap * c[j];
}

template <int kVectors, bool kFp8>
void LaunchGrad(BF16* logits, const SoftcapRows& rows, const Factors& factors, float* losses,
                uint8_t* g8, CudaQueue& queue) {
  const auto kernel = LossGradKernel<kVectors, kFp8>;
  const int shared_bytes = static_cast<int>(rows.vocab * int64_t{sizeof(BF16)});
  CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows.rows, queue.processors()));
  kernel<<<blocks, kGradThreads, shared_bytes, queue.stream()>>>(
      logits, rows.targets, rows.rows, static_cast<int>(rows.vocab), factors, losses, g8);
  CheckLaunch("SoftcapLossGrad");
}

template <bool kFp8>
void Grad(BF16* logits, const SoftcapRows& rows, float grad_scale, float* losses, uint8_t* g8,
          CudaQueue& queue) {
  const Factors factors = MakeFactors(rows.softcap, rows.temperature, grad_scale);
  const int64_t vectors = CeilDiv(rows.vocab, kVec * kGradThreads);
  if (vectors <= 2) {
    LaunchGrad<2, kFp8>(logits, rows, factors, losses, g8, queue);
  } else if (vectors <= 7) {  // 50,304 classes
    LaunchGrad<7, kFp8>(logits, rows, factors, losses, g8, queue);
  } else {
    LaunchGrad<8, kFp8>(logits, rows, factors, losses, g8, queue);
  }
}

}  // namespace

void SoftcapLoss(const BF16* logits, const SoftcapRows& rows, float* losses, CudaQueue& queue) {
  const Factors factors = MakeFactors(rows.softcap, rows.temperature, 1.0f);
  LossKernel<<<static_cast<unsigned>(rows.rows), kLossThreads, 0, queue.stream()>>>(
      logits, rows.targets, static_cast<int>(rows.vocab), factors, losses);
  CheckLaunch("SoftcapLoss");
}

void SoftcapLossGrad(BF16* logits, const SoftcapRows& rows, float* losses, CudaQueue& queue) {
  Grad<false>(logits, rows, 1.0f, losses, nullptr, queue);
}

void SoftcapLossGradFp8(const BF16* logits, const SoftcapRows& rows, float grad_scale,
                        float* losses, uint8_t* g8, CudaQueue& queue) {
  // Only the bf16 kernel writes to the logits.
  Grad<true>(const_cast<BF16*>(logits), rows, grad_scale, losses, g8, queue);
}

void Softcap(const BF16* logits, int64_t size, float softcap, float temperature, float* z,
             CudaQueue& queue) {
  const Factors factors = MakeFactors(softcap, temperature, 1.0f);
  const int64_t vectors = size / kVec;
  const auto blocks = static_cast<unsigned>(CeilDiv(vectors, kLossThreads));
  SoftcapKernel<<<blocks, kLossThreads, 0, queue.stream()>>>(logits, vectors, factors, z);
  CheckLaunch("Softcap");
}

}  // namespace kernels::cuda
