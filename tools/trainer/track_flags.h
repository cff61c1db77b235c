// The flags of a training: each is one row, from which its absl flag, its field of TrackFlags, its
// range check and its help are made. A new flag is a row, its place in TRACK_FLAGS, and the code
// that reads the field.
//
//   ROW(type, name, default, limits, help)
//
// Rows are macros because absl's flags are. A program with some of them names these:
//
//   #define MY_FLAGS(ROW) FLAG_slots(ROW) FLAG_threads(ROW)
//   MY_FLAGS(DEFINE_FLAG)  // outside of all namespaces
//
//   #define COPY(type, name, ...) flags.name = absl::GetFlag(FLAGS_##name);
//   MY_FLAGS(COPY)
#ifndef TOOLS_TRAINER_TRACK_FLAGS_H_
#define TOOLS_TRAINER_TRACK_FLAGS_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/time/time.h"

// For TRACK_FLAGS where the groups do not matter.
#define NO_GROUP(title)

// Needs absl/flags/flag.h.
#define DEFINE_FLAG(type, name, value, limits, help) ABSL_FLAG(type, name, value, help);

// Recipe.
#define FLAG_record(ROW)                    \
  ROW(std::string, record, "", Unchecked(), \
      "Which record to train. Empty: unified_optimizers on track 1, record7 on track 2.")
#define FLAG_preset(ROW)                                                                      \
  ROW(std::string, preset, "", Unchecked(),                                                   \
      "full: the record's model and schedule. demo: the same code path at a size for a CPU. " \
      "Empty: full on a GPU when shards are found, otherwise demo.")
#define FLAG_steps(ROW)                        \
  ROW(int64_t, steps, -1, Within(-1, kMaxInt), \
      "Optimizer steps; schedules rescale. -1: the recipe's; 0: validate and leave.")
#define FLAG_extension_steps(ROW)                                                             \
  ROW(int64_t, extension_steps, -1, Within(-1, kMaxInt),                                      \
      "Steps of --steps, the last ones, that train at the rate and windows reached. -1: the " \
      "recipe's share.")
#define FLAG_momentum_steps(ROW)                                                            \
  ROW(std::string, momentum_steps, "scaled", Unchecked(),                                   \
      "scaled: momentum's warm-up and cooldown change with --steps. recipe: they stay the " \
      "recipe's numbers of steps, as in the PyTorch original with another num_iterations.")
#define FLAG_schedule_extension(ROW)                                                          \
  ROW(std::string, schedule_extension, "recipe", Unchecked(),                                 \
      "recipe, or legacy: the rate falls to the last step and the last window waits for the " \
      "last validation, as before the record of 2025-10-27. For comparison only.")
#define FLAG_matrix_lr_mul(ROW)                                                              \
  ROW(double, matrix_lr_mul, 1, Unchecked(),                                                 \
      "Multiplies the learning rates of the hidden matrices, and leaves all others as they " \
      "are.")
#define FLAG_seed(ROW) ROW(int64_t, seed, 0, Within(0, kMaxInt64), "Seed of the initial weights.")
#define FLAG_deterministic(ROW)                                                          \
  ROW(bool, deterministic, false, Unchecked(),                                           \
      "Add slot gradients along a fixed tree: the same bits for every --world_size and " \
      "--slots_per_pass (of records with banks one), at the price of memory and speed.")
#define FLAG_on_nonfinite(ROW)                                                              \
  ROW(std::string, on_nonfinite, "stop", Unchecked(),                                       \
      "stop, or skip: what to do with a step whose loss or gradients are not finite. skip " \
      "leaves its update out and says so, until there are more than 10 in a row; the host " \
      "then waits for each step.")

// Data.
#define FLAG_train_files(ROW)                                                            \
  ROW(std::string, train_files, "", Unchecked(),                                         \
      "Globs of training shards, separated by commas. Empty: "                           \
      "$DATA_PATH/data/fineweb10B/fineweb_train_*.bin if there are any; the demo has a " \
      "corpus of its own.")
#define FLAG_val_files(ROW) \
  ROW(std::string, val_files, "", Unchecked(), "Globs of validation shards; as --train_files.")
#define FLAG_batch_tokens(ROW) \
  ROW(int64_t, batch_tokens, 0, Within(0, kMaxInt), "Tokens of a global batch. 0: the recipe's.")
#define FLAG_max_seq_len(ROW) \
  ROW(int64_t, max_seq_len, 0, Within(0, kMaxInt), "Tokens used of one document. 0: the recipe's.")
