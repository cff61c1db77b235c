// What one row of the head's logits tile needs to become a loss and a gradient.
#ifndef KERNELS_CPU_HEAD_ROWS_H_
#define KERNELS_CPU_HEAD_ROWS_H_

#include <cstdint>

namespace kernels {

struct HeadRow {
  int64_t vocab;
  float softcap;
  float temperature;
  bool grad;
  bool fp8;
  float inv_grad_scale;  // of the e5m2 gradient; read if grad and fp8
};

}  // namespace kernels

#endif  // KERNELS_CPU_HEAD_ROWS_H_
