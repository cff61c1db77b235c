#include "kernels/cpu/head_problem.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/cpu_backend.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;
using testing::RandomTokens;

constexpr double kTemperature = 7.5;

std::vector<int64_t> WeightDims(const HeadShape& s, bool transposed) {
  if (transposed) return {s.dim, s.vocab};
  return {s.vocab, s.dim};
}

std::vector<int64_t> GradDims(int64_t leaves, const HeadShape& s, bool transposed) {
  std::vector<int64_t> dims = WeightDims(s, transposed);
  dims.insert(dims.begin(), leaves);
  return dims;
}

double LogSumExp(const std::vector<double>& z) {
  double sum = 0;
  for (double value : z) sum += std::exp(value);
  return std::log(sum);
}

// One row from its logits: the loss, and dlogits over the logits.
double OracleRow(const HeadSetting& setting, const std::vector<double>& weights,
                 const std::vector<int64_t>& targets, std::vector<double>& logits) {
  std::vector<double> z, slope;
  for (double logit : logits) {
    if (setting.softcap_kind == SoftCap::kIsru) {
      const double x = logit / setting.softcap;
      z.push_back(setting.softcap * x / std::sqrt(1 + x * x));
      slope.push_back(std::pow(1 + x * x, -1.5));
      continue;
    }
    const double c = 1 / (1 + std::exp(-(logit + setting.softcap_shift) / kTemperature));
    z.push_back(setting.softcap * c);
    slope.push_back(setting.softcap / kTemperature * c * (1 - c));
  }
  const double log_sum = LogSumExp(z);
  double loss = 0;
  std::fill(logits.begin(), logits.end(), 0.0);
  for (size_t k = 0; k < targets.size(); ++k) {
    loss += weights[k] * (log_sum - z[targets[k]]);
    for (size_t j = 0; j < z.size(); ++j) {
      const double p = std::exp(z[j] - log_sum);
      logits[j] += weights[k] * (p - (static_cast<int64_t>(j) == targets[k])) * slope[j];
    }
  }
  return loss;
}

}  // namespace

HeadSetting CustomSizingHead(bool fp8) {
  HeadSetting setting;
  if (fp8) {
    setting.precision = {.fp8 = true,
                         .x_scale = static_cast<float>(std::sqrt(768.0) / 448.0),
                         .w_scale = 1.0f / 512.0f,
                         .grad_scale = 1.0f / 448.0f};
  }
  return setting;
}

HeadSetting UnifiedHead(bool fp8) {
  HeadSetting setting = {.w_transposed = true,
                         .softcap = 23.0f,
                         .softcap_shift = 5.0f,
                         .loss_weights = {1, 0.5, 0.25}};
  if (fp8) {
    setting.precision = {.fp8 = true,
                         .x_scale = 100.0f / 448.0f,
                         .w_scale = 1.6f / 448.0f,
                         .grad_scale = 0.75f / 448.0f};
  }
  return setting;
}

HeadSetting IsruHead() { return {.softcap_kind = SoftCap::kIsru, .softcap = 15.0f}; }

HeadProblem::HeadProblem(HeadShape s, HeadSetting with, int64_t leaves)
    : shape(s),
      setting(std::move(with)),
      x(RandomTensor(DType::kBF16, {s.slots, s.tokens, s.dim}, 1)),
      w(RandomTensor(DType::kBF16, WeightDims(s, setting.w_transposed), 2, 0.1)),
      targets(RandomTokens({s.slots, s.tokens}, s.vocab, 3)),
      loss_weights(DType::kF32,
                   {std::max<int64_t>(1, static_cast<int64_t>(setting.loss_weights.size()))}),
      losses(DType::kF32, {s.slots, s.tokens}),
      dx(DType::kBF16, {s.slots, s.tokens, s.dim}),
      dw(DType::kF32, GradDims(leaves, s, setting.w_transposed)) {
  if (!setting.loss_weights.empty()) loss_weights.Set(setting.loss_weights);
}

HeadArgs HeadProblem::Args(int64_t begin, int64_t count, Tensor workspace) const {
  HeadArgs args;
  args.x = x.get().Slice(begin, count);
  args.w = w;
  args.w_transposed = setting.w_transposed;
  args.targets = targets.get().Slice(begin, count);
  args.softcap_kind = setting.softcap_kind;
  args.softcap = setting.softcap;
  args.softcap_temperature = static_cast<float>(kTemperature);
  args.softcap_shift = setting.softcap_shift;
  args.precision = setting.precision;
  args.workspace = workspace;
  return args;
}

int64_t HeadProblem::WorkspaceFloats(const Queue& queue) const {
  return HeadWorkspaceBytes(shape.slots, shape.tokens, shape.vocab, shape.dim, queue) / 4;
}

