#include "kernels/cpu/gated.h"

#include <memory>

#include "kernels/cpu/cpu_ops.h"

namespace kernels {
namespace {

class CpuGatedOps : public GatedOps {
 public:
  explicit CpuGatedOps(ThreadPool& pool) : pool_(pool) {}

  void GatedQkv(const GatedQkvArgs& args, Queue&) const override { cpu::GatedQkv(args, pool_); }
  void GatedQkvGrad(const GatedQkvArgs& forward, const GatedQkvGradArgs& grad,
                    Queue&) const override {
    cpu::GatedQkvGrad(forward, grad, pool_);
  }
  void GatedSkip(const GatedSkipArgs& args, Queue&) const override { cpu::GatedSkip(args, pool_); }
  void GatedSkipGrad(const GatedSkipArgs& forward, const GatedSkipGradArgs& grad,
                     Queue&) const override {
    cpu::GatedSkipGrad(forward, grad, pool_);
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<GatedOps> MakeCpuGatedOps(ThreadPool& pool) {
  return std::make_unique<CpuGatedOps>(pool);
}

}  // namespace kernels
