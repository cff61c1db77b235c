#include "tools/trainer/plan_text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "comm/slot_tree.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/gpt.h"
#include "model/parameters.h"
#include "optim/step_layout.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/cards.h"
#include "tools/trainer/rank_memory.h"
#include "tools/trainer/sparse_plan_text.h"

namespace tools {
namespace {

constexpr double kGiB = 1 << 30;

// 268665636 -> "268,665,636"
std::string Grouped(int64_t value) {
  std::string text = absl::StrCat(value);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) text.insert(at, 1, ',');
  return text;
}

std::string ParametersText(const std::vector<kernels::ParameterSpec>& specs) {
  std::string text = absl::StrFormat("%-32s %-12s %-6s %-18s %14s\n", "parameter", "label", "dtype",
                                     "shape", "elements");
  std::vector<std::string> labels;
  std::map<std::string, int64_t> of_label;
  int64_t total = 0;
  for (const kernels::ParameterSpec& spec : specs) {
    absl::StrAppend(&text, absl::StrFormat("%-32s %-12s %-6s %-18s %14s\n", spec.name, spec.label,
                                           kernels::Name(spec.dtype),
                                           absl::StrCat("[", absl::StrJoin(spec.shape, ", "), "]"),
                                           Grouped(spec.size())));
    if (of_label.count(spec.label) == 0) labels.push_back(spec.label);
    of_label[spec.label] += spec.size();
    total += spec.size();
  }
  for (const std::string& label : labels) {
    absl::StrAppend(&text, absl::StrFormat("  %-20s %14s\n", label, Grouped(of_label[label])));
  }
  absl::StrAppend(&text, absl::StrFormat("  %-20s %14s parameters\n", "total", Grouped(total)));
  return text;
}

std::string CardText(const model::GptConfig& model, const Card& card, double planned_gib) {
  const double spare = SpareGib(card, planned_gib);
  std::string text =
      absl::StrFormat("card %s, compute capability %s, %.1f GiB: %s\n", card.name,
                      Text(card.capability), card.memory_gib,
                      spare >= 0 ? absl::StrFormat("holds the plan with %.2f GiB to spare", spare)
                                 : absl::StrFormat("lacks %.2f GiB for the plan", -spare));
  const absl::Status runs = CheckCard(model, card);
  if (!runs.ok()) absl::StrAppend(&text, "cannot run it: ", runs.message(), "\n");
  return text;
}

absl::StatusOr<std::string> MemoryText(const TrainConfig& config, const Card* card) {
  const int slots = comm::SlotsOfRank(config.recipe.data.slots, config.world_size, 0).count();
  const int64_t leaves = config.deterministic ? slots : 1;
  const std::unique_ptr<kernels::Queue> queue =
      card != nullptr ? MakePlanningQueue(*card) : kernels::MakeCpuQueue(1);
  ABSL_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(config, *queue));
  // Stages lie over each other; the one with the largest slots needs the most.
  const int pass_slots = config.pass_slots(config.slot_sizes().back(), slots);
  std::string text = "memory of rank 0, GiB\n";
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, int64_t>>{
           {absl::StrCat("weights, f32 gradients of ", leaves, leaves == 1 ? " leaf" : " leaves"),
            plan.weights},
           {absl::StrCat("activations, ", pass_slots, " slots a pass"), plan.passes},
           {"validation, one slot, in the same place", plan.validation},
           {"optimizer", plan.optimizer},
           {"all", plan.total}}) {
    absl::StrAppend(&text, absl::StrFormat("  %-40s %10.2f\n", name, bytes / kGiB));
  }
  if (card != nullptr) {
    absl::StrAppend(&text, "  ", CardText(config.recipe.model, *card, plan.total / kGiB));
  }
  ABSL_ASSIGN_OR_RETURN(const std::string choices, MemoryChoicesText(config, *queue));
  return text + choices;
}

}  // namespace

absl::StatusOr<std::string> PlanText(const Configured& configured) {
  const TrainConfig& config = configured.config;
  const Card* const card = configured.card.has_value() ? &*configured.card : nullptr;
  const Recipe& recipe = config.recipe;
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe.model);
  std::string rows;
  const optim::OptimizerConfig optimizer =
      optim::RowsAsRun(recipe.optimizer, config.world_size, config.deterministic, &rows);
  ABSL_ASSIGN_OR_RETURN(const optim::StepLayout layout, optim::PlanStep(optimizer, specs));
  ABSL_ASSIGN_OR_RETURN(const std::string memory, MemoryText(config, card));
  ABSL_ASSIGN_OR_RETURN(const std::string moved, SparsePlanText(config));
  std::string steps;
  for (const int64_t slot_tokens : config.slot_sizes()) {
    const int64_t batch = slot_tokens * recipe.data.slots;
    absl::StrAppend(
        &steps, "step: ", Grouped(batch), " tokens in ", recipe.data.slots, " slots of ",
        Grouped(slot_tokens), ", ",
        absl::StrFormat("%.4g",
                        static_cast<double>(model::TrainingFlopsPerToken(recipe.model)) * batch),
        " dense FLOPs\n");
  }
  return absl::StrCat(
      configured.card_note, configured.card_note.empty() ? "" : "\n", "record ", recipe.record,
      ", preset ", recipe.preset, "\n", ParametersText(specs), "\n",
      optim::DescribeStep(layout, optimizer, specs, config.world_size), rows, moved, "\n", memory,
      "\n", steps,
      absl::StrFormat("dense FLOPs: %s a token forward, %s with backward; attention and optimizer "
                      "not counted\n",
                      Grouped(model::ForwardFlopsPerToken(recipe.model)),
                      Grouped(model::TrainingFlopsPerToken(recipe.model))));
}

}  // namespace tools