void HeadProblem::Run(int threads, int64_t begin, int64_t count, Tensor into) const {
  const auto queue = MakeCpuQueue(threads);
  const HostTensor workspace(DType::kF32, {WorkspaceFloats(*queue)});
  HeadArgs args = Args(begin, count, workspace);
  if (!setting.loss_weights.empty()) args.loss_weights = loss_weights;
  HeadLossGrad(args, losses.get().Slice(begin, count), dx.get().Slice(begin, count), into, *queue);
  queue->Synchronize();
}

std::vector<double> HeadProblem::Losses() const {
  const auto queue = MakeCpuQueue(1);
  const HostTensor workspace(DType::kF32, {WorkspaceFloats(*queue)});
  const HostTensor out(DType::kF32, {shape.slots, shape.tokens});
  HeadLoss(Args(0, shape.slots, workspace), out, *queue);
  queue->Synchronize();
  return out.ToDouble();
}

std::vector<double> HeadProblem::Logits() const {
  const auto queue = MakeCpuQueue(1);
  const HostTensor workspace(DType::kF32, {WorkspaceFloats(*queue)});
  const HostTensor logits(DType::kF32, {1, shape.tokens, shape.vocab});
  HeadLogits(Args(0, 1, workspace), logits, *queue);
  queue->Synchronize();
  return logits.ToDouble();
}

HeadOracle RunHeadOracle(const HeadProblem& problem, std::vector<double> x, std::vector<double> w,
                         bool round) {
  const auto [slots, tokens, vocab, dim] = problem.shape;
  const HeadPrecision& precision = problem.setting.precision;
  const std::vector<double> all_targets = problem.targets.ToDouble();
  std::vector<double> weights = problem.setting.loss_weights;
  if (weights.empty()) weights = {1};
  if (precision.fp8) {
    for (double& v : x) v = RoundToE4M3(static_cast<float>(v) * (1 / precision.x_scale));
    for (double& v : w) v = RoundToE4M3(static_cast<float>(v) * (1 / precision.w_scale));
  }
  const double xs = precision.fp8 ? precision.x_scale : 1;
  const double ws = precision.fp8 ? precision.w_scale : 1;
  const double gs = precision.fp8 ? precision.grad_scale : 1;
  HeadOracle out{std::vector<double>(slots * tokens), std::vector<double>(x.size()),
                 std::vector<double>(slots * vocab * dim)};
  for (int64_t row = 0; row < slots * tokens; ++row) {
    std::vector<double> g(vocab);
    for (int64_t j = 0; j < vocab; ++j) {
      for (int64_t i = 0; i < dim; ++i) g[j] += xs * ws * x[row * dim + i] * w[problem.Index(j, i)];
      if (round) g[j] = RoundToBF16(static_cast<float>(g[j]));
    }
    std::vector<int64_t> targets;
    const int64_t left = tokens - row % tokens;
    for (int64_t k = 0; k < left && k < static_cast<int64_t>(weights.size()); ++k) {
      targets.push_back(static_cast<int64_t>(all_targets[row + k]));
    }
    out.losses[row] = OracleRow(problem.setting, weights, targets, g);
    for (int64_t j = 0; j < vocab; ++j) {
      if (round) g[j] = RoundToBF16(static_cast<float>(g[j]));
      if (precision.fp8) g[j] = RoundToE5M2(static_cast<float>(g[j]) * (1 / precision.grad_scale));
      for (int64_t i = 0; i < dim; ++i) {
        const int64_t at = problem.Index(j, i);
        out.dx[row * dim + i] += gs * ws * g[j] * w[at];
        out.dw[row / tokens * vocab * dim + at] += gs * xs * g[j] * x[row * dim + i];
      }
    }
  }
  return out;
}

HeadProblem HeadOfLogits(double scale, const std::vector<std::vector<double>>& rows,
                         const std::vector<int32_t>& targets, const HeadSetting& setting) {
  constexpr int64_t kDim = 8;
  const int64_t tokens = rows.size(), vocab = rows[0].size();
  HeadProblem problem({1, tokens, vocab, kDim}, setting, 1);
  std::vector<double> x(tokens * kDim), w(vocab * kDim);
  for (int64_t t = 0; t < tokens; ++t) {
    x[t * kDim + t] = scale;
    for (int64_t j = 0; j < vocab; ++j) w[problem.Index(j, t)] = rows[t][j];
    problem.targets.get().i32()[t] = targets[t];
  }
  problem.x.Set(x);
  problem.w.Set(w);
  return problem;
}

std::vector<std::vector<double>> LogitGradients(const HeadProblem& problem) {
  const std::vector<double> dw = problem.dw.ToDouble();
  std::vector<std::vector<double>> rows(problem.shape.tokens);
  for (int64_t t = 0; t < problem.shape.tokens; ++t) {
    for (int64_t j = 0; j < problem.shape.vocab; ++j) rows[t].push_back(dw[problem.Index(j, t)]);
  }
  return rows;
}

}  // namespace kernels
