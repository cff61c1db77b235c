// The ops on activations.
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gated.h"
#include "kernels/ops/head.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/qkv.h"
#include "kernels/trace/op_cases.h"

namespace kernels {
namespace {

AttentionArgs MakeAttention(Cases& c, int64_t queries) {
  const AttentionArgs args = {.q = c.Bf16({kSlots, queries, kDim}),
                              .k = c.Stream(),
                              .v = c.Stream(),
                              .boundaries = c.Zeros(DType::kI32, {kSlots, 3}),
                              .heads = kHeads,
                              .window_tokens = 4,
                              .scale = 0.1f,
                              .o = c.Bf16({kSlots, queries, kDim}),
                              .lse = c.F32({kSlots, kHeads, queries})};
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    args.boundaries.i32()[3 * slot + 1] = static_cast<int32_t>(7 + slot);
    args.boundaries.i32()[3 * slot + 2] = kTokens;
  }
  return args;
}

void AddAttention(Cases& c) {
  const AttentionArgs args = MakeAttention(c, kTokens);
  const double pairs = AttentionPairs(kTokens, AttentionWindow(args));
  c.Add("Attention", AttentionCost(args, pairs), Attention, &OpTable::attention,
        &AttentionOps::Attention, args);

  const AttentionArgs forward = MakeAttention(c, kTokens);
  const AttentionGradArgs grad = {.do_ = c.Stream(),
                                  .delta = c.F32({kSlots, kHeads, kTokens}),
                                  .dq = c.Stream(),
                                  .dk = c.Stream(),
                                  .dv = c.Stream()};
  c.Add("AttentionGrad", AttentionGradCost(forward, pairs), AttentionGrad, &OpTable::attention,
        &AttentionOps::AttentionGrad, forward, grad);

  const AttentionArgs cached = MakeAttention(c, 3);
  c.Add("CachedAttention", CachedAttentionCost(cached, 10), CachedAttention, &OpTable::attention,
        &AttentionOps::CachedAttention, cached, 10);
}

EmbedSmearNormArgs MakeEmbedding(Cases& c) {
  return {.tokens = c.Tokens(),
          .table = c.Bf16({kVocab, kDim}),
          .smear_w = c.Bf16({1, kGate}),
          .scalars = c.Scalars(),
          .smear_lambda = 2,
          .x0 = c.Stream(),
          .inv_rms = c.PositiveF32(kRows)};
}

void AddEmbedding(Cases& c) {
  const auto family = &OpTable::embedding;
  const EmbedSmearNormArgs args = MakeEmbedding(c);
  c.Add("EmbedSmearNorm", EmbedSmearNormCost(args), EmbedSmearNorm, family,
        &EmbeddingOps::EmbedSmearNorm, args);
  const EmbedSmearNormArgs forward = MakeEmbedding(c);
  const Tensor dx0 = c.Stream(), de = c.Stream();
  const Tensor dsmear_w = c.F32({1, kGate}), dscalars = c.F32({1, 5});
  c.Add("EmbedSmearNormGrad", EmbedSmearNormGradCost(forward, dx0, dsmear_w, dscalars),
        EmbedSmearNormGrad, family, &EmbeddingOps::EmbedSmearNormGrad, forward, dx0, de, dsmear_w,
        dscalars);
  const Tensor tokens = c.Tokens(), rows = c.Stream(), dtable = c.F32({1, kVocab, kDim});
  const Tensor workspace =
      c.Workspace(EmbeddingGradWorkspaceBytes(kSlots, kTokens, kVocab, kDim, *MakeCpuQueue(1)));
  c.Add("EmbeddingGrad", EmbeddingGradCost(tokens, rows, dtable), EmbeddingGrad, family,
        &EmbeddingOps::EmbeddingGrad, tokens, rows, dtable, workspace);
  for (RowMove move : {RowMove::kGather, RowMove::kScatter, RowMove::kAdd}) {
    const Tensor moved = c.Zeros(DType::kI32, {2}), table = c.F32({9, 3}), packed = c.F32({2, 3});
    moved.i32()[0] = 7;
    moved.i32()[1] = 1;
    c.Add("MoveRows", MoveRowsCost(move, moved, table, packed), MoveRows, family,
          &EmbeddingOps::MoveRows, move, moved, table, packed);
    c.last().name = Name(move);
  }
}

GatedQkvArgs MakeGatedQkv(Cases& c) {
  return {.qkv = c.Bf16({kSlots, kTokens, 3 * kDim}),
          .heads = kHeads,
          .cos = c.Bf16({kTokens, kDim / kHeads / 2}),
          .sin = c.Bf16({kTokens, kDim / kHeads / 2}),
          .tokens = c.Tokens(),
          .value_table = c.Bf16({kVocab, kDim}),
          .u = c.Stream(),
          .value_gate = c.Bf16({kHeads, kGate}),
          .q = c.Stream(),
          .k = c.Stream(),
          .v = c.Stream(),
          .inv_rms = c.PositiveF32({kSlots, kTokens, 2 * kHeads})};
}

GatedSkipArgs MakeGatedSkip(Cases& c) {
  return {.x = c.Stream(),
          .x0 = c.Stream(),
          .saved = c.Stream(),
          .gate = c.Bf16({1, kGate}),
          .scalars = c.Scalars(),
          .skip = 3,
          .y = c.Stream()};
}

void AddGated(Cases& c) {
  const auto family = &OpTable::gated;
  const GatedQkvArgs qkv = MakeGatedQkv(c);
  c.Add("GatedQkv", GatedQkvCost(qkv), GatedQkv, family, &GatedOps::GatedQkv, qkv);
  const GatedQkvArgs qkv_forward = MakeGatedQkv(c);
  const GatedQkvGradArgs qkv_grad = {.dq = c.Stream(),
                                     .dk = c.Stream(),
                                     .dv = c.Stream(),
                                     .dqkv = c.Bf16({kSlots, kTokens, 3 * kDim}),
                                     .dvalue_rows = c.Stream(),
                                     .du_head = c.F32({kSlots, kTokens, kGate}),
                                     .dvalue_gate = c.F32({1, kHeads * kGate})};
  c.Add("GatedQkvGrad", GatedQkvGradCost(qkv_forward, qkv_grad), GatedQkvGrad, family,
        &GatedOps::GatedQkvGrad, qkv_forward, qkv_grad);
  const GatedSkipArgs skip = MakeGatedSkip(c);
  c.Add("GatedSkip", GatedSkipCost(skip), GatedSkip, family, &GatedOps::GatedSkip, skip);
  const GatedSkipArgs skip_forward = MakeGatedSkip(c);
  const GatedSkipGradArgs skip_grad = {.dy = c.Stream(),
                                       .dsaved = c.Stream(),
                                       .dx0 = c.Stream(),
                                       .dgate = c.F32({1, kGate}),
                                       .dscalars = c.F32({1, 5})};
  c.Add("GatedSkipGrad", GatedSkipGradCost(skip_forward, skip_grad), GatedSkipGrad, family,
        &GatedOps::GatedSkipGrad, skip_forward, skip_grad);
}

HeadArgs MakeHead(Cases& c, Dims dims) {
  HeadArgs args;
  args.x = c.Bf16(std::move(dims));
  args.w = c.Bf16({kVocab, kDim});
  args.targets = c.Tokens();
  args.precision = {.fp8 = true, .x_scale = 0.1f, .w_scale = 0.2f, .grad_scale = 1e-3f};
  args.workspace = c.Workspace(HeadWorkspaceBytes(kSlots, kTokens, kVocab, kDim, *MakeCpuQueue(1)));
  return args;
}

void AddHead(Cases& c) {
  const auto family = &OpTable::head;
  const HeadArgs loss = MakeHead(c, kStream);
  const Tensor losses = c.F32(kRows);
  c.Add("HeadLoss", HeadLossCost(loss, losses), HeadLoss, family, &HeadOps::HeadLoss, loss, losses);
  const HeadArgs grad = MakeHead(c, kStream);
  const Tensor grad_losses = c.F32(kRows), dx = c.Stream(), dw = c.F32({1, kVocab, kDim});
  c.Add("HeadLossGrad", HeadLossGradCost(grad, grad_losses, dw), HeadLossGrad, family,
        &HeadOps::HeadLossGrad, grad, grad_losses, dx, dw);
  const HeadArgs logits_args = MakeHead(c, {1, 1, kDim});
  const Tensor logits = c.F32({1, 1, kVocab});
  c.Add("HeadLogits", HeadLogitsCost(logits_args, logits), HeadLogits, family, &HeadOps::HeadLogits,
        logits_args, logits);
}

void AddNorm(Cases& c) {
  const auto family = &OpTable::norm;
  const Tensor x = c.Stream(), y = c.Stream(), inv_rms = c.F32(kRows);
  c.Add("RmsNorm", RmsNormCost(x, inv_rms), RmsNorm, family, &NormOps::RmsNorm, x, y, inv_rms);
  const RmsNormGradArgs grad = {.dy = c.Stream(),
                                .x = c.Stream(),
                                .inv_rms = c.PositiveF32(kRows),
                                .residual = c.Stream(),
                                .dx = c.Stream()};
  c.Add("RmsNormGrad", RmsNormGradCost(grad), RmsNormGrad, family, &NormOps::RmsNormGrad, grad);
  const MixScalars which = {.lambda_x = 1, .lambda_x0 = 2, .skip = 3};
  const MixNormArgs mix = {.x = c.Stream(),
                           .x0 = c.Stream(),
                           .saved = c.Stream(),
                           .scalars = c.Scalars(),
                           .which = which,
                           .mixed = c.Stream(),
                           .u = c.Stream(),
                           .inv_rms = c.F32(kRows)};
  c.Add("MixNorm", MixNormCost(mix), MixNorm, family, &NormOps::MixNorm, mix);
  const MixNormGradArgs mix_grad = {.dresidual = c.Stream(),
                                    .du = c.Stream(),
                                    .du_head = c.F32({kSlots, kTokens, kGate}),
                                    .inv_rms = c.PositiveF32(kRows),
                                    .x = c.Stream(),
                                    .x0 = c.Stream(),
                                    .saved = c.Stream(),
                                    .scalars = c.Scalars(),
                                    .which = which,
                                    .dx_extra = c.Stream(),
                                    .dx = c.Stream(),
                                    .dsaved = c.Stream(),
                                    .dx0 = c.Stream(),
                                    .dscalars = c.F32({1, 5})};
  c.Add("MixNormGrad", MixNormGradCost(mix_grad), MixNormGrad, family, &NormOps::MixNormGrad,
        mix_grad);
}

QkvArgs MakeQkv(Cases& c) {
  return {.qkv = c.Bf16({kSlots, kTokens, 3 * kDim}),
          .heads = kHeads,
          .cos = c.Bf16({kTokens, kDim / kHeads / 2}),
          .sin = c.Bf16({kTokens, kDim / kHeads / 2}),
          .tokens = c.Tokens(),
          .value_table = c.Bf16({kVocab, kDim}),
          .scalars = c.Scalars(),
          .value_lambda = 2,
          .q = c.Stream(),
          .k = c.Stream(),
          .v = c.Stream(),
          .inv_rms = c.PositiveF32({kSlots, kTokens, 2 * kHeads})};
}

void AddQkv(Cases& c) {
  const auto family = &OpTable::qkv;
  const QkvArgs args = MakeQkv(c);
  c.Add("QkvSplitNormRotary", QkvSplitNormRotaryCost(args), QkvSplitNormRotary, family,
        &QkvOps::QkvSplitNormRotary, args);
  const QkvArgs forward = MakeQkv(c);
  const QkvGradArgs grad = {.dq = c.Stream(),
                            .dk = c.Stream(),
                            .dv = c.Stream(),
                            .dqkv = c.Bf16({kSlots, kTokens, 3 * kDim}),
                            .dvalue_rows = c.Stream(),
                            .dscalars = c.F32({1, 5})};
  c.Add("QkvSplitNormRotaryGrad", QkvSplitNormRotaryGradCost(forward, grad), QkvSplitNormRotaryGrad,
        family, &QkvOps::QkvSplitNormRotaryGrad, forward, grad);
  const Tensor o = c.Stream(), u = c.Stream(), gate_w = c.Bf16({kHeads, kGate}), y = c.Stream();
  c.Add("HeadGate", HeadGateCost(o, gate_w), HeadGate, family, &QkvOps::HeadGate, o, u, gate_w, y);
  const HeadGateGradArgs gate = {.dy = c.Stream(),
                                 .o = c.Stream(),
                                 .u = c.Stream(),
                                 .gate_w = c.Bf16({kHeads, kGate}),
                                 .do_ = c.Stream(),
                                 .du_head = c.F32({kSlots, kTokens, kGate}),
                                 .dgate_w = c.F32({1, kHeads * kGate})};
  c.Add("HeadGateGrad", HeadGateGradCost(gate), HeadGateGrad, family, &QkvOps::HeadGateGrad, gate);
}

}  // namespace

std::vector<OpCase> AllOps() {
  Cases cases;
  AddAttention(cases);
  AddEmbedding(cases);
  AddGated(cases);
  AddHead(cases);
  AddNorm(cases);
  AddQkv(cases);
  AddOpsOnWeights(cases);
  return cases.Take();
}

}  // namespace kernels
