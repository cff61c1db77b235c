// From the command line's raw values to a checked TrainConfig.
#ifndef TOOLS_TRAINER_CONFIGURE_H_
#define TOOLS_TRAINER_CONFIGURE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/trainer/cards.h"
#include "tools/trainer/train_config.h"

namespace tools {

// One field per flag, under its name. 0 and "" mean "not given" unless said otherwise.
struct TrackFlags {
  std::string record = "unified_optimizers";
  std::string preset;
  std::string train_files, val_files;
  int64_t steps = -1;  // -1: the record's; 0 evaluates and leaves
  int64_t batch_tokens = 0;
  int64_t max_seq_len = 0;
  int64_t val_tokens = 0;
  int64_t val_every = 0;
  int64_t extension_steps = -1;               // of `steps`, the last ones; -1: the recipe's share
  std::string momentum_steps = "scaled";      // with `steps`; or "recipe": see sched::KeptSteps
  std::string schedule_extension = "recipe";  // or "legacy": see sched::UseLegacyExtension
  int64_t slots = 0;
  int64_t slots_per_pass = 0;
  int64_t epochs = 1;
  int64_t seed = 0;
  double matrix_lr_mul = 1;
  bool deterministic = false;
  int64_t world_size = 1;
  std::string device;  // empty: the build's default
  int gpu = 0;         // which of the visible ones
  double memory_gib = 0;
  int64_t threads = 0;
  std::string init_from, save_init, out_dir, metrics, tensorboard_dir;
  int64_t checkpoint_every = 0;
  int64_t keep_checkpoints = 3;
  bool resume = false;
  std::string on_nonfinite = "stop";  // or "skip"
  absl::Duration comm_timeout = absl::Seconds(60);
  bool comm_check = false;
  bool plan = false;  // nothing will run: neither a device nor shards are needed
  std::string card;   // of a plan: a name of NamedCards(); empty: the GPU that is here
};

// What was chosen for the user, in words, for the head of the log.
struct Configured {
  TrainConfig config;
  std::string notes;
  std::optional<Card> card;  // of device "cuda"
  std::string card_note;     // why the card is one that nobody named; empty if it is here or named
};

// InvalidArgument or NotFound, naming the flag and what would work. Looks for files, reads no
// shard. FailedPrecondition: the GPU lacks what the recipe needs, but memory. Creates out_dir, so
// that an unwritable one is found before training.
absl::StatusOr<Configured> Configure(const TrackFlags& flags);

}  // namespace tools

#endif  // TOOLS_TRAINER_CONFIGURE_H_
