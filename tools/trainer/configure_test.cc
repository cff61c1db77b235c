#include "tools/trainer/configure.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "data/shard.h"
#include "gtest/gtest.h"
#include "tools/trainer/exit_code.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

class ConfigureTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/configure";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    ASSERT_TRUE(data::WriteShard(folder_ + "/train_1.bin", {50256, 1, 2}).ok());
    ASSERT_TRUE(data::WriteShard(folder_ + "/train_2.bin", {50256, 3, 4}).ok());
    ASSERT_TRUE(data::WriteShard(folder_ + "/val_1.bin", {50256, 5, 6}).ok());
    good_.preset = "demo";
    good_.train_files = folder_ + "/train_*.bin";
    good_.val_files = folder_ + "/val_*.bin";
  }

  // Refused with exit code 1 and one line that has all of `words`; nothing was written.
  void ExpectRefused(const TrackFlags& flags, const std::vector<std::string>& words) {
    const absl::StatusOr<Configured> configured = Configure(flags);
    ASSERT_FALSE(configured.ok()) << words.front();
    EXPECT_EQ(ExitCode(configured.status()), 1) << configured.status();
    EXPECT_FALSE(absl::StrContains(configured.status().message(), "\n")) << configured.status();
    for (const std::string& word : words) {
      EXPECT_TRUE(absl::StrContains(configured.status().message(), word))
          << "no \"" << word << "\" in: " << configured.status();
    }
    EXPECT_FALSE(fs::exists(folder_ + "/out")) << configured.status();
  }

  std::string folder_;
  TrackFlags good_;
};

TEST_F(ConfigureTest, TheRecipeWithOverrides) {
  TrackFlags flags = good_;
  flags.steps = 30;
  flags.batch_tokens = 1024;
  flags.max_seq_len = 64;
  flags.slots = 4;
  flags.slots_per_pass = 2;
  flags.world_size = 3;
  flags.val_tokens = 2048;
  flags.val_every = 7;
  flags.seed = 5;
  flags.out_dir = folder_ + "/out";
  const absl::StatusOr<Configured> configured = Configure(flags);
  ASSERT_TRUE(configured.ok()) << configured.status();
  const TrainConfig& config = configured->config;
  EXPECT_EQ(config.total_steps(), 30);
  EXPECT_EQ(config.slot_tokens(0), 256);
  EXPECT_EQ(config.batch_options(256).slots, 4);
  EXPECT_EQ(config.batch_options(256).max_doc_len, 64);
  EXPECT_EQ(config.slots_per_pass, 2);
  EXPECT_EQ(config.world_size, 3);
  EXPECT_EQ(config.recipe.data.val_tokens, 2048);
  EXPECT_EQ(config.recipe.schedules.validation.every, 7);
  EXPECT_EQ(config.seed, 5u);
  EXPECT_EQ(config.train_files,
            (std::vector<std::string>{folder_ + "/train_1.bin", folder_ + "/train_2.bin"}));
  EXPECT_EQ(config.recipe.model.vocab_size, 50304);
  EXPECT_TRUE(fs::is_directory(folder_ + "/out"));
  EXPECT_TRUE(fs::is_empty(folder_ + "/out"));
}

TEST_F(ConfigureTest, DefaultsAreTheRecipes) {
  const absl::StatusOr<Configured> configured = Configure(good_);
  ASSERT_TRUE(configured.ok()) << configured.status();
  const Recipe recipe = *FindRecipe("unified_optimizers", "demo", 50304);
  const TrainConfig& config = configured->config;
  EXPECT_EQ(config.total_steps(), recipe.schedules.run.total());
  EXPECT_EQ(config.recipe.data.slots, recipe.data.slots);
  EXPECT_EQ(config.recipe.record, "unified_optimizers");
  EXPECT_EQ(config.slots_per_pass, 1);
  TrackFlags none = good_;
  none.steps = 0;  // validates and leaves
  ASSERT_TRUE(Configure(none).ok());
  EXPECT_EQ(Configure(none)->config.total_steps(), 0);
}

