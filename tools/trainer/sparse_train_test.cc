// Whole runs of Anvil whose value embeddings move by rows, beside runs that move whole tables: the
// same bits, since both add in rank order.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/loader.h"
#include "gtest/gtest.h"
#include "optim/param_table.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/run_trace.h"
#include "tools/trainer/sparse_plan_text.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

// Events of the value embeddings at 1, 3 and 5, then at 7, 11, 15 and 19.
constexpr int64_t kSteps = 22;

TrainConfig SparseTest(const std::string& name, int world_size) {
  TrainConfig config = TestConfig(FreshFolder(name), kSteps, {}, "anvil");
  config.recipe.schedules.run = {.scheduled_steps = 18, .extension_steps = 4};
  config.deterministic = false;
  config.world_size = world_size;
  return config;
}

TrainConfig Dense(TrainConfig config) {
  config.recipe.optimizer = optim::WithoutSparseRows(config.recipe.optimizer);
  return config;
}

// Lines that are no validation's.
std::vector<std::string> TrainingLosses(const TestRun& run) {
  std::vector<std::string> losses = run.losses;
  losses.erase(
      std::remove_if(losses.begin(), losses.end(),
                     [](const std::string& line) { return absl::StrContains(line, "val_loss"); }),
      losses.end());
  return losses;
}

TEST(SparseTrain, AN_23_TheRunIsThatOfADenseExchange) {
  for (const int world_size : {2, 3, 4}) {
    const TrainConfig config = SparseTest(absl::StrCat("sparse_", world_size), world_size);
    RunTrace trace({.skip = 1, .steps = 3});
    const TestRun sparse = RunTraining(config, &trace);
    ASSERT_TRUE(sparse.status.ok()) << sparse.status;
    // It was one: an event among the traced steps moved rows.
    int moves = 0;
    for (const TracedStep& step : trace.steps()) {
      for (const CollectiveSpan& span : step.collectives) moves += span.name == "all_to_all_rows";
    }
    EXPECT_GT(moves, 0);
    EXPECT_EQ(sparse, RunTraining(Dense(config))) << world_size << " ranks";
  }
}

// Whole tables are gathered for every validation and checkpoint, and the run goes on as if not.
TEST(SparseTrain, AN_24_ValidationsAndCheckpointsSeeWholeTables) {
  TrainConfig config = SparseTest("sparse_busy", 3);
  const TestRun plain = RunTraining(config);
  ASSERT_TRUE(plain.status.ok()) << plain.status;
  config.recipe.schedules.validation.every = 1;
  config.checkpoint_every = 1;
  const std::string folder = fs::path(config.metrics).parent_path();
  config.out_dir = folder + "/sparse";
  const TestRun sparse = RunTraining(config);
  EXPECT_EQ(TrainingLosses(sparse), TrainingLosses(plain));
  EXPECT_TRUE(sparse.weights == plain.weights);
  TrainConfig dense = Dense(config);
  dense.out_dir = folder + "/dense";
  EXPECT_EQ(sparse, RunTraining(dense));  // with the validations' losses
  for (int64_t step = 1; step <= kSteps; ++step) {
    const auto got = LoadCheckpoint(StepFolder(config, step));
    const auto want = LoadCheckpoint(StepFolder(dense, step));
    ASSERT_TRUE(got.ok() && want.ok()) << got.status() << want.status();
    EXPECT_TRUE(got->model.tensors == want->model.tensors) << step;
    EXPECT_TRUE(got->optimizer.tensors == want->optimizer.tensors) << step;
  }
}

// Cut within cycles and between them, before, at and after the change of the cadence, and gone on
// with on other ranks.
TEST(SparseTrain, ResumesAsADenseExchange) {
  TrainConfig config = SparseTest("sparse_resume", 3);
  const std::string folder = fs::path(config.metrics).parent_path();
  config.out_dir = folder + "/out";
  config.checkpoint_every = 1;
  ASSERT_TRUE(RunTraining(config).status.ok());
  const std::string kept = folder + "/kept";
  fs::rename(config.checkpoint_root(), kept);
  config.resume = true;
  config.checkpoint_every = 0;
  for (const int64_t step : {3, 6, 8, 10, 21}) {
    const auto rest = [&](const TrainConfig& of) {
      fs::remove_all(config.checkpoint_root());
      fs::create_directories(config.checkpoint_root());
      fs::copy(CheckpointPath(kept, step), StepFolder(config, step), fs::copy_options::recursive);
      const TestRun run = RunTraining(of);
      EXPECT_TRUE(run.status.ok()) << step << ": " << run.status;
      return run;
    };
    config.world_size = step % 2 == 0 ? 2 : 4;
    EXPECT_EQ(rest(config), rest(Dense(config))) << step;
  }
}

