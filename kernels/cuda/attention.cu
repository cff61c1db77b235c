// The attention family: from tensors to the kernels of attention_forward.cu and
// attention_backward.cu.
#include <algorithm>
#include <memory>

#include "kernels/cuda/attention_backward_hopper.h"
#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/attention_forward_hopper.h"
#include "kernels/cuda/attention_variants.h"
#include "kernels/cuda/cuda_ops.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace cuda {

AttentionProblem::AttentionProblem(const AttentionArgs& args)
    : slots(args.q.dim(0)),
      tokens(args.q.dim(1)),
      heads(args.heads),
      head_dim(args.q.dim(2) / args.heads),
      // No query is further from a key, and no block need be larger.
      window_reach(std::min(AttentionWindow(args).reach, args.q.dim(1))),
      boundary_count(args.boundaries.dim(1)),
      scale(args.scale),
      q(args.q.bf16()),
      k(args.k.bf16()),
      v(args.v.bf16()),
      o(args.o.bf16()),
      lse(args.lse.f32()),
      boundaries(args.boundaries.i32()),
      window_block(std::min(AttentionWindow(args).block, args.q.dim(1))) {
  CHECK(head_dim == 64 || head_dim == 128)
      << "Attention: head dim " << head_dim << " is neither 64 nor 128 (q " << args.q << ")";
  CHECK_EQ(tokens % 16, 0) << "Attention: slots are no multiple of 16 tokens (q " << args.q << ")";
  CHECK_GT(args.scale, 0) << "Attention: the largest score must be of the largest q . k";
}

bool AttentionHopperSupports(const AttentionArgs& args) {
  return AttentionHopperSupports(AttentionProblem(args));
}

void AttentionPortable(const AttentionArgs& args, Queue& queue) {
  LaunchAttentionPortable(AttentionProblem(args), Cuda(queue));
}

bool AttentionGradHopperSupports(const AttentionArgs& args) {
  return AttentionGradHopperSupports(AttentionProblem(args));
}

void AttentionGradPortable(const AttentionArgs& forward, Tensor do_, Tensor delta, Tensor dq,
                           Tensor dk, Tensor dv, Queue& queue) {
  const AttentionGradPointers grad = {do_.bf16(), delta.f32(), dq.bf16(), dk.bf16(), dv.bf16()};
  LaunchAttentionGradPortable(AttentionProblem(forward), grad, Cuda(queue));
}

}  // namespace cuda

namespace {

class CudaAttentionOps : public AttentionOps {
 public:
  void Attention(const AttentionArgs& args, Queue& queue) const override {
    cuda::LaunchAttention(cuda::AttentionProblem(args), Cuda(queue));
  }

  void AttentionGrad(const AttentionArgs& forward, const AttentionGradArgs& args,
                     Queue& queue) const override {
    const cuda::AttentionGradPointers grad = {args.do_.bf16(), args.delta.f32(), args.dq.bf16(),
                                              args.dk.bf16(), args.dv.bf16()};
    cuda::LaunchAttentionGrad(cuda::AttentionProblem(forward), grad, Cuda(queue));
  }
};

}  // namespace

std::unique_ptr<AttentionOps> MakeCudaAttentionOps() {
  return std::make_unique<CudaAttentionOps>();
}

}  // namespace kernels
