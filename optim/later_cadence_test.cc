// A row whose updates come less often from a step on: which steps, with which rates, and what waits
// over the change.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/testing/testing.h"
#include "optim/sharded_optimizer.h"
#include "optim/toy.h"
#include "optim/toy_rails.h"
#include "optim/toy_run.h"

namespace optim {
namespace {

using kernels::DType;
using kernels::ParameterSpec;
using Weights = std::vector<std::vector<double>>;

// Betas are part of what a recorded update bakes.
TEST(LaterCadence, StepsOfBothCadencesAreOfTwoKinds) {
  const auto layout = PlanStep(ToyRailsConfig(), ToyRailsSpecs());
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto kind = [&](int64_t step) { return KindOfStep(*layout, step, true); };
  EXPECT_EQ(kind(335).due, kind(339).due);
  EXPECT_NE(kind(335), kind(339));
  EXPECT_EQ(kind(339), kind(343));
  EXPECT_NE(kind(337).due, kind(335).due);
  EXPECT_EQ(kind(0), kind(336));
  const std::vector<Stretch> stretches = StretchesOf(*layout);
  ASSERT_EQ(stretches.size(), 2u);
  EXPECT_EQ(stretches[0].end, 336);
  EXPECT_EQ(stretches[0].period, 2);
  EXPECT_EQ(stretches[1].begin, 336);
  EXPECT_EQ(stretches[1].period, 4);
  const std::string plan = DescribeStep(*layout, ToyRailsConfig(), ToyRailsSpecs(), 8);
  for (const char* text :
       {"every 2 steps, from step 336 on every 4,", "steps 0, 2, ... before 336 (bytes",
        "steps 1, 3, ... before 336 while tied", "steps 336, 338, 340, ... (bytes",
        "steps 337, 341, ... once untied", "steps 339, 343, ... while tied"}) {
    EXPECT_NE(plan.find(text), std::string::npos) << text << " not in\n" << plan;
  }
}

constexpr int kSteps = 9;
constexpr double kDecay = 3;

std::vector<ParameterSpec> Specs() {
  return {{"table", "table", {13, 8}, DType::kF32, 1, 13, 8},
          {"scalars", "scalars", {7}, DType::kF32, 1, 1, 7}};
}

// Updates in every second step, from `from_step` on in every fourth.
OptimizerConfig Config(int64_t from_step) {
  const auto adam = [](const char* label) {
    return ParamRow{.label = label,
                    .lr = 0.02,
                    .weight_decay = kDecay,
                    .beta1 = 0.75,
                    .beta2 = 0.95,
                    .eps = 1e-8,
                    .every = 2,
                    .cautious_decay = true};
  };
  OptimizerConfig config;
  config.table = {adam("table"), adam("scalars")};
  config.table[0].later = {.from_step = from_step, .every = 4};
  return config;
}

Snapshot Continue(int64_t from_step, int ranks, bool deterministic, const Snapshot* from, int begin,
                  int end) {
  return ContinueToy(Config(from_step), Specs(), ranks, deterministic, from, begin, end);
}

// An event, and whether it is one of the later cadence.
struct Event {
  int step;
  bool later;
};

// The table's weights after kSteps, in float64.
std::vector<double> Oracle(const std::vector<Event>& events) {
  const ParameterSpec spec = Specs()[0];
  std::vector<double> weights =
      kernels::testing::RandomTensor(spec.dtype, {spec.size()}, 1).ToDouble();
  std::vector<AdamOracle> adam(weights.size(), AdamOracle{0, 0, 0, 1e-8});
  int step = 0;
  for (const Event& event : events) {
    Matrix sum(weights.size(), 0.0);
    for (; step <= event.step; ++step) {
      const Matrix g = Gradient(spec, 0, step);
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += g[j];
    }
    const double lr = 0.02 * ToyRank::RatesAt(event.step).lr_multiplier;
    const double decay = lr * lr * kDecay * (event.later ? 2 : 1);
    for (size_t j = 0; j < sum.size(); ++j) {
      adam[j].lr = lr;
      adam[j].beta1 = event.later ? 0.5625 : 0.75;
      adam[j].beta2 = event.later ? 0.9025 : 0.95;
      weights[j] = adam[j].CautiousStep(weights[j], sum[j], decay);
    }
  }
  return weights;
}

// Each update is of at most 0.04, off by a few 2^-24 of the gradient's sum, and of the weights.
TEST(LaterCadence, UpdatesAreThoseOfTheOracle) {
  const std::pair<int64_t, std::vector<Event>> cases[] = {
      {2, {{1, false}, {3, true}, {7, true}}},
      {3, {{1, false}, {3, true}, {7, true}}},
      {5, {{1, false}, {3, false}, {7, true}}},
      {6, {{1, false}, {3, false}, {5, false}, {7, true}}},
      {1000, {{1, false}, {3, false}, {5, false}, {7, false}}}};
  for (const auto& [from_step, events] : cases) {
    const std::vector<double> want = Oracle(events);
    for (const int ranks : {1, 2, 3}) {
      const std::vector<double> got =
          Continue(from_step, ranks, false, nullptr, 0, kSteps).weights[0];
      for (size_t j = 0; j < want.size(); ++j) {
        ASSERT_NEAR(got[j], want[j], 1e-6) << "from " << from_step << ", " << ranks << " ranks";
      }
    }
  }
}

// Before, at and after the change, which itself lies between updates: the same bits.
TEST(LaterCadence, ResumesAcrossTheChange) {
  for (const bool deterministic : {false, true}) {
    const int ranks = deterministic ? 3 : 1;
    const Snapshot unbroken = Continue(5, ranks, deterministic, nullptr, 0, kSteps);
    for (const int at : {1, 2, 4, 5, 6, 7, 8}) {
      const Snapshot half = Continue(5, ranks, deterministic, nullptr, 0, at);
      EXPECT_EQ(FindState(half.state, "adam.pending/table") != nullptr,
                at == 1 || at == 3 || (at > 4 && at < 8))
          << at;
      for (const int others : deterministic ? std::vector<int>{1, 2, 4} : std::vector<int>{1}) {
        EXPECT_EQ(Continue(5, others, deterministic, &half, at, kSteps).weights, unbroken.weights)
            << "stopped at " << at << ", " << others;
      }
    }
  }
}

// Of a run with another cadence: what waits there does not wait here.
TEST(LaterCadence, AStateOfAnotherCadenceIsRefused) {
  const Snapshot half = Continue(5, 1, false, nullptr, 0, 6);
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(Config(1000), Specs(), comm, false);
    const absl::Status status = rank.optimizer->LoadState(half.state, queue);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(std::string(status.message()).find("adam.pending/table"), std::string::npos)
        << status;
  });
}

