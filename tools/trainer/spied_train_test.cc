// What goes over the wire in whole runs: padding that must not matter, and gradients that must not
// depend on the number of ranks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/test_ranks.h"
#include "data/loader.h"
#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/step_layout.h"
#include "tools/trainer/batch_source.h"
#include "tools/trainer/device.h"
#include "tools/trainer/progress_bar.h"
#include "tools/trainer/rank_trace.h"
#include "tools/trainer/rank_trainer.h"
#include "tools/trainer/spy_communicator.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

using MakeSpy = std::function<std::unique_ptr<SpyCommunicator>(comm::Communicator& inner)>;

// As Train does, with a spy on each rank's communicator.
void RunSpied(const TrainConfig& config, const MakeSpy& make_spy) {
  data::LoaderOptions options;
  options.files = config.train_files;
  options.stages = config.loader_stages();
  options.token_map = config.token_map;
  absl::StatusOr<std::unique_ptr<data::TrainLoader>> loader =
      data::TrainLoader::Create(options, {}, 0);
  ASSERT_TRUE(loader.ok()) << loader.status();
  BatchSource batches(*std::move(loader), 0);
  ProgressBar progress(config.total_steps());
  absl::StatusOr<Device> device = OpenDevice("cpu");
  ASSERT_TRUE(device.ok()) << device.status();
  std::FILE* quiet = std::fopen("/dev/null", "w");
  ASSERT_NE(quiet, nullptr);
  absl::StatusOr<std::unique_ptr<RunLog>> log =
      RunLog::Create(config.metrics, /*append=*/false, config.total_steps(), quiet);
  ASSERT_TRUE(log.ok()) << log.status();
  comm::RunRanks(config.world_size, [&](comm::Communicator& comm, kernels::Queue& queue) {
    const std::unique_ptr<SpyCommunicator> spy = make_spy(comm);
    RankTrace trace(nullptr, comm.rank(), queue);
    const bool first = comm.rank() == 0;
    absl::StatusOr<std::unique_ptr<RankTrainer>> trainer =
        RankTrainer::Create(config, *spy, *device->backend, queue, batches,
                            first ? log->get() : nullptr, first ? &progress : nullptr, trace);
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    const absl::Status status = (*trainer)->Run();
    EXPECT_TRUE(status.ok()) << status;
  });
  EXPECT_TRUE((*log)->Close().ok());
  std::fclose(quiet);
}

optim::StepLayout LayoutOf(const TrainConfig& config) {
  absl::StatusOr<optim::StepLayout> layout =
      optim::PlanStep(config.recipe.optimizer, model::ParameterSpecs(config.recipe.model));
  CHECK(layout.ok()) << layout.status();
  return *std::move(layout);
}

// Elements of each buffer without padding, by the label of its collectives.
std::map<std::string, int64_t> SizesOf(const TrainConfig& config) {
  const optim::StepLayout layout = LayoutOf(config);
  std::map<std::string, int64_t> sizes;
  for (int i = 0; i < layout.buffers(); ++i) {
    const bool unique = sizes.emplace(layout.buffer(i).label, layout.buffer(i).size()).second;
    CHECK(unique) << layout.buffer(i).label;
  }
  return sizes;
}

class PoisonsPadding : public SpyCommunicator {
 public:
  PoisonsPadding(comm::Communicator& inner, const std::map<std::string, int64_t>& sizes,
                 std::map<std::string, int64_t>* poisoned, std::mutex* mutex)
      : SpyCommunicator(inner), sizes_(sizes), poisoned_(*poisoned), mutex_(*mutex) {}

 private:
  void BeforeReduce(const std::string& label, Tensor in) override { Poison(label, "grad/", in); }
  void AfterGather(const std::string& label, Tensor out) override { Poison(label, "value/", out); }
  void AfterRows(const std::string& label, Tensor beyond) override {
    std::memset(beyond.data(), 0xff, beyond.bytes());
    std::lock_guard<std::mutex> lock(mutex_);
    poisoned_["grad/" + label] += beyond.bytes();
  }

  // All bits set is a NaN of bf16 and of f32.
  void Poison(const std::string& label, const char* what, Tensor t) {
    const auto found = sizes_.find(label);
    if (found == sizes_.end()) return;  // not one of the step's buffers
    const int64_t padding = t.size() - found->second;
    CHECK_GE(padding, 0) << label;
    if (padding == 0) return;
    const Tensor tail = t.Reshape({-1}).Slice(found->second, padding);
    std::memset(tail.data(), 0xff, tail.bytes());
    std::lock_guard<std::mutex> lock(mutex_);
    poisoned_[what + label] += tail.bytes();
  }

