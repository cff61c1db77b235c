// Replicated parameters that share an all-reduce and an update, against those that do not.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/test_ranks.h"
#include "comm/tracing.h"
#include "gtest/gtest.h"
#include "kernels/testing/testing.h"
#include "optim/sharded_optimizer.h"
#include "optim/step_layout.h"
#include "optim/toy_rails.h"

namespace optim {
namespace {

using kernels::DType;
using kernels::ParameterSpec;
using Names = std::vector<std::string>;

constexpr int kAlways = 100;  // tied for longer than any test runs
constexpr int kRanks = 8;

OptimizerConfig Config(bool flat) {
  OptimizerConfig config = ToyRailsConfig();
  config.flat_replicated = flat;
  for (ParamRow& row : config.table) {
    if (row.label != "ve_gate_bank") continue;
    row.beta1 = 0.65;  // unlike its neighbour's
    row.beta2 = 0.95;
  }
  return config;
}

ParamRow& Row(OptimizerConfig& config, const std::string& label) {
  for (ParamRow& row : config.table) {
    if (row.label == label) return row;
  }
  ADD_FAILURE() << label;
  return config.table[0];
}

StepLayout Plan(const OptimizerConfig& config, const std::vector<ParameterSpec>& specs) {
  absl::StatusOr<StepLayout> layout = PlanStep(config, specs);
  CHECK(layout.ok()) << layout.status();
  return *std::move(layout);
}

// The value embeddings' slower cadence from the start, so that step 1 is no event of theirs.
OptimizerConfig WithoutEvent(OptimizerConfig config) {
  ParamRow& row = Row(config, "value_embeds");
  row.every = row.later.every;
  row.later = {};
  return config;
}

const Names kTiedOdd = {"all_reduce flat bf16",    "all_reduce flat f32",
                        "reduce_scatter qk_bank",  "reduce_scatter vo_bank",
                        "reduce_scatter mlp_bank", "reduce_scatter lm_head",
                        "all_gather qk_bank",      "all_gather vo_bank",
                        "all_gather lm_head",      "all_gather mlp_bank"};
const Names kUntiedOdd = {
    "all_reduce flat bf16",   "all_reduce flat f32",     "reduce_scatter qk_bank",
    "reduce_scatter vo_bank", "reduce_scatter mlp_bank", "reduce_scatter lm_head",
    "reduce_scatter embed",   "all_gather qk_bank",      "all_gather vo_bank",
    "all_gather lm_head",     "all_gather embed",        "all_gather mlp_bank"};
const Names kEven = {"reduce_scatter qk_bank", "reduce_scatter vo_bank", "reduce_scatter mlp_bank",
                     "all_gather qk_bank",     "all_gather vo_bank",     "all_gather mlp_bank"};

class Launches : public comm::CollectiveListener {
 public:
  int64_t Began(absl::string_view name, absl::string_view label, int64_t,
                kernels::Queue&) override {
    names_.push_back(absl::StrCat(name, " ", label));
    return 0;
  }
  void Ended(int64_t, kernels::Queue&) override {}
  Names Take() { return std::exchange(names_, {}); }

 private:
  Names names_;
};

TEST(FlatAdam, AN_26_CollectivesOfRealSteps) {
  comm::RunRanks(3, [&](comm::Communicator& inner, kernels::Queue& queue) {
    Launches launches;
    const std::unique_ptr<comm::Communicator> comm = comm::MakeTracing(inner, launches);
    ToyRailsRank tied(*comm, false, kAlways, WithoutEvent(Config(true)));
    ASSERT_TRUE(tied.Train(0, 1, queue).ok());
    EXPECT_EQ(launches.Take(), kEven);
    ASSERT_TRUE(tied.Train(1, 2, queue).ok());
    EXPECT_EQ(launches.Take(), kTiedOdd);
    ToyRailsRank untied(*comm, false, 0, WithoutEvent(Config(true)));
    ASSERT_TRUE(untied.Train(0, 1, queue).ok());
    EXPECT_EQ(launches.Take(), kEven);
    ASSERT_TRUE(untied.Train(1, 2, queue).ok());
    EXPECT_EQ(launches.Take(), kUntiedOdd);
  });
}

// Sums, means and updates are elementwise, and ranks add in one order: not a bit differs, over even
// and odd steps, tied and parted, along the slot tree and not, whatever the rates of each.
TEST(FlatAdam, GivesTheSameBits) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    for (bool deterministic : {false, true}) {
      const auto run = [&](bool flat) {
        return ContinueRails(ranks, nullptr, 0, 6, 3, deterministic, Config(flat));
      };
      ExpectSameBits(run(true), run(false),
                     absl::StrCat(ranks, " ranks", deterministic ? ", deterministic" : ""));
    }
  }
}

