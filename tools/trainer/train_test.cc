#include "tools/trainer/train.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/exit_code.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

Checkpoint Load(const std::string& path) {
  absl::StatusOr<Checkpoint> checkpoint = LoadCheckpoint(path);
  CHECK(checkpoint.ok()) << checkpoint.status();
  return *std::move(checkpoint);
}

std::vector<double> Values(const HostTensor& tensor) {
  std::vector<double> values;
  if (tensor.dtype == kernels::DType::kF32) {
    for (size_t at = 0; at < tensor.bytes.size(); at += 4) {
      float value;
      std::memcpy(&value, tensor.bytes.data() + at, 4);
      values.push_back(value);
    }
    return values;
  }
  CHECK(tensor.dtype == kernels::DType::kBF16);
  for (size_t at = 0; at < tensor.bytes.size(); at += 2) {
    uint32_t bits = 0;
    std::memcpy(reinterpret_cast<char*>(&bits) + 2, tensor.bytes.data() + at, 2);
    float value;
    std::memcpy(&value, &bits, 4);
    values.push_back(value);
  }
  return values;
}

// |a - b| / |a|, over all elements; |b| if a is zero.
double RelativeDistance(const HostTensor& a, const HostTensor& b) {
  const std::vector<double> x = Values(a), y = Values(b);
  double difference = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += x[i] * x[i];
  }
  return std::sqrt(difference / (norm > 0 ? norm : 1));
}

// Makes it another model, with the same layers.
void Widen(model::GptConfig* model) {
  model->dim = 64;
  model->heads = 4;
  model->head_dim = 16;
  model->mlp_dim = 256;
}

TEST(Train, TheSameSeedTwiceIsTheSameBits) {
  TrainConfig config = TestConfig(FreshFolder("twice"), 4);
  config.deterministic = false;
  const TestRun first = RunTraining(config);
  ASSERT_TRUE(first.status.ok()) << first.status;
  ASSERT_EQ(first.losses.size(), 6u);  // 4 steps, 2 validations
  EXPECT_EQ(RunTraining(config), first);
  config.seed = 8;
  EXPECT_NE(RunTraining(config).losses[3], first.losses[3]) << "the seed changes nothing";
}

// The mean over the 8 slots of summed losses, however they are spread.
TEST(Train, T1_53_DeterministicIsTheSameBitsWithAnyPasses) {
  TrainConfig config = TestConfig(FreshFolder("any_passes"), 4);
  const TestRun one = RunTraining(config);
  ASSERT_TRUE(one.status.ok()) << one.status;
  for (const auto& [world_size, slots_per_pass] :
       std::vector<std::pair<int, int>>{{1, 2}, {1, 3}, {1, 8}, {3, 2}}) {
    config.world_size = world_size;
    config.slots_per_pass = slots_per_pass;
    const TestRun run = RunTraining(config);
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_TRUE(run == one) << world_size << " ranks, " << slots_per_pass << " slots a pass";
  }
}

