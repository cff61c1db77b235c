#include "tools/trainer/comm_plan.h"

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/parameters.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

LinkModel Link(double gbps, double latency_us = 0) {
  return {.shape = LinkShape::kRing, .gbps = gbps, .latency_us = latency_us};
}
BufferWork Update(double seconds) { return {.pack_s = 0, .update_s = seconds, .unpack_s = 0}; }

TEST(CommPlan, RingAndTreeByHand) {
  const LinkModel ring{.shape = LinkShape::kRing, .gbps = 8, .latency_us = 10};  // 1 GB/s
  const LinkModel tree{.shape = LinkShape::kTree, .gbps = 8, .latency_us = 10};
  const int64_t n = 4'000'000;
  // 3/4 of 4 MB at 1 GB/s is 3 ms.
  EXPECT_NEAR(CollectiveSeconds("reduce_scatter", n, 4, ring), 3 * 10e-6 + 3e-3, 1e-12);
  EXPECT_NEAR(CollectiveSeconds("all_gather", n, 4, tree), 2 * 10e-6 + 3e-3, 1e-12);
  EXPECT_NEAR(CollectiveSeconds("all_reduce", n, 4, ring), 2 * (3 * 10e-6 + 3e-3), 1e-12);
  // Five ranks: three halvings, 4/5 of the bytes.
  EXPECT_NEAR(CollectiveSeconds("all_gather", n, 5, tree), 3 * 10e-6 + 3.2e-3, 1e-12);
  EXPECT_EQ(CollectiveSeconds("all_reduce", n, 1, ring), 0);
  EXPECT_EQ(CollectiveSeconds("all_gather", n, 64, Link(kInfinite)), 0);
}

// Two sharded buffers of 1000 f32 each, in three phases or in two parts.
optim::StepLayout TwoBuffers(bool three_phases) {
  const auto buffer = [](const char* label, int member) {
    return optim::BufferLayout{.label = label,
                               .members = {member},
                               .dtype = kernels::DType::kF32,
                               .member_size = 1000,
                               .unit = 1};
  };
  optim::StepLayout layout;
  layout.adam = {buffer("a", 0)};
  layout.muon = {buffer("b", 1)};
  if (three_phases) layout.launch_order = layout.work_order = {0, 1};
  return layout;
}

const optim::StepKind kAllDue{.due = {true, true}, .tied = false};
// A collective of 4000 bytes on two ranks takes 2 ms.
const LinkModel kSlow{.shape = LinkShape::kRing, .gbps = 8e-3, .latency_us = 0};

std::map<std::string, double> ExposedMs(const PredictedStep& step) {
  std::map<std::string, double> exposed;
  for (const PredictedCollective& c : step.collectives) {
    exposed[c.collective + " " + c.label] += 1e3 * c.exposed_s;
  }
  return exposed;
}

// Updates of 3 and 1 ms. In ms: both reductions launched at 0, done at 2 and 4; a is waited for
// until 2, updated until 5, its gather is done at 7; b's reduction is long there, its update is
// done at 6, its gather, behind a's, at 9; a's gather is waited for until 7, b's until 9.
TEST(CommPlan, ThreePhasesByHand) {
  const PredictedStep step =
      PredictStep(TwoBuffers(true), kAllDue, 2, {Update(3e-3), Update(1e-3)}, 0, kSlow);
  EXPECT_NEAR(step.end_s, 9e-3, 1e-12);
  EXPECT_NEAR(step.compute_s, 4e-3, 1e-12);
  const std::map<std::string, double> exposed = ExposedMs(step);
  EXPECT_NEAR(exposed.at("reduce_scatter a"), 2, 1e-9);
  EXPECT_NEAR(exposed.at("reduce_scatter b"), 0, 1e-9);
  EXPECT_NEAR(exposed.at("all_gather a"), 1, 1e-9);
  EXPECT_NEAR(exposed.at("all_gather b"), 2, 1e-9);
}