#define FLAG_slots(ROW) \
  ROW(int64_t, slots, 0, Within(0, 4096), "Equal parts of a global batch. 0: the recipe's.")
#define FLAG_epochs(ROW) \
  ROW(int64_t, epochs, 1, Within(1, kMaxInt), "How often the training shards may be used.")
#define FLAG_val_tokens(ROW) \
  ROW(int64_t, val_tokens, 0, Within(0, kMaxInt * 1024), "Tokens of a validation. 0: the recipe's.")
#define FLAG_val_every(ROW) \
  ROW(int64_t, val_every, 0, Within(0, kMaxInt), "Steps between validations. 0: the recipe's.")

// Machine.
#define FLAG_device(ROW)                    \
  ROW(std::string, device, "", Unchecked(), \
      "cpu or cuda. Empty: cuda in a build with --config=cuda, else cpu.")
#define FLAG_slots_per_pass(ROW)                                                           \
  ROW(int64_t, slots_per_pass, 0, Within(0, 4096),                                         \
      "Slots that a rank runs at once, of the largest that a run has; of smaller ones as " \
      "many more as fit. 0: two on a GPU, else one.")
#define FLAG_memory_gib(ROW)                                                                \
  ROW(double, memory_gib, 0, Unchecked(),                                                   \
      "GiB that a rank may plan on its device; a run that needs more is refused with what " \
      "would fit. 0: as much as there is.")
#define FLAG_threads(ROW)                   \
  ROW(int64_t, threads, 0, Within(0, 1024), \
      "CPU threads for the ops. 0: one per CPU that the process may use.")

// Ranks.
#define FLAG_world_size(ROW)                                                             \
  ROW(int64_t, world_size, 0, Within(0, 4096),                                           \
      "Ranks: threads of this process, or (--config=nccl) the processes that mpirun or " \
      "torchrun started. 0: as many as were started, else one.")
#define FLAG_comm_timeout(ROW)                                                             \
  ROW(absl::Duration, comm_timeout, absl::Seconds(60), Unchecked(),                        \
      "How long a rank waits for the others: at the start, and in a collective. Then all " \
      "ranks end with code 2 and a report of how far each of them is.")
#define FLAG_comm_check(ROW)                                                                   \
  ROW(bool, comm_check, false, Unchecked(),                                                    \
      "Compare order, label, dtype and count of the ranks' collectives before each (slower). " \
      "The demo always does, and so do ranks that are threads.")

// Weights and checkpoints.
#define FLAG_init_from(ROW) \
  ROW(std::string, init_from, "", Unchecked(), "Safetensors file with the initial weights.")
#define FLAG_save_init(ROW) \
  ROW(std::string, save_init, "", Unchecked(), "Where to write the initial weights.")
#define FLAG_out_dir(ROW) \
  ROW(std::string, out_dir, "", Unchecked(), "Folder of checkpoints. Empty: none are written.")
#define FLAG_checkpoint_every(ROW)                      \
  ROW(int64_t, checkpoint_every, 0, Within(0, kMaxInt), \
      "Steps between checkpoints. 0: only at the end and when interrupted.")
#define FLAG_keep_checkpoints(ROW) \
  ROW(int64_t, keep_checkpoints, 3, Within(1, kMaxInt), "How many checkpoints stay.")
#define FLAG_resume(ROW) \
  ROW(bool, resume, false, Unchecked(), "Go on from the latest checkpoint in --out_dir.")

// What it tells.
#define FLAG_metrics(ROW) \
  ROW(std::string, metrics, "", Unchecked(), "File of one JSON object a step.")
#define FLAG_tensorboard_dir(ROW)                    \
  ROW(std::string, tensorboard_dir, "", Unchecked(), \
      "Folder for TensorBoard: a file of the same numbers. Empty: none is written.")
#define FLAG_trace(ROW)                                                                       \
  ROW(std::string, trace, "", Unchecked(),                                                    \
      "File for a Perfetto or Chrome trace of phases, collectives and ops. The traced steps " \
      "run op by op.")
#define FLAG_trace_steps(ROW) \
  ROW(int64_t, trace_steps, 3, Unchecked(), "Steps that are traced, from the second on.")
#define FLAG_overwrite(ROW)                                                                   \
  ROW(bool, overwrite, false, Unchecked(),                                                    \
      "Replace the files that --metrics, --trace and --save_init name, if they are there. A " \
      "resumed run goes on in its metrics file, and the checkpoints of another run stay.")
#define FLAG_sample_lines(ROW) \
  ROW(int64_t, sample_lines, 3, Unchecked(), "Generated lines to print after a demo.")

