// What the tests of the CPU's head share: a problem with its tensors, and its oracle in float64.
#ifndef KERNELS_CPU_HEAD_PROBLEM_H_
#define KERNELS_CPU_HEAD_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "kernels/ops/head.h"
#include "kernels/queue.h"
#include "kernels/testing/testing.h"

namespace kernels {

struct HeadShape {
  int64_t slots, tokens, vocab, dim;
};

// The fields of HeadArgs that are no tensors of the pass.
struct HeadSetting {
  HeadPrecision precision = {};
  bool w_transposed = false;
  SoftCap softcap_kind = SoftCap::kSigmoid;
  float softcap = 30.0f;
  float softcap_shift = 0.0f;
  std::vector<double> loss_weights = {};
};

// modded-nanogpt's record of 2025-09-23.
HeadSetting CustomSizingHead(bool fp8);
// modded-nanogpt's record of 2026-01-18, with the weights of its first steps.
HeadSetting UnifiedHead(bool fp8);
// modded-nanogpt, track 2, record of 2025-04-16.
HeadSetting IsruHead();

struct HeadProblem {
  HeadProblem(HeadShape shape, HeadSetting setting, int64_t leaves);

  // HeadLossGrad of the slots [begin, begin + count), with gradients into the leaves of `into`.
  void Run(int threads, int64_t begin, int64_t count, Tensor into) const;
  void Run(int threads = 1) const { Run(threads, 0, shape.slots, dw); }

  std::vector<double> Losses() const;  // HeadLoss, without loss weights
  std::vector<double> Logits() const;  // HeadLogits of slot 0

  HeadArgs Args(int64_t begin, int64_t count, Tensor workspace) const;
  int64_t WorkspaceFloats(const Queue& queue) const;
  // Where class j, feature i stands in w and in a leaf of dw.
  int64_t Index(int64_t j, int64_t i) const {
    return setting.w_transposed ? i * shape.vocab + j : j * shape.dim + i;
  }

  HeadShape shape;
  HeadSetting setting;
  testing::HostTensor x, w, targets, loss_weights, losses, dx, dw;
};

struct HeadOracle {
  std::vector<double> losses, dx, dw;  // dw: a leaf per slot, laid out as the problem's
};

// From the definition, in double; with the named roundings of the definition or without any.
HeadOracle RunHeadOracle(const HeadProblem& problem, std::vector<double> x, std::vector<double> w,
                         bool round);

// Row t of x is `scale` at feature t and 0 elsewhere, and w holds rows[t][j] for class j and
// feature t: so logits are scale * rows, and dw is scale * dlogits.
HeadProblem HeadOfLogits(double scale, const std::vector<std::vector<double>>& rows,
                         const std::vector<int32_t>& targets, const HeadSetting& setting);

// dw of HeadOfLogits(), [t][j].
std::vector<std::vector<double>> LogitGradients(const HeadProblem& problem);

}  // namespace kernels

#endif  // KERNELS_CPU_HEAD_PROBLEM_H_
