// Whole runs on the GPU: against the CPU, bit by bit against themselves, stopped and resumed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/trainer/cards.h"
#include "tools/trainer/device.h"
#include "tools/trainer/exit_code.h"
#include "tools/trainer/rank_memory.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

// The kernels take heads of 64 or 128 features and slots of a multiple of 16 tokens.
TrainConfig GpuConfig(const std::string& folder, int64_t steps,
                      const std::string& record = "muon_custom_sizing") {
  TrainConfig config = TestConfig(folder, steps, {.heads = 2, .head_dim = 64}, record);
  config.device = "cuda";
  return config;
}

// The numbers behind "loss": and "val_loss": of the metrics.
std::vector<double> Numbers(const TestRun& run) {
  std::vector<double> numbers;
  for (const std::string& line : run.losses) {
    double number = NAN;
    CHECK(absl::SimpleAtod(line.substr(line.rfind(':') + 1), &number)) << line;
    numbers.push_back(number);
  }
  return numbers;
}

class GpuRecord : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Records, GpuRecord,
                         ::testing::Values("muon_custom_sizing", "unified_optimizers", "record7"),
                         [](const auto& info) { return std::string(info.param); });

// Bit noise grows from the second update on (the gradients of some scalars are zero but for
// rounding), so only the first two losses are equal to rounding; the curves stay close.
TEST_P(GpuRecord, CurveIsTheCpus) {
  const std::string folder = FreshFolder("gpu_curve");
  TrainConfig config = GpuConfig(folder, 20, GetParam());
  config.threads = 0;
  config.save_init = folder + "/init.safetensors";
  const TestRun cuda = RunTraining(config);
  ASSERT_TRUE(cuda.status.ok()) << cuda.status;
  config.init_from = config.save_init;
  config.save_init.clear();
  config.device = "cpu";
  const TestRun cpu = RunTraining(config);
  ASSERT_TRUE(cpu.status.ok()) << cpu.status;
  const std::vector<double> a = Numbers(cuda), b = Numbers(cpu);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], i < 3 ? 5e-4 * b[i] : 0.1) << cuda.losses[i];
  }
  EXPECT_NEAR(cuda.val_loss, cpu.val_loss, 0.05);
}

// What --plan says of the card here without opening it, against what its ops ask for.
TEST_P(GpuRecord, APlanForTheCardIsTheDevicesOwn) {
  const TrainConfig config = GpuConfig(FreshFolder("gpu_plan"), 8, GetParam());
  const absl::StatusOr<Device> device = OpenDevice("cuda");
  ASSERT_TRUE(device.ok()) << device.status();
  const auto queue = device->make_queue({});
  ASSERT_TRUE(queue.ok()) << queue.status();
  const absl::StatusOr<MemoryPlan> own = PlanMemory(config, **queue);
  ASSERT_TRUE(own.ok()) << own.status();
  const absl::StatusOr<Card> card = CardOfDevice(0);
  ASSERT_TRUE(card.ok()) << card.status();
  const absl::StatusOr<MemoryPlan> planned = PlanMemory(config, *MakePlanningQueue(*card));
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->passes, own->passes);
  EXPECT_EQ(planned->total, own->total);
}

TEST_P(GpuRecord, DeterministicRunsAreEqualBitForBit) {
  const std::string folder = FreshFolder("gpu_bits");
  const TrainConfig config = GpuConfig(folder, 8, GetParam());
  const TestRun first = RunTraining(config);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_TRUE(RunTraining(config) == first);
}

TEST(GpuTrain, SlotsPerPassChangesNoBit) {
  const std::string folder = FreshFolder("gpu_slots");
  TrainConfig config = GpuConfig(folder, 6);
  const TestRun one = RunTraining(config);
  ASSERT_TRUE(one.status.ok()) << one.status;
  for (const int slots : {3, 8}) {
    config.slots_per_pass = slots;
    EXPECT_TRUE(RunTraining(config) == one) << slots << " slots a pass";
  }
}

// A recorded graph must do what its ops do one by one: the traced run calls each of them.
// With unified_optimizers over changes of batch size and windows, and the parting of head and
// embedding.
TEST_P(GpuRecord, RecordedStepsAreTheOpsOneByOne) {
  const std::string folder = FreshFolder("gpu_recorded");
  const TrainConfig config = GpuConfig(folder, 20, GetParam());
  const TestRun recorded = RunTraining(config);
  ASSERT_TRUE(recorded.status.ok()) << recorded.status;
  RunTrace trace(TraceWindow{.skip = 0, .steps = 20});
  EXPECT_TRUE(RunTraining(config, &trace) == recorded);
}

