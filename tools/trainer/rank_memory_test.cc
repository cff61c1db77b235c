#include "tools/trainer/rank_memory.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "comm/local/local.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

// The CPU's, counting what is asked of it.
class CountingBackend : public kernels::Backend {
 public:
  absl::string_view name() const override { return "counting"; }
  kernels::DeviceKind device() const override { return kernels::DeviceKind::kCpu; }
  void* Allocate(int64_t bytes) override {
    allocated += bytes;
    return kernels::CpuBackend().Allocate(bytes);
  }
  void Free(void* memory) override { kernels::CpuBackend().Free(memory); }

  int64_t allocated = 0;
};

class RankMemoryTest : public testing::Test {
 protected:
  TrainConfig Config(const std::string& record, int ranks = 1) {
    TrainConfig config = TestConfig(FreshFolder("rank_memory"), 8, {}, record);
    config.deterministic = false;
    config.world_size = ranks;
    return config;
  }

  const std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(1);
};

TEST_F(RankMemoryTest, ThePlanIsWhatIsAllocated) {
  for (const char* record : {"muon_custom_sizing", "unified_optimizers", "record7"}) {
    for (const int ranks : {1, 3}) {
      const TrainConfig config = Config(record, ranks);
      const absl::StatusOr<MemoryPlan> plan = PlanMemory(config, *queue_);
      ASSERT_TRUE(plan.ok()) << plan.status();
      CountingBackend backend;
      const auto comm = comm::LocalGroup::Create(ranks, config.comm_timeout)->Join(0);
      const auto memory = RankMemory::Create(config, *comm, backend, *queue_);
      ASSERT_TRUE(memory.ok()) << memory.status();
      EXPECT_EQ(plan->total, backend.allocated) << record << ", " << ranks << " ranks";
      EXPECT_EQ((*memory)->bytes(), backend.allocated) << record << ", " << ranks << " ranks";
      EXPECT_GT(plan->total,
                plan->weights + plan->optimizer + std::max(plan->passes, plan->validation));
      EXPECT_LT(plan->total, plan->weights + plan->optimizer + plan->passes + plan->validation);
    }
  }
}

// Validation's activations lie over training's, and the weights that it prepares over theirs. Track
// 2's record resets its state after a warm-up; here nothing runs before the first step but a
// validation.
TEST_F(RankMemoryTest, T2_39_ValidationLeavesNoTrace) {
  for (const char* record : {"muon_custom_sizing", "unified_optimizers", "record7"}) {
    TrainConfig config = TestConfig(FreshFolder("validation_leaves_no_trace"), 9, {}, record);
    const auto train = [&config](int64_t every) {
      config.recipe.schedules.validation.every = every;
      TestRun run = RunTraining(config);
      EXPECT_TRUE(run.status.ok()) << run.status;
      std::erase_if(run.losses, [](const std::string& line) {
        return line.find("val_loss") != std::string::npos;
      });
      return run;
    };
    const TestRun seldom = train(1000), always = train(1);
    EXPECT_EQ(seldom.losses.size(), size_t{9}) << record;
    EXPECT_TRUE(seldom == always) << record;
    EXPECT_EQ(seldom.val_loss, always.val_loss) << record;
  }
}

TEST_F(RankMemoryTest, MoreThanAllowedIsRefusedWithWhatFits) {
  TrainConfig config = Config("muon_custom_sizing");
  config.slots_per_pass = 4;
  const int64_t four = PlanMemory(config, *queue_)->total;
  config.slots_per_pass = 1;
  const int64_t one = PlanMemory(config, *queue_)->total;
  ASSERT_LT(one, four);

  config.slots_per_pass = 4;
  config.memory_gib = static_cast<double>(four) / (1 << 30);
  EXPECT_TRUE(CheckMemory(config, *queue_).ok());
  config.memory_gib = static_cast<double>(one) / (1 << 30);
  const absl::Status refused = CheckMemory(config, *queue_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("more than --memory_gib="), std::string::npos) << refused;
  EXPECT_NE(refused.message().find("--slots_per_pass=1 takes"), std::string::npos) << refused;
  config.memory_gib = 1e-6;
  EXPECT_NE(CheckMemory(config, *queue_).message().find("the least that this recipe takes"),
            std::string::npos);
}

TEST_F(RankMemoryTest, ChoicesNameTheSmallestCard) {
  const absl::StatusOr<std::string> text = MemoryChoicesText(Config("record7"), *queue_);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NE(text->find("--slots=8 --slots_per_pass=1"), std::string::npos) << *text;
  EXPECT_NE(text->find("24 GB"), std::string::npos) << *text;
}

// More than one slot a pass is refused there.
TEST_F(RankMemoryTest, DeterministicRunsWithBanksChooseOneSlotAPass) {
  TrainConfig config = Config("unified_optimizers");
  config.deterministic = true;
  const absl::StatusOr<std::string> text = MemoryChoicesText(config, *queue_);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NE(text->find("--slots_per_pass=1 "), std::string::npos) << *text;
  EXPECT_EQ(text->find("--slots_per_pass=2"), std::string::npos) << *text;
}

}  // namespace
}  // namespace tools
