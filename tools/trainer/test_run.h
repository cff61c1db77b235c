// A training small enough to be run dozens of times in a test: the record's layers at
// width 32, 8 slots of 32 tokens, on synthetic text. GPU tests take another width.
#ifndef TOOLS_TRAINER_TEST_RUN_H_
#define TOOLS_TRAINER_TEST_RUN_H_

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "data/shard.h"
#include "gtest/gtest.h"
#include "third_party/absl_compat/check.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/checkpoint/checkpoint_folder.h"
#include "tools/checkpoint/files.h"
#include "tools/recipes/recipe.h"
#include "tools/trainer/run_log.h"
#include "tools/trainer/train.h"
#include "tools/trainer/train_config.h"
#include "tools/trainer/weights.h"

namespace tools {

inline constexpr int64_t kTestSlotTokens = 32;
inline constexpr int kTestSlots = 8;
inline constexpr int64_t kTestTokens = 16384;  // of each shard

// An empty folder of the test's own.
inline std::string FreshFolder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

// Documents of 8 to 27 bytes with a pattern that can be learnt, each behind a BOS.
inline std::vector<uint16_t> SyntheticTokens(int64_t count, uint32_t seed) {
  std::vector<uint16_t> tokens;
  uint32_t state = seed;
  const auto next = [&state] { return (state = state * 1664525u + 1013904223u) >> 16; };
  while (static_cast<int64_t>(tokens.size()) < count) {
    tokens.push_back(data::kGpt2Bos);
    const uint32_t length = 8 + next() % 20, first = next() % 200;
    for (uint32_t i = 0; i < length; ++i) tokens.push_back((first + 3 * i) % 256);
  }
  return tokens;
}

// Every record of both tracks, for suites of whole runs, and the names of their tests.
inline auto AllRecords() {
  return testing::Values("muon_custom_sizing", "fix_muon_lr", "unified_optimizers", "anvil",
                         "record7");
}
inline std::string RecordName(const testing::TestParamInfo<const char*>& record) {
  return record.param;
}

struct TestWidth {
  int64_t heads = 2;
  int64_t head_dim = 16;
  int64_t dim() const { return heads * head_dim; }
};

// The config of a run of `steps` in deterministic mode on one rank of the CPU, with one thread,
// whose shards lie in `folder`.
inline TrainConfig TestConfig(const std::string& folder, int64_t steps, TestWidth width = {},
                              const std::string& record = "muon_custom_sizing") {
  TrainConfig config;
  config.token_map = data::TokenMap::ByteVocabulary();
  absl::StatusOr<Recipe> recipe =
      FindRecipe(record, "demo", PaddedVocab(config.token_map.vocab_size()));
  CHECK(recipe.ok()) << recipe.status();
  config.recipe = *std::move(recipe);
  model::GptConfig& model = config.recipe.model;
  model.dim = width.dim();
  model.heads = width.heads;
  model.head_dim = width.head_dim;
  model.mlp_dim = 4 * width.dim();
  const absl::Status valid = model::Validate(model);
  CHECK(valid.ok()) << valid;
  Rescale(&config.recipe, steps);
  config.recipe.schedules.rotary.head_dim = static_cast<int>(width.head_dim);
  // Stages have 16, 32, 48, ... tokens a slot.
  std::vector<sched::BatchStage>& stages = config.recipe.schedules.batch.stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    const int64_t tokens = stages.size() == 1 ? kTestSlotTokens : 16 * static_cast<int64_t>(i + 1);
    stages[i].tokens = kTestSlots * tokens;
  }
  config.recipe.schedules.validation.every = 1000;
  config.recipe.data = {.mode = config.recipe.data.mode,
                        .slots = kTestSlots,
                        .max_doc_len = kTestSlotTokens,
                        .max_documents = 16,
                        .val_tokens = 128,
                        .val_slot_tokens = 64,
                        .val_max_documents = 32};
  config.train_files = {folder + "/train.bin"};
  config.val_files = {folder + "/val.bin"};
  for (const auto& [file, seed] :
       {std::pair(config.train_files[0], 1u), {config.val_files[0], 2u}}) {
    const absl::Status written = data::WriteShard(file, SyntheticTokens(kTestTokens, seed));
    CHECK(written.ok()) << written;
  }
  config.seed = 7;
  config.deterministic = true;
  config.device = "cpu";
  config.threads = 1;
  config.comm_timeout = absl::Minutes(1);
  config.keep_checkpoints = 100;
  config.metrics = folder + "/metrics.jsonl";
  return config;
}