// Plans, in place of a run.
#define FLAG_plan(ROW)                \
  ROW(bool, plan, false, Unchecked(), \
      "Print parameters, groups, padding, collectives, memory and FLOPs, then exit.")
#define FLAG_card(ROW)                                                                        \
  ROW(std::string, card, "", Unchecked(),                                                     \
      "With --plan: the graphics card that the plan is for, such as h100-80gb; a wrong name " \
      "lists them. Empty: the GPU that is here; h100-80gb where a build with --config=cuda "  \
      "finds none.")
#define FLAG_ranks(ROW)               \
  ROW(int64_t, ranks, 0, Unchecked(), \
      "With --plan: predict what communication would cost on so many ranks.")
#define FLAG_link_gbps(ROW)              \
  ROW(double, link_gbps, 0, Unchecked(), \
      "Of --ranks: 10^9 bits a second of a rank's link, in one direction.")
#define FLAG_latency_us(ROW)              \
  ROW(double, latency_us, 0, Unchecked(), \
      "Of --ranks: microseconds that a message takes at the least.")
#define FLAG_link_shape(ROW)                        \
  ROW(std::string, link_shape, "ring", Unchecked(), \
      "Of --ranks: how collectives travel, ring or tree.")
#define FLAG_phases(ROW)                    \
  ROW(std::string, phases, "", Unchecked(), \
      "Of --ranks: what is computed beside them, from a file that --trace wrote.")
#define FLAG_tflops(ROW) \
  ROW(double, tflops, 0, Unchecked(), "Of --ranks: or at this many TFLOP/s, from the FLOPs.")

// All rows in the order of --help, after the title of their group.
#define TRACK_FLAGS(GROUP, ROW)                                                                    \
  GROUP("Recipe")                                                                                  \
  FLAG_record(ROW) FLAG_preset(ROW) FLAG_steps(ROW) FLAG_extension_steps(ROW) FLAG_momentum_steps( \
      ROW) FLAG_schedule_extension(ROW) FLAG_matrix_lr_mul(ROW) FLAG_seed(ROW)                     \
      FLAG_deterministic(ROW) FLAG_on_nonfinite(ROW) GROUP("Data") FLAG_train_files(               \
          ROW) FLAG_val_files(ROW) FLAG_batch_tokens(ROW) FLAG_max_seq_len(ROW) FLAG_slots(ROW)    \
          FLAG_epochs(ROW) FLAG_val_tokens(ROW) FLAG_val_every(ROW) GROUP("Machine")               \
              FLAG_device(ROW) FLAG_slots_per_pass(ROW) FLAG_memory_gib(ROW) FLAG_threads(ROW)     \
                  GROUP("Ranks") FLAG_world_size(ROW) FLAG_comm_timeout(ROW) FLAG_comm_check(ROW)  \
                      GROUP("Weights and checkpoints") FLAG_init_from(ROW) FLAG_save_init(ROW)     \
                          FLAG_out_dir(ROW) FLAG_checkpoint_every(ROW) FLAG_keep_checkpoints(ROW)  \
                              FLAG_resume(ROW) GROUP("What it tells") FLAG_metrics(ROW)            \
                                  FLAG_tensorboard_dir(ROW) FLAG_trace(ROW) FLAG_trace_steps(ROW)  \
                                      FLAG_overwrite(ROW) FLAG_sample_lines(ROW)                   \
                                          GROUP("Plans, in place of a run") FLAG_plan(ROW)         \
                                              FLAG_card(ROW) FLAG_ranks(ROW) FLAG_link_gbps(ROW)   \
                                                  FLAG_latency_us(ROW) FLAG_link_shape(ROW)        \
                                                      FLAG_phases(ROW) FLAG_tflops(ROW)

namespace tools {

// What an integer flag may be, both ends included.
struct FlagLimits {
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
};

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

constexpr FlagLimits Within(int64_t least, int64_t most) { return {least, most}; }
// For flags that are no integers, or whose values are checked where they are used.
constexpr FlagLimits Unchecked() { return {}; }

// The values of the flags, each under its flag's name. 0 and "" mean "not given" unless the flag's
// help says otherwise.
struct TrackFlags {
#define TRACK_FLAGS_FIELD(type, name, value, limits, help) type name = value;
  TRACK_FLAGS(NO_GROUP, TRACK_FLAGS_FIELD)
#undef TRACK_FLAGS_FIELD

  int gpu = 0;  // no flag: which of the visible ones
};

}  // namespace tools

#endif  // TOOLS_TRAINER_TRACK_FLAGS_H_
