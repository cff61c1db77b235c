#include "tools/recipes/demo.h"

#include <utility>

#include "third_party/absl_compat/status_macros.h"

namespace tools {

absl::StatusOr<Recipe> DemoOf(Recipe full, int64_t steps) {
  Recipe demo = std::move(full);
  demo.preset = "demo";
  demo.target_val_loss = 0;
  demo.model.dim = 128;
  demo.model.heads = 2;
  demo.model.head_dim = 64;
  demo.model.mlp_dim = 512;
  ABSL_RETURN_IF_ERROR(model::Validate(demo.model));
  // Fortunes have 180 bytes on average, and many of them fit into a slot.
  demo.data.max_doc_len = 512;
  demo.data.max_documents = 128;
  demo.data.val_tokens = 32'768;
  demo.data.val_slot_tokens = 4'096;
  demo.data.val_max_documents = 1'024;
  Rescale(&demo, steps);
  demo.schedules.window.grow_to_tokens /= demo.schedules.window.block_tokens / 16;
  demo.schedules.window.block_tokens = 16;
  if (demo.model.window_block > 0) demo.model.window_block = 16;
  demo.schedules.rotary.head_dim = 64;
  // 4,096 on average over the stages, in slots of a multiple of 16 tokens.
  int64_t sum = 0;
  for (const sched::BatchStage& stage : demo.schedules.batch.stages) sum += stage.tokens;
  const auto stages = static_cast<int64_t>(demo.schedules.batch.stages.size());
  for (sched::BatchStage& stage : demo.schedules.batch.stages) {
    const int64_t multiple = int64_t{16} * demo.data.slots;
    stage.tokens = 4'096 * stages * stage.tokens / sum / multiple * multiple;
  }
  demo.schedules.validation.every = 10;
  return demo;
}

}  // namespace tools