TEST_F(ConfigureTest, StepsThatStay) {
  TrackFlags flags = good_;
  flags.preset = "full";
  flags.record = "muon_custom_sizing";
  flags.steps = 110;
  const auto scaled = Configure(flags);
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_EQ(scaled->config.recipe.schedules.run.extension_steps, 3);
  EXPECT_EQ(scaled->config.recipe.schedules.momentum.warmup_steps, 20);

  flags.extension_steps = 10;
  flags.momentum_steps = "recipe";
  const auto kept = Configure(flags);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->config.total_steps(), 110);
  EXPECT_EQ(kept->config.recipe.schedules.run.extension_steps, 10);
  EXPECT_EQ(kept->config.recipe.schedules.momentum.warmup_steps, 300);
  EXPECT_TRUE(absl::StrContains(kept->notes, "10 of extension")) << kept->notes;
  EXPECT_TRUE(absl::StrContains(kept->notes, "warm-up of 300 steps")) << kept->notes;

  flags.steps = -1;  // the recipe's 1680, of which 10 instead of 40
  EXPECT_EQ(Configure(flags)->config.recipe.schedules.run.scheduled_steps, 1670);
  flags.steps = 9;
  ExpectRefused(flags, {"--extension_steps=10", "more than the 9 steps"});
  flags.extension_steps = -2;
  ExpectRefused(flags, {"--extension_steps=-2", "must be from -1"});
  flags.extension_steps = -1;
  flags.momentum_steps = "keep";
  ExpectRefused(flags, {"--momentum_steps=keep", "scaled or recipe"});
}

TEST_F(ConfigureTest, X1_ValuesOutOfRange) {
  const auto refused = [this](auto member, int64_t value, const std::string& name) {
    TrackFlags flags = good_;
    flags.out_dir = folder_ + "/out";
    flags.*member = value;
    ExpectRefused(flags, {"--" + name + "=" + std::to_string(value), "must be from"});
  };
  const int64_t over = int64_t{1} << 31;
  refused(&TrackFlags::steps, -2, "steps");
  refused(&TrackFlags::steps, over, "steps");
  refused(&TrackFlags::batch_tokens, -1, "batch_tokens");
  refused(&TrackFlags::batch_tokens, over, "batch_tokens");
  refused(&TrackFlags::max_seq_len, -1, "max_seq_len");
  refused(&TrackFlags::val_tokens, -1, "val_tokens");
  refused(&TrackFlags::val_every, -1, "val_every");
  refused(&TrackFlags::slots, -1, "slots");
  refused(&TrackFlags::slots, 4097, "slots");
  refused(&TrackFlags::slots_per_pass, -1, "slots_per_pass");
  refused(&TrackFlags::epochs, 0, "epochs");
  refused(&TrackFlags::seed, -1, "seed");
  refused(&TrackFlags::world_size, -1, "world_size");
  refused(&TrackFlags::threads, -1, "threads");
  refused(&TrackFlags::checkpoint_every, -1, "checkpoint_every");
  refused(&TrackFlags::keep_checkpoints, 0, "keep_checkpoints");
  TrackFlags flags = good_;
  flags.comm_timeout = absl::Seconds(-1);
  ExpectRefused(flags, {"--comm_timeout"});
}

TEST_F(ConfigureTest, ACardIsOfAPlan) {
  TrackFlags flags = good_;
  flags.card = "h100-80gb";
  ExpectRefused(flags, {"--card=h100-80gb", "--plan"});
  flags.plan = true;
  const absl::StatusOr<Configured> configured = Configure(flags);
  ASSERT_TRUE(configured.ok()) << configured.status();
  EXPECT_EQ(configured->config.device, "cuda");
  ASSERT_TRUE(configured->card.has_value());
  EXPECT_EQ(configured->card->name, "h100-80gb");
  EXPECT_EQ(configured->card_note, "");
  EXPECT_EQ(configured->config.slots_per_pass, 2);  // as on a GPU
  flags.device = "cpu";
  ExpectRefused(flags, {"--card=h100-80gb", "--device=cpu"});
  flags.device = "";
  flags.card = "h100";
  ExpectRefused(flags, {"--card=h100", "h100-80gb", "a100-40gb"});
}

