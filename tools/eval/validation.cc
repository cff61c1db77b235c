#include "tools/eval/validation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "comm/local/local.h"
#include "data/corpus/demo_corpus.h"
#include "data/shard.h"
#include "kernels/cpu/cpu_backend.h"
#include "sched/rotary.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/data_path.h"
#include "tools/trainer/evaluator.h"
#include "tools/trainer/train_config.h"

namespace tools {

absl::StatusOr<sched::Windows> EvaluationWindows(const SavedModel& saved, int64_t long_tokens) {
  const sched::Schedules& schedules = saved.recipe.schedules;
  sched::Windows windows = sched::WindowsAt(schedules.window, schedules.run, saved.step);
  if (long_tokens == 0) return windows;
  const int64_t block = schedules.window.block_tokens;
  // Half of one block is a short window of no tokens, which attention by blocks alone takes as one.
  const int64_t least = saved.recipe.model.window_block > 0 ? block : 2 * block;
  if (long_tokens < least || long_tokens % block != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--window=", long_tokens, ": windows of ",
                                                   saved.recipe.record, " are whole blocks of ",
                                                   block, " tokens, and at least ", least));
  }
  windows.long_tokens = long_tokens;
  windows.short_tokens = long_tokens / block / 2 * block;
  return windows;
}

absl::StatusOr<std::vector<std::string>> ValidationFiles(const SavedModel& saved,
                                                         const std::string& globs) {
  if (!globs.empty()) return data::ListShards(globs);
  if (!saved.token_map.is_identity()) {
    ABSL_ASSIGN_OR_RETURN(const data::DemoCorpus corpus, data::FindDemoCorpus());
    return std::vector<std::string>{corpus.val};
  }
  const absl::StatusOr<std::vector<std::string>> files =
      data::ListShardsIn(BelowDataPath("data/fineweb10B"), "fineweb_val_*.bin");
  if (files.ok() || !absl::IsNotFound(files.status())) return files;
  return absl::NotFoundError(
      absl::StrCat(files.status().message(),
                   "; give --val_files, or set DATA_PATH to where fetch_fineweb put the shards"));
}

absl::StatusOr<ValidationLoss> Validate(const SavedModel& saved,
                                        const std::vector<std::string>& files, int64_t tokens,
                                        const sched::Windows& windows, kernels::Queue& queue) {
  TrainConfig config;
  config.recipe = saved.recipe;
  config.token_map = saved.token_map;
  config.val_files = files;
  DataRule& rule = config.recipe.data;
  if (tokens > 0) {
    rule.val_tokens = tokens;
    rule.val_slot_tokens = std::min(rule.val_slot_tokens, tokens);
  }
  if (rule.val_tokens % rule.val_slot_tokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--val_tokens=", rule.val_tokens,
                                                   ": must be a multiple of the slots' ",
                                                   rule.val_slot_tokens, " tokens"));
  }
  const std::unique_ptr<comm::Communicator> alone =
      comm::LocalGroup::Create(1, absl::Minutes(1))->Join(0);
  kernels::ArenaPlan plan;
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<Evaluator> evaluator,
                        Evaluator::Plan(config, *alone, kernels::CpuBackend(), queue, &plan));
  ABSL_ASSIGN_OR_RETURN(kernels::Arena arena,
                        kernels::Arena::Create(std::move(plan), kernels::CpuBackend()));
  evaluator->Bind(std::move(arena));
  ABSL_RETURN_IF_ERROR(evaluator->Open(config));
  const sched::Schedules& schedules = saved.recipe.schedules;
  evaluator->SetRotary(
      sched::RotaryAt(schedules.rotary, schedules.window, schedules.run, saved.step), queue);
  ABSL_ASSIGN_OR_RETURN(const double loss,
                        evaluator->Run(windows, saved.weights->parameters(), queue));
  return ValidationLoss{.loss = loss, .tokens = rule.val_tokens};
}

}  // namespace tools