  const std::map<std::string, int64_t>& sizes_;
  std::map<std::string, int64_t>& poisoned_;  // bytes
  std::mutex& mutex_;
};

class SpiedTrain : public testing::TestWithParam<const char*> {
 protected:
  TrainConfig Config(const std::string& name, int64_t steps) const {
    return TestConfig(FreshFolder(absl::StrCat(name, GetParam())), steps, {}, GetParam());
  }
};

// NaN in the padding of every gradient before its reduction, and of every weight after its gather,
// and behind rows that moved, in all steps: nothing that is kept or printed changes by a bit. With
// 3, 5 and 7 ranks tables and matrices are padded, in buffers of their own and in the parameters'
// own memory.
TEST_P(SpiedTrain, NoPaddingReachesANormOrAStatistic) {
  TrainConfig config = Config("padding_", 5);
  config.deterministic = false;  // the reductions that most runs have
  // A tied pair parts early, so that both are updated on their own.
  double& tied = config.recipe.schedules.tying.fraction;
  tied = std::min(tied, 0.2);
  config.out_dir = fs::path(config.metrics).parent_path() / "out";
  const std::map<std::string, int64_t> sizes = SizesOf(config);
  const auto outcome = [&config] {
    const std::string folder = config.checkpoint_root() + "/step-00000005";
    std::vector<std::string> all = LossesOf(config.metrics);
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
      all.push_back(*ReadFile(folder + file));
    }
    fs::remove_all(config.checkpoint_root());
    return all;
  };
  std::map<std::string, int64_t> poisoned;
  for (const int world_size : {3, 5, 7}) {
    config.world_size = world_size;
    RunSpied(config, [](auto& inner) { return std::make_unique<SpyCommunicator>(inner); });
    const std::vector<std::string> clean = outcome();
    std::mutex mutex;
    RunSpied(config, [&](auto& inner) {
      return std::make_unique<PoisonsPadding>(inner, sizes, &poisoned, &mutex);
    });
    EXPECT_TRUE(outcome() == clean) << world_size << " ranks";
  }
  // Whatever has padding was poisoned, gradients and weights, and some matrices have.
  const optim::StepLayout layout = LayoutOf(config);
  bool matrices = false;
  for (int i = 0; i < layout.buffers(); ++i) {
    const optim::BufferLayout& buffer = layout.buffer(i);
    bool padded = false;
    for (const int ranks : {3, 5, 7}) padded = padded || buffer.Padded(ranks) > buffer.size();
    // Of rows, the room behind those that came.
    EXPECT_EQ(poisoned["grad/" + buffer.label] > 0, padded || buffer.sparse_rows) << buffer.label;
    EXPECT_EQ(poisoned["value/" + buffer.label] > 0, padded) << buffer.label;
    matrices = matrices || (padded && buffer.unit > 1 && !buffer.sparse_rows);
  }
  EXPECT_TRUE(matrices);
}

// What a gather brings is not there until it was waited for, however long ago it was launched.
class LateGathers : public SpyCommunicator {
 public:
  using SpyCommunicator::SpyCommunicator;
  comm::Future AllGather(absl::string_view label, Tensor in, Tensor out, Queue& queue) override {
    const auto late = std::make_shared<std::vector<char>>(out.bytes());
    const auto future = std::make_shared<comm::Future>(SpyCommunicator::AllGather(
        label, in, Tensor(late->data(), out.dtype(), {out.size()}, out.device()), queue));
    return comm::Future([future, late, out](Queue& waiting) {
      const absl::Status status = future->Wait(waiting);
      if (status.ok()) std::memcpy(out.data(), late->data(), late->size());
      return status;
    });
  }
};

// Gathers of Anvil's banks are in flight between its steps: no forward, validation, check or
// checkpoint may read the weights that they will replace.
TEST(SpiedAnvil, AN_28_NobodyReadsWeightsThatAreOnTheirWay) {
  TrainConfig config = TestConfig(FreshFolder("late_gathers"), 6, {}, "anvil");
  config.deterministic = false;
  config.world_size = 3;
  config.recipe.schedules.validation.every = 2;
  config.checkpoint_every = 3;
  config.out_dir = fs::path(config.metrics).parent_path() / "out";
  const auto outcome = [&config](const MakeSpy& make_spy) {
    fs::remove_all(config.checkpoint_root());
    RunSpied(config, make_spy);
    std::vector<std::string> all = LossesOf(config.metrics);
    for (const char* step : {"/step-00000003", "/step-00000006"}) {
      for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
        all.push_back(*ReadFile(config.checkpoint_root() + step + file));
      }
    }
    return all;
  };
  const std::vector<std::string> plain =
      outcome([](auto& inner) { return std::make_unique<SpyCommunicator>(inner); });
  EXPECT_EQ(plain.size(), 6u + 4u + 4u);  // steps, validations, files
  EXPECT_TRUE(outcome([](auto& inner) { return std::make_unique<LateGathers>(inner); }) == plain);
}

