#include "tools/trainer/train_config.h"

#include <algorithm>
#include <set>

namespace tools {

std::vector<int64_t> TrainConfig::slot_sizes() const {
  std::set<int64_t> sizes;
  for (const sched::BatchStage& stage : recipe.schedules.batch.stages) {
    sizes.insert(stage.tokens / recipe.data.slots);
  }
  return {sizes.begin(), sizes.end()};
}

std::vector<data::LoaderStage> TrainConfig::loader_stages() const {
  std::vector<data::LoaderStage> stages;
  for (const sched::BatchStart& start :
       sched::BatchStarts(recipe.schedules.batch, recipe.schedules.run)) {
    stages.push_back(
        {.first_step = start.first_step, .batch = batch_options(start.tokens / recipe.data.slots)});
  }
  return stages;
}

int TrainConfig::pass_slots(int64_t slot_tokens, int local_slots) const {
  if (deterministic && recipe.model.storage == model::Storage::kBanks) return 1;
  const int64_t largest = slot_sizes().back();
  if (slot_tokens == largest) return std::min(slots_per_pass, local_slots);
  const int64_t most = slots_per_pass * largest / slot_tokens;
  int slots = static_cast<int>(std::min<int64_t>(most, local_slots));
  while (local_slots % slots != 0) --slots;
  return slots;
}

}  // namespace tools