// Beside a count by sets, of the first event.
TEST(SparseTrain, ThePlanCountsRows) {
  TrainConfig config = SparseTest("sparse_plan", 3);
  const data::LoaderOptions options{.files = config.train_files,
                                    .stages = config.loader_stages(),
                                    .token_map = config.token_map,
                                    .epochs = 1};
  const auto loader = *data::TrainLoader::Create(options, {}, 0);
  std::set<int32_t> read[3];
  for (int step = 0; step < 2; ++step) {
    const auto batch = *loader->Next();
    for (int slot = 0; slot < 8; ++slot) {
      const std::vector<int32_t>& inputs = batch->slots[slot].inputs;
      read[slot < 3 ? 0 : slot < 6 ? 1 : 2].insert(inputs.begin(), inputs.end());
    }
  }
  int64_t rows = 0;
  for (int rank = 0; rank < 3; ++rank) {
    for (const int32_t row : read[rank]) rows += row / 128 != rank;
  }
  const auto text = SparsePlanText(config);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(absl::StrContains(*text, "of all 3 ranks: whole tables are 768 rows, 0.4 MB\n"))
      << *text;
  EXPECT_TRUE(absl::StrContains(
      *text, absl::StrFormat("  after 2 steps of     128 tokens: %7d rows,", rows)))
      << rows << "\n"
      << *text;
  config.deterministic = true;
  EXPECT_EQ(*SparsePlanText(config), "");
}

constexpr uint16_t kRare = 255;

// Steps that read kRare are not finite: its value embeddings are as large as bf16 goes, and scalars
// multiply them by 16.
TEST(SparseTrain, SkippedStepsAreThoseOfADenseExchange) {
  TrainConfig config = SparseTest("sparse_skip", 3);
  std::vector<uint16_t> tokens = SyntheticTokens(kTestTokens, 3);
  for (uint16_t& token : tokens) token = token < 256 ? token / 2 : token;
  tokens[601] = kRare;
  ASSERT_TRUE(data::WriteShard(config.train_files[0], tokens).ok());
  config.init_from = std::string(fs::path(config.metrics).parent_path()) + "/init.safetensors";
  TrainConfig none = config;
  none.init_from = "";
  none.save_init = config.init_from;
  none.recipe.schedules = sched::Rescaled(none.recipe.schedules, 0);
  ASSERT_TRUE(RunTraining(none).status.ok());
  SafetensorsFile file = *ReadSafetensors(config.init_from);
  const auto set = [](HostTensor* tensor, int64_t begin, int64_t count, uint32_t f32) {
    const size_t width = kernels::SizeOf(tensor->dtype);
    for (int64_t i = begin; i < begin + count; ++i) {
      const char* bytes = reinterpret_cast<const char*>(&f32) + 4 - width;
      std::memcpy(tensor->bytes.data() + i * width, bytes, width);
    }
  };
  for (auto& [name, tensor] : file.tensors) {
    const int64_t cols = tensor.shape.back();
    if (absl::StartsWith(name, "value_embeds")) set(&tensor, kRare * cols, cols, 0x7f780000);
    if (name == "scalars") set(&tensor, 0, cols, 0x41800000);
  }
  ASSERT_TRUE(WriteSafetensors(config.init_from, file).ok());
  config.on_nonfinite = OnNonFinite::kSkip;
  const TestRun sparse = RunTraining(config);
  ASSERT_TRUE(sparse.status.ok()) << sparse.status;
  EXPECT_TRUE(absl::StrContains(sparse.log, "steps were left out")) << sparse.log;
  EXPECT_EQ(sparse, RunTraining(Dense(config)));
}

}  // namespace
}  // namespace tools
