#include "tools/trainer/configure.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/corpus/demo_corpus.h"
#include "data/shard.h"
#include "data/token_map.h"
#include "optim/build_choices.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/checkpoint_folder.h"
#include "tools/checkpoint/files.h"
#include "tools/data_path.h"
#include "tools/trainer/cards.h"
#include "tools/trainer/device.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

absl::Status BadFlag(absl::string_view flag, int64_t value, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", why));
}

template <typename Value>
absl::Status CheckLimits(const char* flag, const Value& value, FlagLimits limits) {
  if constexpr (std::is_same_v<Value, int64_t>) {
    if (value < limits.least || value > limits.most) {
      return BadFlag(flag, value, absl::StrCat("must be from ", limits.least, " to ", limits.most));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRanges(const TrackFlags& f) {
#define CHECK_LIMITS(type, name, value, limits, help) \
  ABSL_RETURN_IF_ERROR(CheckLimits(#name, f.name, limits));
  TRACK_FLAGS(NO_GROUP, CHECK_LIMITS)
#undef CHECK_LIMITS
  if (!std::isfinite(f.matrix_lr_mul) || f.matrix_lr_mul <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--matrix_lr_mul=", f.matrix_lr_mul, ": must be a positive number"));
  }
  if (!(f.memory_gib >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--memory_gib=", f.memory_gib, ": must be positive, or 0 for no bound"));
  }
  if (f.comm_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("--comm_timeout: must be positive, such as 60s");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> DefaultShards(const char* kind) {
  return data::ListShardsIn(BelowDataPath("data/fineweb10B"),
                            absl::StrCat("fineweb_", kind, "_*.bin"));
}

// Where tokens come from: the flags' globs, else the default globs, else the built-in corpus.
struct Files {
  std::vector<std::string> train, val;
  bool built_in = false;
};

absl::StatusOr<Files> FindFiles(const TrackFlags& flags) {
  Files files;
  if (flags.train_files.empty() != flags.val_files.empty()) {
    return absl::InvalidArgumentError(
        "--train_files and --val_files: give both, or none for the defaults");
  }
  if (!flags.train_files.empty()) {
    ABSL_ASSIGN_OR_RETURN(files.train, data::ListShards(flags.train_files));
    ABSL_ASSIGN_OR_RETURN(files.val, data::ListShards(flags.val_files));
    return files;
  }
  absl::StatusOr<std::vector<std::string>> train = DefaultShards("train");
  if (train.ok()) {
    files.train = *std::move(train);
    ABSL_ASSIGN_OR_RETURN(files.val, DefaultShards("val"));
    return files;
  }
  if (!absl::IsNotFound(train.status())) return train.status();
  if (flags.preset == "full" && flags.plan) return files;  // a plan is of shapes
  if (flags.preset == "full") {
    return absl::NotFoundError(
        absl::StrCat(train.status().message(),
                     "; --preset=full trains on GPT-2 shards of FineWeb: give "
                     "--train_files and --val_files, or set DATA_PATH"));
  }
  ABSL_ASSIGN_OR_RETURN(const data::DemoCorpus corpus, data::FindDemoCorpus());
  files.train = {corpus.train};
  files.val = {corpus.val};
  files.built_in = true;
  return files;
}

absl::Status CheckOverlap(const Files& files) {
  std::set<fs::path> train;
  for (const std::string& file : files.train) {
    std::error_code error;
    train.insert(fs::weakly_canonical(file, error));
  }
  for (const std::string& file : files.val) {
    std::error_code error;
    if (train.count(fs::weakly_canonical(file, error)) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          file,
          ": is in --train_files and in --val_files; the validation loss would be of text "
          "that the model was trained on"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<OnNonFinite> ParseOnNonFinite(const std::string& value) {
  if (value == "stop") return OnNonFinite::kStop;
  if (value == "skip") return OnNonFinite::kSkip;
  return absl::InvalidArgumentError(
      absl::StrCat("--on_nonfinite=", value, ": must be stop or skip"));
}

// --steps, --extension_steps and --momentum_steps.
absl::Status ChangeLength(const TrackFlags& flags, Recipe* recipe) {
  if (flags.momentum_steps != "scaled" && flags.momentum_steps != "recipe") {
    return absl::InvalidArgumentError(
        absl::StrCat("--momentum_steps=", flags.momentum_steps, ": must be scaled or recipe"));
  }
  const int64_t total = flags.steps >= 0 ? flags.steps : recipe->schedules.run.total();
  if (flags.extension_steps > total) {
    return BadFlag("extension_steps", flags.extension_steps,
                   absl::StrCat("more than the ", total, " steps of the run"));
  }
  Rescale(recipe, total,
          {.extension = flags.extension_steps, .momentum = flags.momentum_steps == "recipe"});
  return absl::OkStatus();
}

// The recipe with the flags' numbers in place of its own.
absl::Status Override(const TrackFlags& flags, Recipe* recipe) {
  sched::Schedules& schedules = recipe->schedules;
  ABSL_RETURN_IF_ERROR(ChangeLength(flags, recipe));
  if (flags.schedule_extension == "legacy") {
    if (schedules.learning_rate.stage_factors.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--schedule_extension=legacy: ", recipe->record,
                       " never had that rule; it is for fix_muon_lr and before"));
    }
    sched::UseLegacyExtension(&schedules);
  } else if (flags.schedule_extension != "recipe") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--schedule_extension=", flags.schedule_extension, ": must be recipe or legacy"));
  }
  if (flags.val_every > 0) schedules.validation.every = flags.val_every;
  if (flags.batch_tokens > 0) {
    for (sched::BatchStage& stage : schedules.batch.stages) stage.tokens = flags.batch_tokens;
  }
  if (flags.slots > 0) recipe->data.slots = static_cast<int>(flags.slots);
  if (flags.max_seq_len > 0 && recipe->data.mode == data::BatchMode::kStream) {
    return BadFlag(
        "max_seq_len", flags.max_seq_len,
        absl::StrCat(recipe->record, " trains on the whole stream of tokens; leave it out"));
  }
  if (flags.max_seq_len > 0) recipe->data.max_doc_len = flags.max_seq_len;
  if (flags.val_tokens > 0) {
    recipe->data.val_tokens = flags.val_tokens;
    recipe->data.val_slot_tokens = std::min(recipe->data.val_slot_tokens, flags.val_tokens);
  }
  return sched::Validate(schedules);
}

absl::Status CheckShape(const Recipe& recipe, const TrackFlags& flags) {
  const DataRule& rule = recipe.data;
  const int64_t world_size = flags.world_size, slots_per_pass = flags.slots_per_pass;
  if (world_size > rule.slots) {
    return BadFlag(
        "world_size", world_size,
        absl::StrCat("more ranks than the ", rule.slots, " slots of a batch; use at most ",
                     rule.slots, " ranks, or raise --slots"));
  }
  if (slots_per_pass > rule.slots) {
    return BadFlag("slots_per_pass", slots_per_pass,
                   absl::StrCat("more than the ", rule.slots, " slots of a batch"));
  }
  if (flags.deterministic && slots_per_pass > 1 && recipe.model.storage == model::Storage::kBanks) {
    return BadFlag("slots_per_pass", slots_per_pass,
                   absl::StrCat("deterministic runs of ", recipe.record,
                                " have one slot a pass; leave the flag out"));
  }
  for (const sched::BatchStage& stage : recipe.schedules.batch.stages) {
    if (stage.tokens % (16 * rule.slots) == 0) continue;
    return BadFlag(
        "batch_tokens", stage.tokens,
        absl::StrCat("does not divide into ", rule.slots,
                     " slots of a multiple of 16 tokens; use a multiple of ", 16 * rule.slots));
  }
  if (rule.val_tokens % rule.val_slot_tokens != 0) {
    return BadFlag("val_tokens", rule.val_tokens,
                   absl::StrCat("is not a multiple of the validation slot of ",
                                rule.val_slot_tokens, " tokens"));
  }
  return absl::OkStatus();
}

// What the run, or the plan, is for.
struct Target {
  std::string kind;         // "cpu" or "cuda"
  std::string description;  // of the device of a run
  std::optional<Card> card;
  std::string card_note;
};

// A plan without --card and without a GPU is for the card that the records are timed on.
constexpr char kAssumedCard[] = "h100-80gb";

absl::StatusOr<Target> TargetOfPlan(const TrackFlags& flags) {
  if (!flags.card.empty()) {
    if (flags.device == "cpu") {
      return absl::InvalidArgumentError(
          absl::StrCat("--card=", flags.card, " is a GPU; leave out --device=cpu"));
    }
    ABSL_ASSIGN_OR_RETURN(const Card card, FindCard(flags.card));
    return Target{.kind = "cuda", .description = card.name, .card = card, .card_note = ""};
  }
  const absl::string_view kind = flags.device.empty() ? DefaultDeviceKind() : flags.device;
  if (kind == "cpu") {
    return Target{.kind = "cpu", .description = "CPU", .card = std::nullopt, .card_note = ""};
  }
  if (kind != "cuda") return OpenDevice(kind, flags.gpu).status();
  const absl::StatusOr<Card> here = CardOfDevice(flags.gpu);
  if (here.ok()) {
    return Target{.kind = "cuda", .description = here->name, .card = *here, .card_note = ""};
  }
  if (flags.gpu > 0) return here.status();
  ABSL_ASSIGN_OR_RETURN(const Card card, FindCard(kAssumedCard));
  return Target{
      .kind = "cuda",
      .description = card.name,
      .card = card,
      .card_note = absl::StrCat("no GPU to ask: ", here.status().message(), "; planned for ",
                                card.name, ", and --card=NAME plans for another")};
}

absl::StatusOr<Target> TargetOf(const TrackFlags& flags) {
  if (flags.plan) return TargetOfPlan(flags);
  if (!flags.card.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--card=", flags.card, ": is of --plan; a run takes the GPU that is there"));
  }
  ABSL_ASSIGN_OR_RETURN(Device device, OpenDevice(flags.device, flags.gpu));
  return Target{.kind = std::move(device.kind),
                .description = std::move(device.description),
                .card = std::move(device.card),
                .card_note = ""};
}

// On a GPU two at once are a little faster than one; docs/benchmarks.md has the figures.
int DefaultSlotsPerPass(const Target& target, const Recipe& recipe) {
  return target.kind == "cuda" ? std::min(2, recipe.data.slots) : 1;
}

// "131072, 262144, 393216"
std::string BatchText(const sched::BatchSchedule& batch) {
  return absl::StrJoin(batch.stages, ", ", [](std::string* out, const sched::BatchStage& stage) {
    absl::StrAppend(out, stage.tokens);
  });
}

// Two runs in one folder would go on from each other's checkpoints, and delete them.
absl::Status RefuseAnotherRun(const std::string& out_dir, const std::string& root) {
  ABSL_ASSIGN_OR_RETURN(const CheckpointListing listing, ListCheckpoints(root));
  if (listing.paths.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--out_dir=", out_dir, ": holds a run's checkpoints, the latest of step ",
      listing.paths.rbegin()->first, "; give --resume to go on with it, or another --out_dir"));
}

absl::Status PrepareOutDir(const std::string& out_dir) {
  std::error_code error;
  fs::create_directories(out_dir, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out_dir=", out_dir, ": cannot create it: ", error.message()));
  }
  const std::string probe = absl::StrCat(out_dir, "/.nanospeed_probe.", getpid());
  const absl::Status written = WriteFileAtomically(probe, {"x"});
  if (!written.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out_dir=", out_dir, ": cannot write there: ", written.message()));
  }
  fs::remove(probe, error);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Configured> Configure(TrackFlags flags) {
  ABSL_RETURN_IF_ERROR(CheckRanges(flags));
  if (flags.record.empty()) flags.record = "unified_optimizers";
  if (flags.world_size == 0) flags.world_size = 1;
  // Names first: a typo should not be answered with a message about files.
  ABSL_RETURN_IF_ERROR(FindRecipe(flags.record, flags.preset.empty() ? "demo" : flags.preset,
                                  PaddedVocab(data::kGpt2Vocabulary))
                           .status());
  ABSL_ASSIGN_OR_RETURN(const Target target, TargetOf(flags));
  ABSL_ASSIGN_OR_RETURN(const Files files, FindFiles(flags));
  const bool full_by_default = target.kind == "cuda" && !files.built_in;
  const std::string preset =
      !flags.preset.empty() ? flags.preset : (full_by_default ? "full" : "demo");
  ABSL_RETURN_IF_ERROR(CheckOverlap(files));

  Configured configured;
  TrainConfig& config = configured.config;
  config.token_map = files.built_in ? data::TokenMap::ByteVocabulary()
                                    : data::TokenMap::Identity(data::kGpt2Vocabulary);
  ABSL_ASSIGN_OR_RETURN(
      config.recipe, FindRecipe(flags.record, preset, PaddedVocab(config.token_map.vocab_size())));
  ABSL_RETURN_IF_ERROR(Override(flags, &config.recipe));
  config.recipe.optimizer =
      optim::WithBuildChoices(std::move(config.recipe.optimizer), flags.matrix_lr_mul);
  ABSL_RETURN_IF_ERROR(CheckShape(config.recipe, flags));
  if (target.card.has_value() && !flags.plan) {
    ABSL_RETURN_IF_ERROR(CheckCard(config.recipe.model, *target.card));
  }
  configured.card = target.card;
  configured.card_note = target.card_note;
  config.train_files = files.train;
  config.val_files = files.val;
  config.epochs = static_cast<int>(flags.epochs);
  config.seed = static_cast<uint64_t>(flags.seed);
  config.extension_steps = flags.extension_steps;
  config.momentum_steps = flags.momentum_steps;
  config.matrix_lr_mul = flags.matrix_lr_mul;
  config.deterministic = flags.deterministic;
  config.world_size = static_cast<int>(flags.world_size);
  config.slots_per_pass = flags.slots_per_pass > 0 ? static_cast<int>(flags.slots_per_pass)
                                                   : DefaultSlotsPerPass(target, config.recipe);
  config.device = target.kind;
  config.gpu = flags.gpu;
  config.memory_gib = flags.memory_gib;
  config.threads = static_cast<int>(flags.threads);
  config.comm_timeout = flags.comm_timeout;
  config.comm_check = flags.comm_check || preset == "demo";
  config.init_from = flags.init_from;
  config.save_init = flags.save_init;
  config.out_dir = flags.out_dir;
  config.checkpoint_every = flags.checkpoint_every;
  ABSL_ASSIGN_OR_RETURN(config.on_nonfinite, ParseOnNonFinite(flags.on_nonfinite));
  config.keep_checkpoints = static_cast<int>(flags.keep_checkpoints);
  config.resume = flags.resume;
  config.metrics = flags.metrics;
  config.tensorboard_dir = flags.tensorboard_dir;
  if (config.out_dir.empty() && (config.resume || config.checkpoint_every > 0)) {
    return absl::InvalidArgumentError(
        "--resume and --checkpoint_every need --out_dir, the folder of the checkpoints");
  }
  if (!config.out_dir.empty()) {
    ABSL_RETURN_IF_ERROR(PrepareOutDir(config.out_dir));
    if (!config.resume) {
      ABSL_RETURN_IF_ERROR(RefuseAnotherRun(config.out_dir, config.checkpoint_root()));
    }
  }

  configured.notes = absl::StrCat(
      "record ", config.recipe.record, ", preset ", preset,
      !flags.preset.empty() ? ""
      : full_by_default     ? " (the default on a GPU with shards)"
      : files.built_in && target.kind == "cuda"
          ? " (the default without shards; --preset=full with --train_files and --val_files is the "
            "record)"
          : " (the default without a GPU)",
      ", data: ",
      files.built_in ? "the built-in corpus (fortunes, as GPT-2 byte tokens)"
      : files.train.empty()
          ? "none (a plan)"
          : absl::StrCat(files.train.size(), " training shards from ", files.train.front()),
      "\n", config.total_steps(), " steps of ", BatchText(config.recipe.schedules.batch),
      " tokens in ", config.recipe.data.slots, " slots, ", config.world_size, " ranks on ",
      target.description, ", seed ", config.seed, config.deterministic ? ", deterministic" : "",
      config.extension_steps < 0 ? "" : absl::StrCat(", ", config.extension_steps, " of extension"),
      config.momentum_steps == "recipe"
          ? absl::StrCat(", momentum's warm-up of ", config.recipe.schedules.momentum.warmup_steps,
                         " steps as in the recipe")
          : "",
      sched::HasLegacyExtension(config.recipe.schedules) ? ", legacy schedule extension" : "",
      config.matrix_lr_mul == 1 ? ""
                                : absl::StrCat(", rates of matrices x ", config.matrix_lr_mul));
  return configured;
}

}  // namespace tools