TEST_F(ConfigureTest, APlanNeedsNoShards) {
  TrackFlags flags;
  flags.preset = "full";
  setenv("DATA_PATH", folder_.c_str(), 1);
  ExpectRefused(flags, {"--preset=full"});
  flags.plan = true;
  const absl::StatusOr<Configured> configured = Configure(flags);
  unsetenv("DATA_PATH");
  ASSERT_TRUE(configured.ok()) << configured.status();
  EXPECT_TRUE(configured->config.train_files.empty());
  EXPECT_EQ(configured->config.recipe.model.vocab_size, 50304);
}

TEST_F(ConfigureTest, NamesComeFirst) {
  TrackFlags flags = good_;
  flags.train_files = folder_ + "/none_*.bin";
  flags.record = "muon_custom_size";
  ExpectRefused(flags, {"--record=muon_custom_size", "muon_custom_sizing"});
  flags = good_;
  flags.preset = "fulll";
  ExpectRefused(flags, {"--preset=fulll", "full, demo"});
}

TEST_F(ConfigureTest, TheOldRuleForTheExtensionIsAskedForByName) {
  TrackFlags flags = good_;
  flags.record = "fix_muon_lr";
  const auto configured = Configure(flags);
  ASSERT_TRUE(configured.ok()) << configured.status();
  EXPECT_TRUE(configured->config.recipe.schedules.window.final_in_extension);
  flags.schedule_extension = "legacy";
  const auto legacy = Configure(flags);
  ASSERT_TRUE(legacy.ok()) << legacy.status();
  EXPECT_TRUE(sched::HasLegacyExtension(legacy->config.recipe.schedules));
  EXPECT_TRUE(absl::StrContains(legacy->notes, "legacy"));
  flags.schedule_extension = "old";
  ExpectRefused(flags, {"--schedule_extension=old", "recipe or legacy"});
}

// Of the matrices alone, whatever rule the build flags gave them.
TEST_F(ConfigureTest, RatesOfMatricesAreMultiplied) {
  const auto plain = Configure(good_);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(absl::StrContains(plain->notes, "matrices"));
  TrackFlags flags = good_;
  flags.matrix_lr_mul = 0.5;
  const auto halved = Configure(flags);
  ASSERT_TRUE(halved.ok()) << halved.status();
  EXPECT_TRUE(absl::StrContains(halved->notes, "rates of matrices x 0.5"));
  EXPECT_EQ(halved->config.matrix_lr_mul, 0.5);
  const auto& table = plain->config.recipe.optimizer.table;
  for (size_t i = 0; i < table.size(); ++i) {
    const bool matrices = table[i].label == "attn" || table[i].label == "mlp";
    EXPECT_EQ(halved->config.recipe.optimizer.table[i].lr, table[i].lr * (matrices ? 0.5 : 1))
        << table[i].label;
  }
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    flags.matrix_lr_mul = bad;
    ExpectRefused(flags, {"--matrix_lr_mul=", "positive"});
  }
}

TEST_F(ConfigureTest, FilesThatAreNotThere) {
  TrackFlags flags = good_;
  flags.out_dir = folder_ + "/out";
  flags.train_files = folder_ + "/none_*.bin";
  ExpectRefused(flags, {folder_ + "/none_*.bin"});
  flags.train_files = folder_ + "/train_1.bin," + folder_ + "/missing.bin";
  ExpectRefused(flags, {folder_ + "/missing.bin"});
  flags.train_files = good_.train_files;
  flags.val_files = folder_ + "/none_*.bin";
  ExpectRefused(flags, {folder_ + "/none_*.bin"});
  flags.val_files = "";
  ExpectRefused(flags, {"--train_files", "--val_files", "both"});
}

TEST_F(ConfigureTest, TheFullPresetNeedsShards) {
  TrackFlags flags = good_;
  flags.preset = "full";
  flags.train_files = flags.val_files = "";
  setenv("DATA_PATH", folder_.c_str(), 1);
  ExpectRefused(flags, {folder_ + "/data/fineweb10B/fineweb_train_*.bin", "--preset=full"});
  unsetenv("DATA_PATH");
}