// Rows that differ in what a flat buffer needs alike have several; labels of one may be due in
// other steps, and one may keep moments in bf16.
TEST(FlatAdam, GivesTheSameBitsInSeveralBuffers) {
  const auto config = [](bool flat) {
    OptimizerConfig several = Config(flat);
    Row(several, "smear_gate").every = 3;
    Row(several, "scalars").moment_dtype = DType::kBF16;
    return several;
  };
  const StepLayout layout = Plan(config(true), ToyRailsSpecs());
  EXPECT_EQ(layout.adam[0].label, "flat bf16");
  EXPECT_EQ(layout.adam[1].label, "flat bf16 2");
  EXPECT_EQ(layout.adam[2].label, "flat f32");
  const StepKind third = KindOfStep(layout, 2, true);
  EXPECT_NE(third.due[0], third.due[1]);
  for (int ranks : {1, 3}) {
    ExpectSameBits(ContinueRails(ranks, nullptr, 0, 6, kAlways, false, config(true)),
                   ContinueRails(ranks, nullptr, 0, 6, kAlways, false, config(false)),
                   absl::StrCat(ranks, " ranks"));
  }
}

// The state goes by parameters: either kind of run goes on from the other's, with other ranks.
TEST(FlatAdam, CheckpointsAreInterchangeable) {
  const RailsSnapshot unbroken = ContinueRails(1, nullptr, 0, 6, kAlways, true, Config(false));
  for (int at : {2, 3}) {  // between the pairs of steps and within
    for (bool flat : {false, true}) {
      const RailsSnapshot half = ContinueRails(3, nullptr, 0, at, kAlways, true, Config(flat));
      EXPECT_TRUE(FindState(half.state, "adam.m/smear_gate") != nullptr);
      ExpectSameBits(ContinueRails(2, &half, at, 6, kAlways, true, Config(!flat)), unbroken,
                     absl::StrCat("from ", at, flat ? ", flat" : ""));
    }
  }
}

// A frozen parameter keeps weight and moments, and its gradient goes into the all-reduce all the
// same; the others do not notice.
TEST(FlatAdam, AN_19_AnInactiveParameterKeepsItsBits) {
  const std::vector<ParameterSpec> specs = ToyRailsSpecs();
  const auto config = [](bool flat, double lr_mul) {
    OptimizerConfig with = Config(flat);
    Row(with, "smear_gate").lr_mul = 1;  // the record's moves no bf16 in so few steps
    Row(with, "ve_gate_bank").lr_mul = lr_mul;
    return with;
  };
  const RailsSnapshot frozen = ContinueRails(3, nullptr, 0, 4, kAlways, false, config(true, 0));
  ExpectSameBits(frozen, ContinueRails(3, nullptr, 0, 4, kAlways, false, config(false, 0)),
                 "frozen");
  const RailsSnapshot all = ContinueRails(3, nullptr, 0, 4, kAlways, false, config(true, 1));
  const RailsSnapshot start = ContinueRails(3, nullptr, 0, 0, kAlways, false, config(true, 1));
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool inactive = specs[i].label == "ve_gate_bank";
    EXPECT_EQ(frozen.weights[i] == start.weights[i], inactive) << specs[i].name;
    EXPECT_EQ(frozen.weights[i] == all.weights[i], !inactive) << specs[i].name;
  }
  for (const char* moment : {"adam.m/ve_gate_bank", "adam.v/ve_gate_bank"}) {
    for (uint8_t byte : FindState(frozen.state, moment)->bytes) EXPECT_EQ(byte, 0);
  }
}

// Of a tied pair each has a buffer of its own, as its gradients are added before they travel.
TEST(FlatAdam, ATiedPairKeepsOut) {
  OptimizerConfig config = Config(true);
  Row(config, "lm_head").comms = Row(config, "embed").comms = Comms::kReplicated;
  const StepLayout layout = Plan(config, ToyRailsSpecs());
  for (const BufferLayout& buffer : layout.adam) {
    if (buffer.label == "lm_head" || buffer.label == "embed") {
      EXPECT_FALSE(buffer.flat()) << buffer.label;
    }
  }
  OptimizerConfig other = config;
  other.flat_replicated = false;
  ExpectSameBits(ContinueRails(3, nullptr, 0, 6, 3, false, config),
                 ContinueRails(3, nullptr, 0, 6, 3, false, other), "replicated pair");
}

TEST(FlatAdam, ThePlanTellsOfEachMember) {
  const std::string text =
      DescribeStep(Plan(Config(true), ToyRailsSpecs()), Config(true), ToyRailsSpecs(), kRanks);
  EXPECT_NE(text.find("Adam, 6 parameters over 8 ranks"), std::string::npos) << text;
  EXPECT_NE(text.find("smear_gate bf16 [1, 12] label smear_gate, peak lr 8e-05, every 2 steps, 12 "
                      "elements of flat bf16, replicated\n"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace optim
