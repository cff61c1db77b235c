// A record as data. Adding one adds its files here and a row in kRecipes of recipe.cc; all else
// stays.
#ifndef TOOLS_RECIPES_RECIPE_H_
#define TOOLS_RECIPES_RECIPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/batcher.h"
#include "model/config.h"
#include "optim/param_table.h"
#include "sched/schedules.h"

namespace tools {

// How token shards become slots.
struct DataRule {
  data::BatchMode mode = data::BatchMode::kDocuments;
  int slots = 8;  // equal parts of the global batch
  int64_t max_doc_len =
      2048;  // kDocuments: tokens of a document used in a batch; the rest is dropped
  // Boundaries of a training slot's table; 0: the reference's rule, T / 300 to the next
  // multiple of 128.
  int64_t max_documents = 0;
  int64_t val_tokens = 10'485'760;
  int64_t val_slot_tokens = 262'144;
  int64_t val_max_documents = 0;  // as max_documents, of a validation slot
};

struct Recipe {
  std::string record;  // --record
  std::string preset;  // --preset
  std::string source;  // where the facts are from
  double target_val_loss = 0;
  model::GptConfig model;
  DataRule data;
  sched::Schedules schedules;
  optim::OptimizerConfig optimizer;
};

// Of all records, as --record takes them.
std::vector<std::string> RecordNames();

// InvalidArgument names the known records or presets, or what in the recipe does not fit together
// (model::Validate, sched::Validate). `vocab_size` is the padded number of
// classes of the model: 50,304 for GPT-2 shards, less for the byte-level corpus.
absl::StatusOr<Recipe> FindRecipe(absl::string_view record, absl::string_view preset,
                                  int64_t vocab_size);

// The recipe of a run of `total_steps` with the same course: sched::Rescaled, and the steps in
// which Anvil's rails engage and a row's cadence changes in proportion.
void Rescale(Recipe* recipe, int64_t total_steps, const sched::KeptSteps& kept = {});

// Classes for `ids` token ids: the next multiple of 128, as the GEMMs like it.
int64_t PaddedVocab(int64_t ids);

}  // namespace tools

#endif  // TOOLS_RECIPES_RECIPE_H_
