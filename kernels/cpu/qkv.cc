#include "kernels/cpu/cpu_ops.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

class CpuQkvOps : public QkvOps {
 public:
  void QkvSplitNormRotary(const QkvArgs&, Queue&) const override { CHECK(false); }
  void QkvSplitNormRotaryGrad(const QkvArgs&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                              Queue&) const override {
    CHECK(false);
  }
  void HeadGate(Tensor, Tensor, Tensor, Tensor, Queue&) const override { CHECK(false); }
  void HeadGateGrad(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Queue&) const override {
    CHECK(false);
  }
};

}  // namespace

std::unique_ptr<QkvOps> MakeCpuQkvOps(ThreadPool&) { return std::make_unique<CpuQkvOps>(); }

}  // namespace kernels