TEST_P(GpuRecord, ResumedRunIsTheSameRun) {
  const std::string folder = FreshFolder("gpu_resume");
  TrainConfig config = GpuConfig(folder, 8, GetParam());
  config.out_dir = folder + "/out";
  config.checkpoint_every = 3;
  const TestRun whole = RunTraining(config);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  for (const char* later : {"/step-00000008", "/step-00000006"}) {
    ASSERT_GT(std::filesystem::remove_all(config.checkpoint_root() + later), 0u) << later;
  }
  config.resume = true;
  const TestRun resumed = RunTraining(config);
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  EXPECT_TRUE(resumed.weights == whole.weights);
}

// Weights that are all finite and give a loss that is not wherever byte 255 is read (its value
// embeddings are as large as bf16 goes, and scalars multiply them by 16), and a training text that
// has that byte only after the first steps; the validation text has none.
std::string PoisonLaterSteps(const TrainConfig& config, const std::string& folder) {
  std::vector<uint16_t> tokens = SyntheticTokens(8192, 3);
  for (uint16_t& token : tokens) {
    if (token < 256) token = token / 2;
  }
  CHECK(data::WriteShard(config.val_files[0], tokens).ok());
  const int64_t place = 3 * kTestSlots * (kTestSlotTokens + 1);
  for (int64_t i = place; i < place + 64; ++i) {
    if (tokens[i] < 256) tokens[i] = 255;
  }
  CHECK(data::WriteShard(config.train_files[0], tokens).ok());
  TrainConfig init = config;
  init.recipe.schedules = sched::Rescaled(init.recipe.schedules, 0);
  init.save_init = folder + "/init.safetensors";
  CHECK(RunTraining(init).status.ok());
  SafetensorsFile file = *ReadSafetensors(init.save_init);
  const auto set = [](HostTensor* tensor, int64_t begin, int64_t end, uint32_t f32) {
    const size_t width = kernels::SizeOf(tensor->dtype);
    const char* upper = reinterpret_cast<const char*>(&f32) + sizeof(f32) - width;
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(tensor->bytes.data() + i * width, upper, width);
    }
  };
  int changed = 0;
  for (auto& [name, tensor] : file.tensors) {
    const int64_t cols = tensor.shape.back();
    const bool embeds = absl::StartsWith(name, "value_embeds"), scales = name == "scalars";
    if (embeds) set(&tensor, 255 * cols, 256 * cols, 0x7f780000);
    if (scales) set(&tensor, 0, cols, 0x41800000);
    changed += embeds || scales;
  }
  CHECK_GE(changed, 2) << "these weights have other names";
  const std::string poisoned = folder + "/poisoned.safetensors";
  CHECK(WriteSafetensors(poisoned, file).ok());
  return poisoned;
}

// The host learns one step late of a loss that is not finite; the guard on the device has kept
// that step and the one after it from changing anything. With a checkpoint after each step the
// host knows at once, and has to find the same weights and state.
TEST(GpuTrain, AStepThatIsNotFiniteLeavesTheWeights) {
  const std::string folder = FreshFolder("gpu_bad_step");
  TrainConfig config = GpuConfig(folder, 6);
  config.init_from = PoisonLaterSteps(config, folder);
  std::vector<Checkpoint> last;
  for (const int64_t checkpoint_every : {0, 1}) {
    config.checkpoint_every = checkpoint_every;
    config.out_dir = absl::StrCat(folder, "/out", checkpoint_every);
    const absl::Status status = RunTraining(config).status;
    EXPECT_EQ(ExitCode(status), 2) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "is nan; gradient of")) << status;
    absl::StatusOr<Checkpoint> checkpoint = LoadLatestCheckpoint(config.checkpoint_root());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("step ", checkpoint->step, ":")))
        << status;
    last.push_back(*std::move(checkpoint));
  }
  EXPECT_GE(last[0].step, 1);
  EXPECT_EQ(last[0].step, last[1].step);
  EXPECT_TRUE(last[0].model.tensors == last[1].model.tensors);
  EXPECT_TRUE(last[0].optimizer.tensors == last[1].optimizer.tensors);
}

TEST(GpuTrain, TooLittleMemoryIsSaidInBytes) {
  const std::string folder = FreshFolder("gpu_memory");
  TrainConfig config = GpuConfig(folder, 1);
  config.recipe.model.mlp_dim = int64_t{1} << 24;
  const absl::Status status = RunTraining(config).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "bytes on cuda")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "--batch_tokens")) << status;
}

}  // namespace
}  // namespace tools