// As above until 9, but a's gather, done at 7, is waited for behind b's, which is done at 9.
TEST(CommPlan, DeferredByHand) {
  optim::StepLayout layout = TwoBuffers(true);
  layout.adam[0].defer_gather = true;
  const PredictedStep step =
      PredictStep(layout, kAllDue, 2, {Update(3e-3), Update(1e-3)}, 0, kSlow);
  EXPECT_NEAR(step.end_s, 9e-3, 1e-12);
  const std::map<std::string, double> exposed = ExposedMs(step);
  EXPECT_NEAR(exposed.at("all_gather a"), 0, 1e-9);
  EXPECT_NEAR(exposed.at("all_gather b"), 3, 1e-9);
}

// In two parts nothing of b begins before a is done: all four are exposed, 8 ms.
TEST(CommPlan, TwoPartsByHand) {
  const PredictedStep step =
      PredictStep(TwoBuffers(false), kAllDue, 2, {Update(3e-3), Update(1e-3)}, 0, kSlow);
  EXPECT_NEAR(step.exposed_s(), 8e-3, 1e-12);
  EXPECT_NEAR(step.end_s, 12e-3, 1e-12);
}

TEST(CommPlan, ReplicatedAndNotDue) {
  optim::StepLayout layout = TwoBuffers(true);
  layout.adam[0].comms = optim::Comms::kReplicated;
  const std::vector<BufferWork> work(2);
  const PredictedStep step = PredictStep(layout, kAllDue, 2, work, 0, kSlow);
  std::map<std::string, double> exposed = ExposedMs(step);
  EXPECT_NEAR(exposed.at("all_reduce a"), 4, 1e-9);
  EXPECT_EQ(exposed.count("all_gather a"), 0u);
  exposed =
      ExposedMs(PredictStep(layout, {.due = {false, true}, .tied = false}, 2, work, 0, kSlow));
  EXPECT_EQ(exposed.count("all_reduce a"), 0u);
  EXPECT_NEAR(exposed.at("reduce_scatter b"), 2, 1e-9);
}

// All records on many links: what comm_plan.h promises.
TEST(CommPlan, ExposedFallsWithBandwidthToNothing) {
  for (const char* record :
       {"muon_custom_sizing", "fix_muon_lr", "unified_optimizers", "anvil", "record7"}) {
    const absl::StatusOr<Recipe> recipe = FindRecipe(record, "full", 50304);
    ASSERT_TRUE(recipe.ok()) << recipe.status();
    const absl::StatusOr<optim::StepLayout> layout =
        optim::PlanStep(recipe->optimizer, model::ParameterSpecs(recipe->model));
    ASSERT_TRUE(layout.ok()) << layout.status();
    // Some work, different for each.
    std::vector<BufferWork> work(layout->buffers());
    for (size_t i = 0; i < work.size(); ++i) {
      const double unit = 1e-5 * static_cast<double>(1 + i * i % 7);
      work[i] = {.pack_s = unit, .update_s = 20 * unit, .unpack_s = 2 * unit};
    }
    const bool may_be_tied = layout->tied.has_value();
    for (const bool tied : {false, true}) {
      if (tied && !may_be_tied) continue;
      for (const int64_t step : {0, 1}) {
        const optim::StepKind kind = optim::KindOfStep(*layout, step, tied);
        for (const int ranks : {1, 2, 7, 64}) {
          double before = kInfinite;
          for (const double gbps : {1.0, 10.0, 100.0, 1000.0, kInfinite}) {
            const PredictedStep predicted =
                PredictStep(*layout, kind, ranks, work, 4 * 10 * ranks, Link(gbps));
            double sum = 0;
            for (const PredictedCollective& c : predicted.collectives) {
              EXPECT_GE(c.exposed_s, 0) << c.label;
              EXPECT_GE(c.total_s, c.exposed_s * (1 - 1e-12)) << c.label;
              sum += c.exposed_s;
            }
            EXPECT_NEAR(sum, predicted.exposed_s(), 1e-9 * predicted.end_s);
            EXPECT_LE(sum, before * (1 + 1e-12)) << record << ", " << ranks << " ranks, " << gbps;
            before = sum;
          }
          EXPECT_EQ(before, 0) << "with an infinite rate";
          const auto late = [&](double latency_us) {
            return PredictStep(*layout, kind, ranks, work, 0, Link(100, latency_us)).end_s;
          };
          EXPECT_LE(late(0), late(5));
          EXPECT_LE(late(5), late(50));
          if (ranks > 1) {
            EXPECT_LT(late(0), late(50));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tools
