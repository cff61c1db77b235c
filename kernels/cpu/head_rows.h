// Rows of the CPU's head: conversions, and a tile's logits to losses and gradients.
#ifndef KERNELS_CPU_HEAD_ROWS_H_
#define KERNELS_CPU_HEAD_ROWS_H_

#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/ops/head.h"

namespace kernels {

// The soft cap of HeadArgs.
struct HeadCurve {
  SoftCap kind;
  float cap;
  float temperature;
  float shift;
};

// What all rows of a call have in common.
struct HeadRow {
  int64_t vocab;
  HeadCurve curve;
  bool grad;
  bool fp8;
  float inv_grad_scale;  // of the e5m2 gradient; read if grad and fp8
};

// The terms of one row's loss: w_k (logsumexp(z) - z[target_k]). Targets may repeat.
struct HeadTerms {
  int count;
  int32_t target[kMaxLossWeights];
  float weight[kMaxLossWeights];
};

void WidenHead(const BF16* from, int64_t size, float* to);
// To the values of e4m3, saturating.
void QuantiseHead(const BF16* from, float inv_scale, int64_t size, float* to);
void NarrowHead(const float* from, int64_t size, BF16* to);

// z of a row of logits, in place.
void CapHeadRow(int64_t vocab, const HeadCurve& curve, float* row);
// The loss of one row of logits, which become the gradient if shared.grad. `z` is scratch [vocab].
float HeadLossRow(const HeadRow& shared, const HeadTerms& terms, float* row, float* z);

}  // namespace kernels

#endif  // KERNELS_CPU_HEAD_ROWS_H_