// Without `deterministic` only the order of the sum over slots differs. Muon's momentum after one
// step is f32 and in proportion to the gradient: 8 terms in another order differ by a few 2^-24.
// Adam's moments are bf16: one rounding may fall on the other side, 2^-8 of one element.
TEST(Train, T1_53_OtherwiseGradientsAgreeClosely) {
  const std::string folder = FreshFolder("close");
  TrainConfig config = TestConfig(folder, 4);
  config.out_dir = folder + "/trained";
  ASSERT_TRUE(RunTraining(config).status.ok());  // weights whose gradients are not zero
  config.init_from = StepFolder(config, 4) + "/model.safetensors";
  config.recipe.schedules = sched::Rescaled(config.recipe.schedules, 1);
  config.deterministic = false;
  config.out_dir = folder + "/one";
  const TestRun one = RunTraining(config);
  ASSERT_TRUE(one.status.ok()) << one.status;
  const Checkpoint want = Load(StepFolder(config, 1));
  for (int world_size : {2, 4, 8}) {
    config.world_size = world_size;
    config.out_dir = absl::StrCat(folder, "/ranks", world_size);
    const TestRun run = RunTraining(config);
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_EQ(run.losses[1], one.losses[1]) << "the forward pass does not depend on ranks";
    const Checkpoint got = Load(StepFolder(config, 1));
    int exact = 0;
    for (const auto& [name, tensor] : want.optimizer.tensors) {
      const bool f32 = tensor.dtype == kernels::DType::kF32;
      exact += f32;
      EXPECT_LT(RelativeDistance(tensor, got.optimizer.tensors.at(name)), f32 ? 1e-5 : 1e-3)
          << name << ", " << world_size << " ranks";
    }
    EXPECT_GT(exact, 0) << "no moment shows the gradient in f32";
    for (const auto& [name, tensor] : want.model.tensors) {
      EXPECT_LT(RelativeDistance(tensor, got.model.tensors.at(name)), 2e-2) << name;
    }
  }
}

TEST(Train, ResumingIsTheSameBits) {
  const std::string folder = FreshFolder("resume");
  TrainConfig config = TestConfig(folder, 5);
  config.out_dir = folder + "/out";
  config.checkpoint_every = 1;
  const TestRun whole = RunTraining(config);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  const std::string kept = folder + "/kept";
  fs::copy(StepFolder(config, 2), kept, fs::copy_options::recursive);
  config.resume = true;
  for (const int world_size : {1, 3}) {
    fs::remove_all(config.checkpoint_root());
    fs::create_directories(config.checkpoint_root());
    fs::copy(kept, StepFolder(config, 2), fs::copy_options::recursive);
    config.world_size = world_size;
    const TestRun rest = RunTraining(config);
    ASSERT_TRUE(rest.status.ok()) << rest.status;
    EXPECT_TRUE(rest.weights == whole.weights) << world_size;
    // Steps 3, 4, 5 and the last validation.
    EXPECT_EQ(rest.losses, std::vector<std::string>(whole.losses.end() - 4, whole.losses.end()));
  }
}

TEST(Train, T1_47_EachStepIsOneUpdateOfAll) {
  const std::string folder = FreshFolder("updates");
  TrainConfig config = TestConfig(folder, 3);
  config.out_dir = folder + "/out";
  ASSERT_TRUE(RunTraining(config).status.ok());
  const Checkpoint last = Load(StepFolder(config, 3));
  EXPECT_TRUE(absl::StrContains(last.state_json, "\"updates\": 3")) << last.state_json;
  EXPECT_TRUE(absl::StrContains(last.state_json, "\"tokens\": 768")) << last.state_json;
}

TEST(Train, ResumeOfAnotherRunIsRefusedWithBothValues) {
  const std::string folder = FreshFolder("another_run");
  TrainConfig config = TestConfig(folder, 2);
  config.out_dir = folder + "/out";
  ASSERT_TRUE(RunTraining(config).status.ok());
  config.resume = true;
  const auto refused = [](const TrainConfig& other, const std::string& key,
                          const std::string& there, const std::string& here) {
    const absl::Status status = RunTraining(other).status;
    EXPECT_EQ(ExitCode(status), 1) << status;
    for (const std::string& word : {key, there, here}) {
      EXPECT_TRUE(absl::StrContains(status.message(), word)) << word << ": " << status;
    }
  };
  TrainConfig other = config;
  other.seed = 8;
  refused(other, "seed", "7", "8");
  other = config;
  other.recipe.schedules = sched::Rescaled(config.recipe.schedules, 6);
  refused(other, "total_steps", "2", "6");
  other = config;
  other.recipe.schedules.batch.stages[0].tokens *= 2;
  refused(other, "batch_tokens", "256", "512");
  other = config;
  other.deterministic = false;
  refused(other, "deterministic", "true", "false");
  other = config;
  Widen(&other.recipe.model);
  refused(other, "dim", "32", "64");
  other = config;
  other.out_dir = folder + "/nothing_there";
  refused(other, "nothing_there", "", "");
}

