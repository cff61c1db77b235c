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
#include "data/batcher.h"
#include "model/gpt.h"
#include "model/parameters.h"
#include "optim/build_choices.h"
#include "optim/step_layout.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/device.h"

namespace tools {
namespace {

constexpr double kMiB = 1 << 20;

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

absl::StatusOr<std::string> MemoryText(const TrainConfig& config,
                                       const std::vector<kernels::ParameterSpec>& specs) {
  const DataRule& rule = config.recipe.data;
  const int slots = comm::SlotsOfRank(rule.slots, config.world_size, 0).count();
  int64_t weights = 0, elements = 0;
  for (const kernels::ParameterSpec& spec : specs) {
    weights += spec.size() * kernels::SizeOf(spec.dtype);
    elements += spec.size();
  }
  const int64_t leaves = config.deterministic ? slots : 1;
  ABSL_ASSIGN_OR_RETURN(const Device device, OpenDevice(config.device, config.gpu));
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Queue> queue, device.make_queue({}));
  const auto activations = [&](int64_t pass_slots, int64_t tokens, int64_t boundaries, bool train) {
    kernels::ArenaPlan plan;
    model::Gpt(
        config.recipe.model,
        {.slots = pass_slots, .slot_tokens = tokens, .max_boundaries = boundaries, .train = train})
        .Plan(plan, *queue);
    return plan.bytes();
  };
  // Stages lie over each other; the one with the largest slots needs the most.
  const int64_t slot_tokens = config.slot_sizes().back();
  const int pass_slots = config.pass_slots(slot_tokens, slots);
  const int64_t training = activations(pass_slots, slot_tokens,
                                       data::MaxDocuments(config.batch_options(slot_tokens)), true);
  const int64_t validation =
      activations(1, rule.val_slot_tokens, config.val_max_documents(), false);
  std::string text = "memory of rank 0, MiB\n";
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, int64_t>>{
           {"weights", weights},
           {absl::StrCat("gradients, f32, ", leaves, leaves == 1 ? " leaf" : " leaves"),
            elements * 4 * leaves},
           {absl::StrCat("activations, ", pass_slots, " slots a pass"), training},
           {"validation, one slot", validation}}) {
    absl::StrAppend(&text, absl::StrFormat("  %-36s %12.1f\n", name, bytes / kMiB));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> PlanText(const TrainConfig& config) {
  const Recipe& recipe = config.recipe;
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(recipe.model);
  const optim::OptimizerConfig optimizer = optim::WithBuildChoices(recipe.optimizer);
  ABSL_ASSIGN_OR_RETURN(const optim::StepLayout layout, optim::PlanStep(optimizer, specs));
  ABSL_ASSIGN_OR_RETURN(const std::string memory, MemoryText(config, specs));
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
      "record ", recipe.record, ", preset ", recipe.preset, "\n", ParametersText(specs), "\n",
      optim::DescribeStep(layout, optimizer, specs, config.world_size), "\n", memory, "\n", steps,
      absl::StrFormat("dense FLOPs: %s a token forward, %s with backward; attention and optimizer "
                      "not counted\n",
                      Grouped(model::ForwardFlopsPerToken(recipe.model)),
                      Grouped(model::TrainingFlopsPerToken(recipe.model))));
}

}  // namespace tools