// What a run left.
struct TestRun {
  absl::Status status;
  TensorMap weights;                // at the end; empty after an error
  std::vector<std::string> losses;  // "step" and all "loss"es, as the metrics print them
  double val_loss = 0;
  std::string log = "";  // what it printed

  // Without the log, which has times in it.
  bool operator==(const TestRun& other) const {
    return weights == other.weights && losses == other.losses;
  }
};

inline std::vector<std::string> LossesOf(const std::string& metrics) {
  const absl::StatusOr<std::string> text = ReadFile(metrics);
  CHECK(text.ok()) << text.status();
  std::vector<std::string> losses;
  for (size_t at = 0; at < text->size();) {
    const size_t end = text->find('\n', at);
    const std::string line = text->substr(at, end - at);
    // {"step":1,"loss":5.95,... or {"step":0,"val_loss":5.95,...: to the second comma.
    losses.push_back(line.substr(0, line.find(',', line.find(',') + 1)));
    at = end + 1;
  }
  return losses;
}

inline TestRun RunTraining(const TrainConfig& config, RunTrace* trace = nullptr) {
  TestRun run;
  std::FILE* const printed = std::tmpfile();
  CHECK(printed != nullptr);
  absl::StatusOr<std::unique_ptr<RunLog>> log =
      RunLog::Create(config.metrics, /*append=*/false, config.total_steps(), printed);
  CHECK(log.ok()) << log.status();
  const auto when_done = [&run](const TrainedModel& trained) {
    run.weights = WeightsToHost(trained.parameters, trained.queue);
    run.val_loss = trained.val_loss;
    return absl::OkStatus();
  };
  run.status = Train(config, **log, when_done, trace);
  const absl::Status closed = (*log)->Close();
  CHECK(closed.ok()) << closed;
  run.log.resize(std::ftell(printed));
  std::rewind(printed);
  CHECK_EQ(std::fread(run.log.data(), 1, run.log.size(), printed), run.log.size());
  std::fclose(printed);
  run.losses = LossesOf(config.metrics);
  return run;
}

inline std::string StepFolder(const TrainConfig& config, int64_t step) {
  return CheckpointPath(config.checkpoint_root(), step);
}

// The run of `config` (deterministic), and from its checkpoint after each of `steps` again, on
// three ranks after those that three divides: the same losses from there on, weights and moments.
inline void ExpectResumesAt(TrainConfig config, const std::vector<int64_t>& steps) {
  namespace fs = std::filesystem;
  const std::string folder = fs::path(config.metrics).parent_path();
  config.out_dir = folder + "/out";
  config.checkpoint_every = 1;
  const TestRun whole = RunTraining(config);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  const std::string last = StepFolder(config, config.total_steps());
  const absl::StatusOr<Checkpoint> want = LoadCheckpoint(last);
  ASSERT_TRUE(want.ok()) << want.status();
  const std::string kept = folder + "/kept";
  fs::rename(config.checkpoint_root(), kept);
  config.resume = true;
  config.checkpoint_every = 0;
  for (const int64_t step : steps) {
    fs::remove_all(config.checkpoint_root());
    fs::create_directories(config.checkpoint_root());
    fs::copy(CheckpointPath(kept, step), StepFolder(config, step), fs::copy_options::recursive);
    config.world_size = step % 3 == 0 ? 3 : 1;
    const TestRun rest = RunTraining(config);
    ASSERT_TRUE(rest.status.ok()) << step << ": " << rest.status;
    EXPECT_TRUE(rest.weights == whole.weights) << step;
    const int64_t lines = config.total_steps() - step + 1;  // and the last validation
    EXPECT_EQ(rest.losses, std::vector<std::string>(whole.losses.end() - lines, whole.losses.end()))
        << step;
    const absl::StatusOr<Checkpoint> got = LoadCheckpoint(last);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(got->optimizer.tensors == want->optimizer.tensors) << step;
  }
}

// The line "token stream: ...".
inline std::string StreamOf(const TestRun& run) {
  const size_t begin = run.log.find("token stream: ");
  CHECK(begin != std::string::npos) << run.log;
  return run.log.substr(begin, run.log.find('\n', begin) - begin);
}

}  // namespace tools

#endif  // TOOLS_TRAINER_TEST_RUN_H_