// The sums of gradients over all ranks, by label: those of the step's buffers, and those that wait
// for the next step and that the checkpoint asks for.
using Sums = std::map<std::string, std::vector<std::vector<float>>>;  // by rank

class KeepsSums : public SpyCommunicator {
 public:
  KeepsSums(comm::Communicator& inner, Sums* sums, std::mutex* mutex)
      : SpyCommunicator(inner), sums_(*sums), mutex_(*mutex) {}

 private:
  void AfterReduce(const std::string& label, Tensor out) override { Keep(label, out); }
  void AfterAllReduce(const std::string& label, Tensor x) override {
    if (rank() == 0) Keep(label, x);
  }
  void Keep(const std::string& label, Tensor t) {
    CHECK(t.dtype() == kernels::DType::kF32) << label;
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::vector<float>>& chunks = sums_[label];
    chunks.resize(size());
    chunks[rank()].assign(t.f32(), t.f32() + t.size());
  }

  Sums& sums_;
  std::mutex& mutex_;
};

std::map<std::string, std::vector<float>> SumsOfOneStep(const TrainConfig& config) {
  Sums sums;
  std::mutex mutex;
  RunSpied(config, [&](auto& inner) { return std::make_unique<KeepsSums>(inner, &sums, &mutex); });
  const std::map<std::string, int64_t> sizes = SizesOf(config);
  std::map<std::string, std::vector<float>> whole;
  for (const auto& [label, chunks] : sums) {
    std::vector<float>& sum = whole[label];
    for (const std::vector<float>& chunk : chunks)
      sum.insert(sum.end(), chunk.begin(), chunk.end());
    const auto found = sizes.find(label);
    if (found != sizes.end()) sum.resize(found->second);  // without padding
  }
  return whole;
}

// Of all sums together: the global gradient norm, which no recipe clips by and no log has.
double GlobalNorm(const std::map<std::string, std::vector<float>>& sums) {
  double squares = 0;
  for (const auto& [label, sum] : sums) {
    for (const float x : sum) squares += double{x} * x;
  }
  return std::sqrt(squares);
}

// Without --deterministic the number of ranks changes the order in which eight slots are added, in
// f32: a few 2^-24 of each element, and of the whole, in the L2 norm. Case N7: that norm itself.
TEST_P(SpiedTrain, T1_53_N7_OneStepsGradientsAgreeOnAnyNumberOfRanks) {
  TrainConfig config = Config("gradients_", 4);
  const std::string folder = fs::path(config.metrics).parent_path();
  config.out_dir = folder + "/trained";
  config.checkpoint_every = 2;
  ASSERT_TRUE(RunTraining(config).status.ok());
  // Weights of which few have a gradient of zero; a tied pair is still tied.
  config.init_from = config.checkpoint_root() + "/step-00000002/model.safetensors";
  config.recipe.schedules = sched::Rescaled(config.recipe.schedules, 1);
  config.deterministic = false;
  config.out_dir = folder + "/one";
  const std::map<std::string, std::vector<float>> want = SumsOfOneStep(config);
  double largest = 0;
  for (int world_size = 2; world_size <= 8; ++world_size) {
    config.world_size = world_size;
    config.out_dir = absl::StrCat(folder, "/ranks", world_size);
    const std::map<std::string, std::vector<float>> got = SumsOfOneStep(config);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_NEAR(GlobalNorm(got) / GlobalNorm(want), 1, 1e-6) << world_size << " ranks";
    for (const auto& [label, sum] : want) {
      const std::vector<float>& other = got.at(label);
      ASSERT_EQ(other.size(), sum.size()) << label;
      double difference = 0, norm = 0;
      for (size_t i = 0; i < sum.size(); ++i) {
        difference += (double{sum[i]} - other[i]) * (double{sum[i]} - other[i]);
        norm += double{sum[i]} * sum[i];
      }
      const double relative = norm > 0 ? std::sqrt(difference / norm) : difference;
      EXPECT_LT(relative, 1e-5) << label << ", " << world_size << " ranks";
      largest = std::max(largest, relative);
    }
  }
  EXPECT_GT(largest, 0) << "the order of the sums should show";
  RecordProperty("largest_relative_difference", absl::StrCat(largest));
}

INSTANTIATE_TEST_SUITE_P(Records, SpiedTrain, AllRecords(), RecordName);

}  // namespace
}  // namespace tools
