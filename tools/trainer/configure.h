// From the command line's raw values to a checked TrainConfig.
#ifndef TOOLS_TRAINER_CONFIGURE_H_
#define TOOLS_TRAINER_CONFIGURE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/trainer/cards.h"
#include "tools/trainer/track_flags.h"
#include "tools/trainer/train_config.h"

namespace tools {

// What was chosen for the user, in words, for the head of the log.
struct Configured {
  TrainConfig config;
  std::string notes;
  std::optional<Card> card;  // of device "cuda"
  std::string card_note;     // why the card is one that nobody named; empty if it is here or named
};

// An empty record is unified_optimizers, a world_size of 0 one rank.
//
// InvalidArgument or NotFound, naming the flag and what would work. Looks for files, reads no
// shard. FailedPrecondition: the GPU lacks what the recipe needs, but memory. Creates out_dir, so
// that an unwritable one is found before training.
absl::StatusOr<Configured> Configure(TrackFlags flags);

}  // namespace tools

#endif  // TOOLS_TRAINER_CONFIGURE_H_