TEST(LaterCadence, TablesThatCannotBe) {
  const auto expect_refused = [](const LaterCadence& later, Rule rule, const std::string& want) {
    OptimizerConfig config = Config(5);
    config.table[0].later = later;
    config.table[0].rule = rule;
    if (rule != Rule::kAdam) {
      config.table[0].every = 1;
      config.table[0].cautious_decay = false;
    }
    const auto layout = PlanStep(config, Specs());
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string text(layout.status().message());
    EXPECT_NE(text.find(absl::StrCat("label table: ", want)), std::string::npos) << text;
  };
  expect_refused({.from_step = 5, .every = 3}, Rule::kAdam,
                 "later cadence has from_step 5 and every 3;");
  expect_refused({.from_step = 5, .every = 2}, Rule::kAdam,
                 "later cadence has from_step 5 and every 2;");
  expect_refused({.from_step = -1, .every = 4}, Rule::kAdam, "later cadence has from_step -1");
  expect_refused({.from_step = 5, .every = 0}, Rule::kAdam, "later cadence has from_step 5");
  expect_refused({.from_step = 5, .every = 4}, Rule::kMuon, "a later cadence is for adam");
  OptimizerConfig tied = ToyRailsConfig();
  tied.table[5].later = {.from_step = 7, .every = 4};
  const auto layout = PlanStep(tied, ToyRailsSpecs());
  EXPECT_NE(std::string(layout.status().message()).find("their later cadences are not the same"),
            std::string::npos)
      << layout.status();
}

}  // namespace
}  // namespace optim
