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
#include "optim/record_m.h"
#include "optim/sharded_optimizer.h"
#include "optim/step_layout.h"
#include "optim/toy_m.h"

namespace optim {
namespace {

using kernels::DType;
using kernels::ParameterSpec;
using Names = std::vector<std::string>;

constexpr int kAlways = 100;  // tied for longer than any test runs
constexpr int kRanks = 8;

OptimizerConfig Config(bool flat) {
  OptimizerConfig config = ToyConfigM();
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

// The mainline's, with the parameters of what this repository's models lack.
TEST(FlatAdam, AN_18_ThirteenParametersInTwoBuffers) {
  const DType bf16 = DType::kBF16, f32 = DType::kF32;
  const std::vector<ParameterSpec> specs = {
      {"ve_gate_bank", "ve_gate_bank", {3, 6, 12}, bf16, 3, 6, 12},
      {"scalars", "scalars", {24}, f32, 1, 1, 24},
      {"smear_gate", "smear_gate", {1, 12}, bf16, 1, 1, 12},
      {"post_lambdas", "post_lambdas", {11, 2}, f32, 1, 11, 2},
      {"resid_lambdas", "resid_lambdas", {11, 2}, f32, 1, 11, 2},
      {"mudd_w1", "mudd_w1", {2, 64, 768}, bf16, 2, 64, 768},
      {"mudd_gate_w1", "mudd_gate_w1", {2, 64, 768}, bf16, 2, 64, 768},
      {"mudd_w2", "mudd_w2", {2, 14, 64}, bf16, 2, 14, 64},
      {"mudd_w2g", "mudd_w2g", {14, 12, 64}, bf16, 14, 12, 64},
      {"mudd_b2", "mudd_b2", {2, 14}, bf16, 1, 2, 14},
      {"mudd_gate_w2", "mudd_gate_w2", {2, 23, 64}, bf16, 2, 23, 64},
      {"mudd_gate_b2", "mudd_gate_b2", {2, 23}, bf16, 1, 2, 23},
      {"_mudd_gate_scale", "_mudd_gate_scale", {1}, f32, 1, 1, 1}};
  OptimizerConfig config;
  config.flat_replicated = true;
  for (const ParameterSpec& spec : specs) {
    config.table.push_back(RecordMAdam(spec.label, 1, 0, 0.9, 0.99, Comms::kReplicated));
    config.scatter_order.push_back(spec.label);
  }
  config.work_order = config.scatter_order;
  const StepLayout layout = Plan(config, specs);
  ASSERT_EQ(layout.adam.size(), 2u);
  EXPECT_EQ(layout.adam[0].label, "flat bf16");
  EXPECT_EQ(layout.adam[0].size(), 212'398);
  EXPECT_EQ(layout.adam[0].members.size(), 9u);
  EXPECT_EQ(layout.adam[1].label, "flat f32");
  EXPECT_EQ(layout.adam[1].size(), 69);
  EXPECT_EQ(layout.adam[1].members.size(), 4u);
  const std::vector<PlannedCollective> odd =
      PlanCollectives(layout, KindOfStep(layout, 1, false), kRanks, GradientWire::kWeightDType);
  ASSERT_EQ(odd.size(), 2u);
  EXPECT_EQ(odd[0].op, "all_reduce");
  EXPECT_EQ(odd[0].bytes, 424'796);
  EXPECT_EQ(odd[1].bytes, 276);
  EXPECT_TRUE(
      PlanCollectives(layout, KindOfStep(layout, 0, false), kRanks, GradientWire::kF32).empty());
}

Names NamesOf(const std::vector<PlannedCollective>& collectives) {
  Names names;
  for (const PlannedCollective& c : collectives) names.push_back(absl::StrCat(c.op, " ", c.label));
  return names;
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

TEST(FlatAdam, AN_26_CollectivesOfTheRecord) {
  const StepLayout layout = Plan(RecordMConfig(), RecordMSpecs());
  const auto names = [&](int64_t step, bool tied) {
    return NamesOf(
        PlanCollectives(layout, KindOfStep(layout, step, tied), kRanks, GradientWire::kF32));
  };
  EXPECT_EQ(names(337, true), kTiedOdd);
  EXPECT_EQ(names(1177, false), kUntiedOdd);
  EXPECT_EQ(names(336, true), kEven);
  EXPECT_EQ(names(1176, false), kEven);
}

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
    ToyRankM tied(*comm, false, kAlways, WithoutEvent(Config(true)));
    ASSERT_TRUE(tied.Train(0, 1, queue).ok());
    EXPECT_EQ(launches.Take(), kEven);
    ASSERT_TRUE(tied.Train(1, 2, queue).ok());
    EXPECT_EQ(launches.Take(), kTiedOdd);
    ToyRankM untied(*comm, false, 0, WithoutEvent(Config(true)));
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
        return ContinueM(ranks, nullptr, 0, 6, 3, deterministic, Config(flat));
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
  const StepLayout layout = Plan(config(true), ToySpecsM());
  EXPECT_EQ(layout.adam[0].label, "flat bf16");
  EXPECT_EQ(layout.adam[1].label, "flat bf16 2");
  EXPECT_EQ(layout.adam[2].label, "flat f32");
  const StepKind third = KindOfStep(layout, 2, true);
  EXPECT_NE(third.due[0], third.due[1]);
  for (int ranks : {1, 3}) {
    ExpectSameBits(ContinueM(ranks, nullptr, 0, 6, kAlways, false, config(true)),
                   ContinueM(ranks, nullptr, 0, 6, kAlways, false, config(false)),
                   absl::StrCat(ranks, " ranks"));
  }
}

// The state goes by parameters: either kind of run goes on from the other's, with other ranks.
TEST(FlatAdam, CheckpointsAreInterchangeable) {
  const SnapshotM unbroken = ContinueM(1, nullptr, 0, 6, kAlways, true, Config(false));
  for (int at : {2, 3}) {  // between the pairs of steps and within
    for (bool flat : {false, true}) {
      const SnapshotM half = ContinueM(3, nullptr, 0, at, kAlways, true, Config(flat));
      EXPECT_TRUE(FindState(half.state, "adam.m/smear_gate") != nullptr);
      ExpectSameBits(ContinueM(2, &half, at, 6, kAlways, true, Config(!flat)), unbroken,
                     absl::StrCat("from ", at, flat ? ", flat" : ""));
    }
  }
}

// A frozen parameter keeps weight and moments, and its gradient goes into the all-reduce all the
// same; the others do not notice.
TEST(FlatAdam, AN_19_AnInactiveParameterKeepsItsBits) {
  const std::vector<ParameterSpec> specs = ToySpecsM();
  const auto config = [](bool flat, double lr_mul) {
    OptimizerConfig with = Config(flat);
    Row(with, "smear_gate").lr_mul = 1;  // the record's moves no bf16 in so few steps
    Row(with, "ve_gate_bank").lr_mul = lr_mul;
    return with;
  };
  const SnapshotM frozen = ContinueM(3, nullptr, 0, 4, kAlways, false, config(true, 0));
  ExpectSameBits(frozen, ContinueM(3, nullptr, 0, 4, kAlways, false, config(false, 0)), "frozen");
  const SnapshotM all = ContinueM(3, nullptr, 0, 4, kAlways, false, config(true, 1));
  const SnapshotM start = ContinueM(3, nullptr, 0, 0, kAlways, false, config(true, 1));
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
  const StepLayout layout = Plan(config, ToySpecsM());
  for (const BufferLayout& buffer : layout.adam) {
    if (buffer.label == "lm_head" || buffer.label == "embed") {
      EXPECT_FALSE(buffer.flat()) << buffer.label;
    }
  }
  OptimizerConfig other = config;
  other.flat_replicated = false;
  ExpectSameBits(ContinueM(3, nullptr, 0, 6, 3, false, config),
                 ContinueM(3, nullptr, 0, 6, 3, false, other), "replicated pair");
}

TEST(FlatAdam, ThePlanTellsOfEachMember) {
  const std::string text =
      DescribeStep(Plan(Config(true), ToySpecsM()), Config(true), ToySpecsM(), kRanks);
  EXPECT_NE(text.find("Adam, 6 parameters over 8 ranks"), std::string::npos) << text;
  EXPECT_NE(text.find("smear_gate bf16 [1, 12] label smear_gate, peak lr 8e-05, every 2 steps, 12 "
                      "elements of flat bf16, replicated\n"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace optim