TEST_F(ConfigureTest, D18_TrainAndValidationShareAFile) {
  TrackFlags flags = good_;
  flags.out_dir = folder_ + "/out";
  flags.val_files = folder_ + "/train_2.bin";
  ExpectRefused(flags, {folder_ + "/train_2.bin", "--train_files", "--val_files"});
  fs::create_symlink(folder_ + "/train_1.bin", folder_ + "/other_name.bin");
  flags.val_files = folder_ + "/other_name.bin";
  ExpectRefused(flags, {folder_ + "/other_name.bin"});
}

TEST_F(ConfigureTest, D19_MoreRanksThanSlots) {
  TrackFlags flags = good_;
  flags.out_dir = folder_ + "/out";
  flags.world_size = 9;
  ExpectRefused(flags, {"--world_size=9", "8 slots", "at most 8 ranks", "--slots"});
  flags.world_size = 1;
  flags.slots_per_pass = 9;
  ExpectRefused(flags, {"--slots_per_pass=9", "8 slots"});
}

TEST_F(ConfigureTest, BatchesThatDoNotDivide) {
  TrackFlags flags = good_;
  flags.out_dir = folder_ + "/out";
  flags.batch_tokens = 1000;
  ExpectRefused(flags, {"--batch_tokens=1000", "8 slots", "multiple of 128"});
  flags.batch_tokens = 1024 + 8;  // slots of 129 tokens
  ExpectRefused(flags, {"--batch_tokens=1032", "multiple of 128"});
  flags = good_;
  flags.out_dir = folder_ + "/out";
  flags.slots = 3;
  ExpectRefused(flags, {"--batch_tokens=2048", "3 slots", "multiple of 48"});  // the first stage
  flags = good_;
  flags.out_dir = folder_ + "/out";
  flags.val_tokens = 5000;
  ExpectRefused(flags, {"--val_tokens=5000", "4096"});
}

// Small slots run as many at once as make up a large one's tokens and divide the rank's slots.
TEST_F(ConfigureTest, SlotsAPassOfEachStage) {
  TrackFlags flags = good_;
  flags.slots_per_pass = 2;
  const absl::StatusOr<Configured> configured = Configure(flags);
  ASSERT_TRUE(configured.ok()) << configured.status();
  const TrainConfig& config = configured->config;
  EXPECT_EQ(config.slot_sizes(), (std::vector<int64_t>{256, 512, 768}));
  EXPECT_EQ(config.pass_slots(256, 8), 4);  // of 6
  EXPECT_EQ(config.pass_slots(512, 8), 2);  // of 3
  EXPECT_EQ(config.pass_slots(512, 3), 3);
  EXPECT_EQ(config.pass_slots(768, 8), 2);
  EXPECT_EQ(config.pass_slots(768, 1), 1);
  flags.deterministic = true;
  ExpectRefused(flags, {"--slots_per_pass=2", "deterministic", "one slot a pass"});
  flags.slots_per_pass = 0;
  ASSERT_TRUE(Configure(flags).ok());
  EXPECT_EQ(Configure(flags)->config.pass_slots(256, 8), 1);
}

TEST_F(ConfigureTest, FoldersOfCheckpoints) {
  TrackFlags flags = good_;
  flags.resume = true;
  ExpectRefused(flags, {"--resume", "--out_dir"});
  flags = good_;
  flags.checkpoint_every = 5;
  ExpectRefused(flags, {"--checkpoint_every", "--out_dir"});
  // A file where the folder should be: refused for root too, whom permissions do not stop.
  std::ofstream(folder_ + "/file") << "x";
  flags = good_;
  flags.out_dir = folder_ + "/file";
  ExpectRefused(flags, {"--out_dir=" + folder_ + "/file"});
  flags.out_dir = folder_ + "/file/inside";
  ExpectRefused(flags, {"--out_dir=" + folder_ + "/file/inside"});
  EXPECT_EQ(fs::file_size(folder_ + "/file"), 1u);
}

}  // namespace
}  // namespace tools
