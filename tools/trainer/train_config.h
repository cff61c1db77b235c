// Everything that one run is, checked and resolved: what the trainer reads instead of flags.
#ifndef TOOLS_TRAINER_TRAIN_CONFIG_H_
#define TOOLS_TRAINER_TRAIN_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "data/batcher.h"
#include "data/loader.h"
#include "data/token_map.h"
#include "tools/recipes/recipe.h"

namespace tools {

// What to do with a step whose losses or gradients are not finite.
enum class OnNonFinite {
  kStop,  // end the run before its update
  kSkip,  // leave its update out, count it and go on
};

struct TrainConfig {
  Recipe recipe;  // overrides applied

  std::vector<std::string> train_files;
  std::vector<std::string> val_files;
  data::TokenMap token_map;
  int epochs = 1;

  uint64_t seed = 0;
  int64_t extension_steps = -1;           // as the flag said; the recipe here has what came of it
  std::string momentum_steps = "scaled";  // likewise
  double matrix_lr_mul = 1;               // what the recipe's rates of matrices were multiplied by
  bool deterministic = false;
  int world_size = 1;      // ranks: threads of this process, or processes (nccl)
  int slots_per_pass = 1;  // slots that a rank runs at once
  std::string device;      // "cpu" or "cuda"
  int gpu = 0;             // which of the visible ones this process looks at first
  int threads = 0;         // of the CPU pool; 0: kernels::UsableCpus()
  OnNonFinite on_nonfinite = OnNonFinite::kStop;
  absl::Duration comm_timeout = absl::Seconds(60);
  bool comm_check = false;  // compare all ranks' collective calls before each
  double memory_gib = 0;    // that a rank may plan on its device; 0: as much as there is

  std::string init_from;  // safetensors; empty: the recipe's random weights
  std::string save_init;
  std::string out_dir;           // empty: no checkpoints
  int64_t checkpoint_every = 0;  // steps; 0: only at the end and when interrupted
  int keep_checkpoints = 3;
  bool resume = false;
  std::string metrics;
  std::string tensorboard_dir;  // empty: no event file

  // The sizes that a slot has in the course of the run, ascending, each once.
  std::vector<int64_t> slot_sizes() const;
  data::BatchOptions batch_options(int64_t slot_tokens) const {
    return {.slots = recipe.data.slots,
            .slot_tokens = slot_tokens,
            .max_doc_len = recipe.data.max_doc_len,
            .max_documents = recipe.data.max_documents,
            .mode = recipe.data.mode};
  }
  // Slots of such a size that a rank with `local_slots` runs at once: slots_per_pass of the largest
  // size, and of smaller ones as many as have no more tokens and divide local_slots. Deterministic
  // runs of a model with banks: one.
  int pass_slots(int64_t slot_tokens, int local_slots) const;
  // Tokens of a slot in that step.
  int64_t slot_tokens(int64_t step) const {
    return sched::BatchTokensAt(recipe.schedules.batch, recipe.schedules.run, step) /
           recipe.data.slots;
  }
  // The batches' shapes in the course of the run.
  std::vector<data::LoaderStage> loader_stages() const;
  // Boundaries of a validation slot.
  int64_t val_max_documents() const {
    return recipe.data.val_max_documents > 0
               ? recipe.data.val_max_documents
               : data::DefaultMaxDocuments(recipe.data.val_slot_tokens, recipe.data.mode);
  }
  int64_t total_steps() const { return recipe.schedules.run.total(); }
  std::string checkpoint_root() const { return out_dir + "/checkpoints"; }
};

}  // namespace tools

#endif  // TOOLS_TRAINER_TRAIN_CONFIG_H_