TEST(Train, InitialWeightsOfAnotherModelAreRefused) {
  const std::string folder = FreshFolder("another_model");
  TrainConfig config = TestConfig(folder, 0);
  config.save_init = folder + "/init.safetensors";
  ASSERT_TRUE(RunTraining(config).status.ok());
  config.init_from = config.save_init;
  config.save_init.clear();
  Widen(&config.recipe.model);
  const absl::Status status = RunTraining(config).status;
  EXPECT_EQ(ExitCode(status), 1) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), config.init_from)) << status;
}

TEST(Train, SavedInitialWeightsStartTheSameRun) {
  const std::string folder = FreshFolder("init");
  TrainConfig config = TestConfig(folder, 2);
  config.save_init = folder + "/init.safetensors";
  const TestRun first = RunTraining(config);
  ASSERT_TRUE(first.status.ok()) << first.status;
  config.init_from = config.save_init;
  config.save_init = folder + "/again.safetensors";
  config.seed = 99;  // plays no part any more
  EXPECT_TRUE(RunTraining(config) == first);
  EXPECT_EQ(*ReadFile(config.save_init), *ReadFile(config.init_from));
}

TEST(Train, T1_07_NoStepsValidatesAndLeaves) {
  const std::string folder = FreshFolder("no_steps");
  TrainConfig config = TestConfig(folder, 0);
  config.out_dir = folder + "/out";
  const TestRun run = RunTraining(config);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.losses.size(), 1u);
  // The head is zero: every class is equally likely. Sums of f32 losses: 1e-6 relative.
  EXPECT_NEAR(run.val_loss, std::log(384.0), 1e-5);
  EXPECT_FALSE(fs::exists(config.checkpoint_root()));
}

// The head and the output projections start at zero, so that gradients reach the rest late.
TEST(Train, T1_48_WhatTheFirstTwoUpdatesChange) {
  const std::string folder = FreshFolder("two_updates");
  TrainConfig config = TestConfig(folder, 4);
  config.out_dir = folder + "/out";
  config.checkpoint_every = 1;
  config.save_init = folder + "/init.safetensors";
  ASSERT_TRUE(RunTraining(config).status.ok());
  const TensorMap init = ReadSafetensors(config.save_init)->tensors;
  const TensorMap once = Load(StepFolder(config, 1)).model.tensors;
  const TensorMap twice = Load(StepFolder(config, 2)).model.tensors;
  for (const auto& [name, tensor] : init) {
    EXPECT_EQ(once.at(name) == tensor, name != "lm_head.weight") << name;
  }
  // Adam's first step is lr * sign(gradient); bf16 and roundings: 1 %.
  int64_t moved = 0;
  const std::vector<double> head = Values(once.at("lm_head.weight"));
  for (const double value : head) moved += std::abs(std::abs(value) - 0.008) < 0.00008;
  EXPECT_GT(moved, static_cast<int64_t>(head.size() * 99 / 100)) << "of " << head.size();

  const int layers = static_cast<int>(config.recipe.model.layers.size());
  for (const auto& [name, tensor] : init) {
    const HostTensor& after = twice.at(name);
    if (absl::StrContains(name, "qkvo_w")) {
      const size_t qkv = tensor.bytes.size() / 4 * 3;
      EXPECT_EQ(after.bytes.substr(0, qkv), tensor.bytes.substr(0, qkv)) << name;
      EXPECT_NE(after.bytes.substr(qkv), tensor.bytes.substr(qkv)) << name;
    } else if (name == "scalars") {
      EXPECT_EQ(after.bytes.substr(12 * layers, 8 * layers),
                tensor.bytes.substr(12 * layers, 8 * layers))
          << "attention lambdas";
      EXPECT_NE(after.bytes, tensor.bytes);
    } else if (absl::StrContains(name, "c_fc") || absl::StrContains(name, "value_embeds") ||
               absl::StrContains(name, "gate")) {
      EXPECT_TRUE(after == tensor) << name;
    } else {  // embed, lm_head, c_proj
      EXPECT_FALSE(after == tensor) << name;
    }
  }
}

