#include "tools/trainer/comm_plan_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm/slot_tree.h"
#include "model/gpt.h"
#include "model/parameters.h"
#include "optim/step_layout.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/comm_plan.h"
#include "tools/trainer/comm_times.h"
#include "tools/trainer/step_phases.h"

namespace tools {
namespace {

// What the busiest rank computes.
struct Work {
  double backward_s_per_token = 0;
  std::vector<BufferWork> buffers;  // of the layout
  bool tied = false;                // only the tied steps were measured
  std::string source;               // for people
};

absl::Status Bad(absl::string_view flag, absl::string_view value, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", why));
}

absl::StatusOr<LinkModel> LinkOf(const CommPlanFlags& flags) {
  LinkModel link{
      .shape = LinkShape::kRing, .gbps = flags.link_gbps, .latency_us = flags.latency_us};
  if (flags.ranks < 1 || flags.ranks > 65536) {
    return Bad("ranks", absl::StrCat(flags.ranks), "must be from 1 to 65536");
  }
  if (!(link.gbps > 0)) {
    return Bad("link_gbps", absl::StrCat(link.gbps),
               "must be positive: Gbit/s of a rank's link in one direction, such as 400, or inf");
  }
  if (!(link.latency_us >= 0) || std::isinf(link.latency_us)) {
    return Bad("latency_us", absl::StrCat(link.latency_us), "must be 0 or more");
  }
  if (flags.link_shape == "tree") {
    link.shape = LinkShape::kTree;
  } else if (flags.link_shape != "ring") {
    return Bad("link_shape", flags.link_shape, "must be ring or tree");
  }
  return link;
}

// The recipe's slots, or the next multiple of them that so many ranks can share.
absl::StatusOr<int> SlotsFor(const TrainConfig& config, int ranks) {
  const int recipe = config.recipe.data.slots;
  const int slots = (std::max(ranks, recipe) + recipe - 1) / recipe * recipe;
  for (const sched::BatchStage& stage : config.recipe.schedules.batch.stages) {
    if (stage.tokens % (int64_t{16} * slots) == 0) continue;
    return Bad("ranks", absl::StrCat(ranks),
               absl::StrCat("needs ", slots, " slots, and a batch of ", stage.tokens,
                            " tokens does not divide into as many of a multiple of 16 tokens; give "
                            "--batch_tokens, a multiple of ",
                            16 * slots));
  }
  return slots;
}

absl::StatusOr<Work> MeasuredWork(const TrainConfig& config, const optim::StepLayout& layout,
                                  int ranks, const std::string& path) {
  ABSL_ASSIGN_OR_RETURN(const StepPhases phases, ReadStepPhases(path));
  const Recipe& recipe = config.recipe;
  const RunFacts& facts = phases.facts;
  if (facts.record != recipe.record || facts.preset != recipe.preset) {
    return Bad("phases", path,
               absl::StrCat("is of ", facts.record, ", ", facts.preset, "; this is ", recipe.record,
                            ", ", recipe.preset));
  }
  Work work;
  work.backward_s_per_token = phases.backward_ms_per_token / 1e3;
  work.source =
      absl::StrCat("computing as in ", path, " (", facts.ranks, " ranks on ", facts.device, ")");
  for (int i = 0; i < layout.buffers(); ++i) {
    const optim::BufferLayout& buffer = layout.buffer(i);
    BufferWork& times = work.buffers.emplace_back();
    const auto found =
        std::find_if(phases.buffers.begin(), phases.buffers.end(),
                     [&](const BufferPhases& row) { return row.label == buffer.label; });
    if (found != phases.buffers.end()) {
      // Copies are of the whole buffer, the update is of a rank's chunk.
      const double share =
          static_cast<double>(buffer.Chunk(ranks)) / static_cast<double>(buffer.Chunk(facts.ranks));
      times = {.pack_s = found->pack_ms / 1e3,
               .update_s = share * found->update_ms / 1e3,
               .unpack_s = found->unpack_ms / 1e3};
    } else if (layout.tied.has_value() && i == layout.tied->source) {
      work.tied = true;
    } else {
      return Bad("phases", path,
                 absl::StrCat("has no times of ", buffer.label,
                              ", which none of its steps updated; trace more of them "
                              "(--trace_steps)"));
    }
  }
  return work;
}

// Five iterations of two products with an m x n matrix, n >= m, and one of m x m.
double OrthogonalizerFlops(const kernels::ParameterSpec& spec) {
  const auto m = static_cast<double>(std::min(spec.rows, spec.cols));
  const auto n = static_cast<double>(std::max(spec.rows, spec.cols));
  return static_cast<double>(spec.matrices) * 5 * (4 * m * m * n + 2 * m * m * m);
}

Work WorkAtRate(const TrainConfig& config, const optim::StepLayout& layout,
                const std::vector<kernels::ParameterSpec>& specs, int ranks, double tflops) {
  Work work;
  const double rate = tflops * 1e12;
  work.backward_s_per_token =
      static_cast<double>(model::TrainingFlopsPerToken(config.recipe.model)) / rate;
  work.source = absl::StrCat("computing at ", tflops,
                             " TFLOP/s (products only: attention, norms, Adam and copies cost "
                             "nothing)");
  for (int i = 0; i < layout.buffers(); ++i) {
    const optim::BufferLayout& buffer = layout.buffer(i);
    double flops = 0;
    if (i >= static_cast<int>(layout.adam.size())) {
      for (const int member : buffer.members) flops += OrthogonalizerFlops(specs[member]);
    }
    const double share =
        static_cast<double>(buffer.Chunk(ranks)) / static_cast<double>(buffer.size());
    work.buffers.push_back({.pack_s = 0, .update_s = share * flops / rate, .unpack_s = 0});
  }
  return work;
}

// Mean over the steps of one period, of the last cadence.
struct MeanStep {
  CommTimes comm;
  double compute_ms = 0, exposed_ms = 0, link_ms = 0;
};

MeanStep Predict(const optim::StepLayout& layout, const Work& work, int ranks, int slots,
                 const LinkModel& link) {
  const optim::Stretch last = optim::StretchesOf(layout).back();
  const int64_t loss_bytes = int64_t{4} * ranks * ((slots + ranks - 1) / ranks + 2);
  MeanStep mean;
  const double share = 1.0 / static_cast<double>(last.period);
  for (int64_t step = last.begin; step < last.begin + last.period; ++step) {
    const PredictedStep predicted = PredictStep(layout, optim::KindOfStep(layout, step, work.tied),
                                                ranks, work.buffers, loss_bytes, link);
    mean.compute_ms += share * 1e3 * predicted.compute_s;
    mean.exposed_ms += share * 1e3 * predicted.exposed_s();
    for (const PredictedCollective& c : predicted.collectives) {
      mean.link_ms += share * 1e3 * c.link_s;
      CollectiveTimes& row = RowFor(c.collective, c.label, &mean.comm);
      row.calls += share;
      row.bytes += share * static_cast<double>(c.bytes);
      row.total_ms += share * 1e3 * c.total_s;
      row.exposed_ms += share * 1e3 * c.exposed_s;
    }
  }
  return mean;
}

bool HasSparseRows(const TrainConfig& config) {
  const std::vector<optim::ParamRow>& table = config.recipe.optimizer.table;
  return std::any_of(table.begin(), table.end(),
                     [](const optim::ParamRow& row) { return row.sparse_rows; });
}

std::string StepLines(const TrainConfig& config, const Work& work, const MeanStep& mean, int ranks,
                      int slots) {
  std::string text;
  const int most = comm::SlotsOfRank(slots, ranks, 0).count();
  const int least = comm::SlotsOfRank(slots, ranks, ranks - 1).count();
  for (const int64_t recipe_slot : config.slot_sizes()) {
    const double slot_tokens =
        static_cast<double>(recipe_slot * config.recipe.data.slots) / static_cast<double>(slots);
    const double slot_ms = 1e3 * work.backward_s_per_token * slot_tokens;
    const double step_ms = most * slot_ms + mean.compute_ms + mean.exposed_ms;
    absl::StrAppendFormat(
        &text, "step of %d tokens: backward %.3f ms, optimizer %.3f ms, exposed %.3f ms (%.1f %%)",
        recipe_slot * config.recipe.data.slots, most * slot_ms, mean.compute_ms, mean.exposed_ms,
        100 * mean.exposed_ms / std::max(step_ms, 1e-12));
    if (most > least) {
      absl::StrAppendFormat(&text, "; ranks with %d slots wait %.3f ms for those with %d", least,
                            (most - least) * slot_ms, most);
    }
    text += "\n";
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> CommPlanText(const TrainConfig& config, const CommPlanFlags& flags) {
  ABSL_ASSIGN_OR_RETURN(const LinkModel link, LinkOf(flags));
  if (config.deterministic) {
    return absl::InvalidArgumentError(
        "--ranks with --deterministic: the collectives along the slot tree are not simulated; "
        "leave one of them out");
  }
  if (flags.phases.empty() == (flags.tflops == 0)) {
    return absl::InvalidArgumentError(
        "--ranks: what is computed beside the collectives? Give either --phases=FILE, a file that "
        "--trace wrote, or --tflops=RATE");
  }
  if (!(flags.tflops >= 0)) return Bad("tflops", absl::StrCat(flags.tflops), "must be positive");
  const int ranks = static_cast<int>(flags.ranks);
  ABSL_ASSIGN_OR_RETURN(const int slots, SlotsFor(config, ranks));
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(config.recipe.model);
  ABSL_ASSIGN_OR_RETURN(const optim::StepLayout layout,
                        optim::PlanStep(optim::WithoutSparseRows(config.recipe.optimizer), specs));
  Work work;
  if (flags.phases.empty()) {
    work = WorkAtRate(config, layout, specs, ranks, flags.tflops);
  } else {
    ABSL_ASSIGN_OR_RETURN(work, MeasuredWork(config, layout, ranks, flags.phases));
  }
  const MeanStep mean = Predict(layout, work, ranks, slots, link);
  std::string text = absl::StrCat(
      "communication on ", ranks, " ranks, predicted: ", flags.link_shape, ", ", link.gbps,
      " Gbit/s a rank and direction, ", link.latency_us, " us a message; ", work.source, "\n");
  if (slots != config.recipe.data.slots) {
    absl::StrAppend(&text, "as with --slots=", slots, ": ", config.recipe.data.slots,
                    " slots are too few for so many ranks\n");
  }
  if (work.tied) absl::StrAppend(&text, "steps in which head and embedding are tied\n");
  if (HasSparseRows(config)) {
    absl::StrAppend(&text,
                    "tables of which few rows are read count as if all of their rows moved\n");
  }
  absl::StrAppend(&text, CollectivesTable(mean.comm),
                  absl::StrFormat("the link is busy for %.3f ms\n", mean.link_ms),
                  StepLines(config, work, mean, ranks, slots));
  return text;
}

}  // namespace tools
