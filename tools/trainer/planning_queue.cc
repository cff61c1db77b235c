#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/card_memory.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/head.h"
#include "kernels/ops/trace_scope.h"
#include "third_party/absl_compat/check.h"
#include "tools/trainer/cards.h"

namespace tools {
namespace {

using kernels::Queue;
using kernels::Tensor;

[[noreturn]] void NoOps() {
  CHECK(false) << "a planning queue computes nothing";
  std::abort();
}

class PlannedHead : public kernels::HeadWorkspace {
 public:
  // Hopper's kernel reads g8 as it lies. It is part of every build for Hopper.
  explicit PlannedHead(const Card& card) : has_grad_kernel_(card.capability.major == 9) {}
  int64_t HeadWorkspaceBytes(int64_t, int64_t slot_tokens, int64_t vocab,
                             int64_t dim) const override {
    const bool from_rows =
        has_grad_kernel_ &&
        kernels::cuda::Fp8GradGemmFits(kernels::cuda::HeadChunkRows(slot_tokens), vocab, dim);
    return kernels::cuda::LayOutHead(slot_tokens, vocab, dim, !from_rows).bytes;
  }

 private:
  const bool has_grad_kernel_;
};

class PlannedEmbedding : public kernels::EmbeddingWorkspace {
 public:
  int64_t EmbeddingGradWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab,
                                      int64_t dim) const override {
    return kernels::cuda::EmbeddingGradBytes(slots, slot_tokens, vocab, dim);
  }
};

class PlanningQueue : public Queue, kernels::OpListener {
 public:
  explicit PlanningQueue(const Card& card) : head_(card) {
    table_.embedding_workspace = &embedding_;
    table_.head_workspace = &head_;
    SetListener(this);
  }
  const kernels::OpTable& ops() const override { return table_; }
  kernels::DeviceKind device() const override { return kernels::DeviceKind::kCuda; }
  void Synchronize() override { NoOps(); }
  void Upload(const void*, Tensor) override { NoOps(); }
  void Download(Tensor, void*) override { NoOps(); }
  std::unique_ptr<kernels::Readback> StartDownload(Tensor) override { NoOps(); }
  std::unique_ptr<kernels::Recording> Record(const std::function<void()>&) override { NoOps(); }
  int64_t MarkTime() override { NoOps(); }
  std::vector<double> TakeTimes() override { NoOps(); }

 private:
  void Begin(const char*, kernels::OpCost) override { NoOps(); }
  void End() override { NoOps(); }
  double AttentionPairs(const kernels::AttentionArgs&) const override { NoOps(); }

  const PlannedEmbedding embedding_;
  const PlannedHead head_;
  kernels::OpTable table_;
};

}  // namespace

std::unique_ptr<Queue> MakePlanningQueue(const Card& card) {
  return std::make_unique<PlanningQueue>(card);
}

}  // namespace tools
