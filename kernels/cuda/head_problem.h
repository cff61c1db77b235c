// What the tests of the head on CUDA share: settings, problems on both backends, comparisons.
#ifndef KERNELS_CUDA_HEAD_PROBLEM_H_
#define KERNELS_CUDA_HEAD_PROBLEM_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/ops/head.h"

namespace kernels {

// The fields of HeadArgs that are no tensors of the pass.
struct HeadSetting {
  std::string name;
  HeadPrecision precision = {};
  bool w_transposed = false;
  SoftCap kind = SoftCap::kSigmoid;
  float softcap = 30;
  float shift = 0;
  std::vector<double> loss_weights = {};
};

// modded-nanogpt's record of 2025-09-23, and the one of 2026-01-18.
inline const HeadSetting kBf16Head = {.name = "bf16"};
inline const HeadSetting kFp8Head = {
    .name = "fp8",
    .precision = {.fp8 = true,
                  .x_scale = static_cast<float>(std::sqrt(768.0) / 448.0),
                  .w_scale = 1.0f / 512.0f,
                  .grad_scale = 1.0f / 448.0f}};
inline const HeadSetting kUnifiedBf16Head = {.name = "unified bf16",
                                             .w_transposed = true,
                                             .softcap = 23,
                                             .shift = 5,
                                             .loss_weights = {1, 0.5, 0.25}};
inline const HeadSetting kUnifiedFp8Head = {.name = "unified fp8",
                                            .precision = {.fp8 = true,
                                                          .x_scale = 100.0f / 448.0f,
                                                          .w_scale = 1.6f / 448.0f,
                                                          .grad_scale = 0.75f / 448.0f},
                                            .w_transposed = true,
                                            .softcap = 23,
                                            .shift = 5,
                                            .loss_weights = {1, 0.5, 0.25}};
// modded-nanogpt, track 2, record of 2025-04-16; and what else the inverse square root goes with.
inline const HeadSetting kIsruHead = {.name = "isru", .kind = SoftCap::kIsru, .softcap = 15};
inline const HeadSetting kIsruWeightsHead = {
    .name = "isru, weights", .kind = SoftCap::kIsru, .softcap = 15, .loss_weights = {1, 0.5, 0.25}};
inline const HeadSetting kIsruFp8Head = {
    .name = "isru, fp8", .precision = kFp8Head.precision, .kind = SoftCap::kIsru, .softcap = 15};
inline const std::vector<HeadSetting> kHeadSettings = {kBf16Head,       kFp8Head,  kUnifiedBf16Head,
                                                       kUnifiedFp8Head, kIsruHead, kIsruFp8Head,
                                                       kIsruWeightsHead};

struct HeadShape {
  int64_t slots, tokens, vocab, dim;
};

inline std::string Text(const HeadShape& s, const HeadSetting& head) {
  return absl::StrCat("slots ", s.slots, ", T ", s.tokens, ", V ", s.vocab, ", D ", s.dim, ", ",
                      head.name);
}

inline std::vector<int64_t> WeightDims(const HeadShape& s, const HeadSetting& head) {
  if (head.w_transposed) return {s.dim, s.vocab};
  return {s.vocab, s.dim};
}

inline std::vector<int64_t> GradDims(int64_t leaves, const HeadShape& s, const HeadSetting& head) {
  std::vector<int64_t> dims = WeightDims(s, head);
  dims.insert(dims.begin(), leaves);
  return dims;
}

class HeadTest : public CudaTest {
 protected:
  struct Problem {
    HeadShape shape;
    HeadSetting head;
    Twin x, w, targets, loss_weights, losses, dx, dw, workspace;
  };

  Problem Make(HeadShape s, const HeadSetting& head, int64_t leaves, const Twin& x, const Twin& w) {
    const int64_t bytes = std::max(HeadWorkspaceBytes(s.slots, s.tokens, s.vocab, s.dim, cpu()),
                                   HeadWorkspaceBytes(s.slots, s.tokens, s.vocab, s.dim, cuda()));
    const int64_t weights = head.loss_weights.size();
    return {.shape = s,
            .head = head,
            .x = x,
            .w = w,
            .targets = Ints({s.slots, s.tokens}, 0, static_cast<int32_t>(s.vocab)),
            .loss_weights = weights ? Of(DType::kF32, {weights}, head.loss_weights) : Twin(),
            .losses = Output(DType::kF32, {s.slots, s.tokens}),
            .dx = Output(DType::kBF16, {s.slots, s.tokens, s.dim}),
            .dw = Zeros(DType::kF32, GradDims(leaves, s, head)),
            .workspace = Workspace(bytes)};
  }