// Record B updates Adam's parameters in odd steps only: nothing moves in the first step, and the
// loss of the second is still ln V.
TEST(Train, T1_49_WhatTheFirstThreeStepsOfRecordBChange) {
  const std::string folder = FreshFolder("record_b");
  TrainConfig config = TestConfig(folder, 4, {}, "fix_muon_lr");
  config.out_dir = folder + "/out";
  config.checkpoint_every = 1;
  config.save_init = folder + "/init.safetensors";
  const TestRun run = RunTraining(config);
  ASSERT_TRUE(run.status.ok()) << run.status;
  for (const int line : {1, 2}) {  // after the first validation
    double loss = 0;
    ASSERT_TRUE(absl::SimpleAtod(run.losses[line].substr(run.losses[line].rfind(':') + 1), &loss));
    EXPECT_NEAR(loss, std::log(384.0), 1e-4) << run.losses[line];
  }
  const TensorMap init = ReadSafetensors(config.save_init)->tensors;
  EXPECT_TRUE(Load(StepFolder(config, 1)).model.tensors == init);
  const TensorMap twice = Load(StepFolder(config, 2)).model.tensors;
  const TensorMap thrice = Load(StepFolder(config, 3)).model.tensors;
  for (const auto& [name, tensor] : init) {
    EXPECT_EQ(twice.at(name) == tensor, name != "lm_head.weight") << name;
    const HostTensor& after = thrice.at(name);
    if (absl::StrContains(name, "qkvo_w")) {
      const size_t qkv = tensor.bytes.size() / 4 * 3;
      EXPECT_EQ(after.bytes.substr(0, qkv), tensor.bytes.substr(0, qkv)) << name;
      EXPECT_NE(after.bytes.substr(qkv), tensor.bytes.substr(qkv)) << name;
    } else {  // Adam's parameters are as after the second step
      EXPECT_EQ(after == twice.at(name), !absl::StrContains(name, "c_proj")) << name;
    }
  }
}

// A checkpoint between two updates of Adam holds the gradient so far.
TEST(Train, RecordBResumesBetweenTwoUpdatesOfAdam) {
  const std::string folder = FreshFolder("record_b_resume");
  TrainConfig config = TestConfig(folder, 6, {}, "fix_muon_lr");
  config.out_dir = folder + "/out";
  config.checkpoint_every = 3;
  const TestRun whole = RunTraining(config);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  for (const int world_size : {1, 3}) {
    fs::remove_all(StepFolder(config, 6));
    config.resume = true;
    config.world_size = world_size;
    const TestRun resumed = RunTraining(config);
    ASSERT_TRUE(resumed.status.ok()) << resumed.status;
    EXPECT_TRUE(resumed.weights == whole.weights) << world_size << " ranks";
  }
}

TEST(Train, AnErrorOfOneRankEndsAll) {
  const std::string folder = FreshFolder("rank_error");
  TrainConfig config = TestConfig(folder, 2);
  config.world_size = 4;
  config.comm_check = true;
  config.save_init = folder + "/no/such/folder/init.safetensors";  // only rank 0 writes it
  const absl::Status status = RunTraining(config).status;
  EXPECT_TRUE(absl::StrContains(status.message(), config.save_init)) << status;
}

TEST(Train, TooFewTokensAreFoundBeforeTraining) {
  const std::string folder = FreshFolder("too_few");
  const TrainConfig config = TestConfig(folder, 1000);
  const TestRun run = RunTraining(config);
  EXPECT_EQ(ExitCode(run.status), 1) << run.status;
  EXPECT_TRUE(run.losses.empty());
}

}  // namespace
}  // namespace tools