  // One for all problems of a test that fit.
  Twin Workspace(int64_t bytes) {
    if (workspace_.cpu.empty() || workspace_.cpu.bytes() < bytes) {
      workspace_ = Output(DType::kF32, {bytes / 4 + 1});
    }
    return workspace_;
  }

  Problem Random(HeadShape s, const HeadSetting& head, int64_t leaves) {
    const Twin x = Normal(DType::kBF16, {s.slots, s.tokens, s.dim});
    return Make(s, head, leaves, x, Normal(DType::kBF16, WeightDims(s, head), 0.1));
  }

  // Row t of each slot is `scale` at t and 0 elsewhere, so logit[t, j] = scale * w[j, t] and
  // dw[j, t] = scale * g[t, j]. T <= D.
  Problem SingleEntries(HeadShape s, const HeadSetting& head, int64_t leaves, double scale,
                        const Twin& w) {
    std::vector<double> x(s.slots * s.tokens * s.dim);
    for (int64_t row = 0; row < s.slots * s.tokens; ++row) {
      x[row * s.dim + row % s.tokens] = scale;
    }
    return Make(s, head, leaves, Of(DType::kBF16, {s.slots, s.tokens, s.dim}, x), w);
  }

  // For SingleEntries() of scale 2. In fp8 |w| saturates at 0.875 or 1.6, and logits are of its
  // size; in bf16 shifted logits go from -30 to 30.
  Twin UniformWeight(const HeadShape& s, const HeadSetting& head) {
    const double middle = -head.shift / 2;
    const double half = !head.precision.fp8 ? 15 : head.w_transposed ? 2 : 1;
    if (head.precision.fp8) return Uniform(DType::kBF16, WeightDims(s, head), -half, half);
    return Uniform(DType::kBF16, WeightDims(s, head), middle - half, middle + half);
  }

  static HeadArgs Args(const Problem& p, Side side, int64_t begin = 0, int64_t count = -1) {
    if (count < 0) count = p.shape.slots;
    return {.x = p.x.on(side).Slice(begin, count),
            .w = p.w.on(side),
            .w_transposed = p.head.w_transposed,
            .targets = p.targets.on(side).Slice(begin, count),
            .softcap_kind = p.head.kind,
            .softcap = p.head.softcap,
            .softcap_shift = p.head.shift,
            .loss_weights = Tensor(),
            .precision = p.head.precision,
            .workspace = p.workspace.on(side)};
  }
  static HeadArgs GradArgs(const Problem& p, Side side, int64_t begin = 0, int64_t count = -1) {
    HeadArgs args = Args(p, side, begin, count);
    args.loss_weights = p.loss_weights.on(side);
    return args;
  }

  void Grad(const Problem& p) {
    Both([&](Side side, Queue& queue) {
      HeadLossGrad(GradArgs(p, side), p.losses.on(side), p.dx.on(side), p.dw.on(side), queue);
    });
  }

  // |cuda - cpu| <= relative * |cpu| + absolute, element by element.
  void ExpectEachClose(const Twin& twin, double relative, double absolute,
                       const std::string& what) {
    const std::vector<double> want = OnHost(twin.cpu), got = OnHost(twin.cuda);
    int64_t bad = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::fabs(got[i] - want[i]) <= relative * std::fabs(want[i]) + absolute) continue;
      if (++bad == 1) ADD_FAILURE() << what << ": [" << i << "] " << got[i] << " for " << want[i];
    }
    EXPECT_EQ(bad, 0) << what << " of " << want.size();
  }

  std::vector<uint8_t> Results(const Problem& p) {
    std::vector<uint8_t> all;
    for (const Tensor& tensor : {p.losses.cuda, p.dx.cuda, p.dw.cuda}) {
      const std::vector<uint8_t> bytes = Bytes(tensor);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

 private:
  Twin workspace_;
};

}  // namespace kernels

#endif  // KERNELS_CUDA_HEAD_PROBLEM_H_
