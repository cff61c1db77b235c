// Facts of the record of 2026-01-18 about sharding, rates, orders and collectives: no arithmetic on
// weights.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/step_layout.h"
#include "optim/step_schedule.h"
#include "sched/schedules.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

using optim::AdamRates;
using optim::BufferLayout;
using optim::Comms;
using optim::DescribeStep;
using optim::GradientWire;
using optim::KindOfStep;
using optim::MakeSchedule;
using optim::MuonRates;
using optim::OptimizerConfig;
using optim::ParamRow;
using optim::PlanCollectives;
using optim::PlannedCollective;
using optim::PlanStep;
using optim::Rates;
using optim::ScheduleEntry;
using optim::SecondMomentShape;
using optim::StepKind;
using optim::StepLayout;
using optim::UpdateNumber;

using kernels::ParameterSpec;
using Action = ScheduleEntry::Action;

constexpr int kSteps = 1765;
constexpr int kLastTied = 1151;

Recipe Record() { return FindRecipe("unified_optimizers", "full", 50304).value(); }
OptimizerConfig Config() { return Record().optimizer; }
std::vector<kernels::ParameterSpec> Specs() { return model::ParameterSpecs(Record().model); }

StepLayout Layout() { return *PlanStep(Config(), Specs()); }

ParamRow RowOfLabel(const std::string& label) {
  for (const ParamRow& row : Config().table) {
    if (row.label == label) return row;
  }
  ADD_FAILURE() << label;
  return {};
}

TEST(UnifiedOptimizer, UO_02_UO_03_MatricesPerRank) {
  const StepLayout layout = Layout();
  const std::vector<ParameterSpec> specs = Specs();
  ASSERT_EQ(layout.muon.size(), 2u);
  const BufferLayout &attn = layout.muon[0], &mlp = layout.muon[1];
  EXPECT_EQ(attn.units(), 40);
  EXPECT_EQ(attn.Chunk(8), int64_t{5} * 768 * 768);
  EXPECT_EQ(mlp.units(), 24);
  EXPECT_EQ(mlp.Chunk(8), int64_t{3} * 3072 * 768);
  // Whole matrices for any number of ranks: those of the padded banks.
  const std::map<int, std::pair<int64_t, int64_t>> padded = {
      {1, {40, 24}}, {2, {40, 24}}, {3, {42, 24}},  {4, {40, 24}},  {5, {40, 25}},
      {6, {42, 24}}, {7, {42, 28}}, {12, {48, 24}}, {16, {48, 32}}, {32, {64, 32}}};
  for (const auto& [ranks, matrices] : padded) {
    EXPECT_EQ(attn.Padded(ranks), matrices.first * 768 * 768) << ranks;
    EXPECT_EQ(mlp.Padded(ranks), matrices.second * 3072 * 768) << ranks;
  }
  // Rank 7 has one live matrix and the two of the padding slot.
  const std::string plan = DescribeStep(layout, Config(), specs, 8);
  for (const char* text :
       {"attn: 40 x 589824 bf16, chunk 5, padding 0", "rank 0: attn_bank, matrices 0 to 4",
        "mlp: 24 x 2359296 bf16, chunk 3, padding 0", "rank 7: mlp_bank, matrices 21 to 23"}) {
    EXPECT_NE(plan.find(text), std::string::npos) << text << " not in\n" << plan;
  }
  const std::string seven = DescribeStep(layout, Config(), specs, 7);
  EXPECT_NE(seven.find("rank 5: mlp_bank, matrices 20 to 23\n    rank 6: (4 padding)"),
            std::string::npos)
      << seven;
  EXPECT_NE(seven.find("chunk 4, padding 4 (18874368 B)"), std::string::npos) << seven;
}

TEST(UnifiedOptimizer, UO_02_UO_03_SecondMomentsPerRow) {
  const std::vector<ParameterSpec> specs = Specs();
  EXPECT_EQ(SecondMomentShape(specs[0]), (std::vector<int64_t>{40, 768, 1}));
  EXPECT_EQ(SecondMomentShape(specs[1]), (std::vector<int64_t>{24, 3072, 1}));
}

TEST(UnifiedOptimizer, UO_27_NumbersOfUpdates) {
  const StepLayout layout = Layout();
  int64_t adam = 0, matrices = 0;
  for (int step = 0; step < kSteps; ++step) {
    const StepKind kind = KindOfStep(layout, step, step <= kLastTied);
    for (size_t i = 0; i < layout.adam.size(); ++i) EXPECT_EQ(kind.due[i], step % 2 == 1);
    adam += kind.due[0];
    matrices += kind.due[layout.adam.size()] && kind.due[layout.adam.size() + 1];
  }
  EXPECT_EQ(adam, 882);
  EXPECT_EQ(matrices, 1765);
  // The last step is even: what it adds to Adam's gradients is read by nobody.
  EXPECT_FALSE(KindOfStep(layout, kSteps - 1, false).due[0]);
}

// Adam's bias correction at update t shows in the step: the first of the embedding alone is its
// 577th by the count that goes on, after 576 of the head.
TEST(UnifiedOptimizer, UO_28_TheCounterGoesOn) {
  const StepLayout layout = Layout();
  int64_t head = 0, first_apart = -1;
  for (int step = 0; step < kSteps && first_apart < 0; ++step) {
    const bool tied = step <= kLastTied;
    for (const ScheduleEntry& entry : MakeSchedule(layout, KindOfStep(layout, step, tied))) {
      if (entry.action != Action::kUpdate) continue;
      if (entry.buffer == layout.tied->target && tied) ++head;
      if (entry.buffer == layout.tied->source) first_apart = step;
    }
  }
  EXPECT_EQ(head, 576);
  EXPECT_EQ(first_apart, 1153);
  EXPECT_EQ(UpdateNumber(RowOfLabel("lm_head"), kLastTied, 0), 576);
  EXPECT_EQ(UpdateNumber(RowOfLabel("embed"), first_apart, 0), 577);
  EXPECT_EQ(UpdateNumber(RowOfLabel("embed"), 1, 0), 1);
}

TEST(UnifiedOptimizer, UO_29_RatesOfTheBanks) {
  const std::vector<ParameterSpec> specs = Specs();
  for (double eta : {1.0, 1.52, 0.1}) {
    for (int64_t matrix : {0, 1, 2, 39}) {
      const Rates attn = MuonRates(RowOfLabel("attn"), specs[0], eta, matrix);
      EXPECT_NEAR(attn.step, 0.023 * eta, 1e-15);
      EXPECT_NEAR(attn.decay, 0.0276 * eta, 1e-15);
    }
    for (int64_t matrix : {0, 2, 22}) {
      const Rates up = MuonRates(RowOfLabel("mlp"), specs[1], eta, matrix);
      const Rates down = MuonRates(RowOfLabel("mlp"), specs[1], eta, matrix + 1);
      EXPECT_NEAR(up.step, 0.046 * eta, 1e-15);
      EXPECT_NEAR(down.step, 0.092 * eta, 1e-15);
      EXPECT_NEAR(up.decay, 0.0276 * eta, 1e-15);
      EXPECT_NEAR(down.decay, 0.0276 * eta, 1e-15);
    }
  }
  // A step's decay at eta = 1.
  const auto decay = [&](const Rates& rates) { return rates.step * rates.decay; };
  EXPECT_NEAR(decay(MuonRates(RowOfLabel("attn"), specs[0], 1)), 6.348e-4, 1e-12);
  EXPECT_NEAR(decay(MuonRates(RowOfLabel("mlp"), specs[1], 1, 0)), 1.2696e-3, 1e-12);
  EXPECT_NEAR(decay(MuonRates(RowOfLabel("mlp"), specs[1], 1, 1)), 2.5392e-3, 1e-12);
  // From the bank as stored, 3072 rows over 768 columns, attention would learn twice as fast.
  ParamRow stored = RowOfLabel("attn");
  stored.aspect_of_view = false;
  EXPECT_NEAR(MuonRates(stored, specs[0], 1).step, 0.046, 1e-15);
}

TEST(UnifiedOptimizer, RatesOfAdam) {
  struct Want {
    const char* label;
    double lr, decay;
  };
  for (const auto& [label, lr, decay] :
       {Want{"scalars", 0.04, 0}, Want{"ve0", 0.6, 9e-3}, Want{"ve2", 0.6, 9e-3},
        Want{"smear_gate", 8e-5, 0}, Want{"skip_gate", 4e-4, 0},
        Want{"attn_gate_bank", 0.008, 3.2e-7}, Want{"ve_gate_bank", 0.008, 3.2e-7},
        Want{"x0_lambdas", 0.04, 0}, Want{"lm_head", 0.008, 4.8e-5},
        Want{"embed", 0.008, 4.8e-5}}) {
    const Rates rates = AdamRates(RowOfLabel(label), 1, 1000000);
    EXPECT_NEAR(rates.step, lr, 1e-12) << label;
    EXPECT_NEAR(rates.decay, decay, 1e-15) << label;
    // The decay goes with the square of the rate.
    EXPECT_NEAR(AdamRates(RowOfLabel(label), 0.5, 3).decay, decay / 4, 1e-15) << label;
  }
  const int t[] = {1, 2, 3, 10, 100};
  const std::map<std::string, std::vector<double>> alphas = {
      {"lm_head", {0.447214, 0.416333, 0.431608, 0.634072, 0.997035}},
      {"ve1", {0.894427, 0.713714, 0.653245, 0.671254, 0.997035}},
      {"scalars", {1, 0.742460, 0.635940, 0.474760, 0.796242}},
      {"x0_lambdas", {0.638877, 0.540692, 0.520637, 0.642098, 0.997035}}};
  for (const auto& [label, want] : alphas) {
    const ParamRow row = RowOfLabel(label);
    for (int i = 0; i < 5; ++i) {
      EXPECT_NEAR(AdamRates(row, 1, t[i]).step / (row.lr * row.lr_mul), want[i], 1e-6)
          << label << ", update " << t[i];
    }
  }
}

// The slot without a layer has no gradient: its update direction is zero, and a weight x loses
// x decay step in each step.
TEST(UnifiedOptimizer, UO_38_PaddingShrinks) {
  const std::vector<ParameterSpec> specs = Specs();
  const sched::Schedules schedules = Record().schedules;
  double up = 1, attention = 1;
  for (int step = 0; step < kSteps; ++step) {
    const Rates rates =
        MuonRates(RowOfLabel("mlp"), specs[1], sched::PlanStep(schedules, step).lr_multiplier, 22);
    up -= up * rates.decay * rates.step;
    const Rates other =
        MuonRates(RowOfLabel("attn"), specs[0], sched::PlanStep(schedules, step).lr_multiplier);
    attention -= attention * other.decay * other.step;
  }
  EXPECT_NEAR(up, 0.0774625, 5e-8);
  EXPECT_GT(attention, 0.25);  // half the rate: about the root
}

TEST(UnifiedOptimizer, UO_39_Orders) {
  const OptimizerConfig config = Config();
  const auto& scatter = config.scatter_order;
  const auto& work = config.work_order;
  EXPECT_EQ(scatter.size(), 13u);
  EXPECT_EQ(std::vector<std::string>(scatter.begin(), scatter.begin() + 2),
            (std::vector<std::string>{"attn", "mlp"}));
  EXPECT_EQ(std::vector<std::string>(scatter.end() - 2, scatter.end()),
            (std::vector<std::string>{"lm_head", "embed"}));
  EXPECT_EQ(work.front(), "scalars");
  EXPECT_EQ(std::vector<std::string>(work.end() - 2, work.end()),
            (std::vector<std::string>{"attn", "mlp"}));
  EXPECT_EQ(std::set<std::string>(scatter.begin(), scatter.end()),
            std::set<std::string>(work.begin(), work.end()));
  EXPECT_TRUE(PlanStep(config, Specs()).ok());
  const auto error = [](const OptimizerConfig& bad) {
    const auto layout = PlanStep(bad, Specs());
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(layout.status().message());
  };
  OptimizerConfig bad = config;
  bad.scatter_order.pop_back();
  EXPECT_NE(error(bad).find("scatter_order has label embed 0 times"), std::string::npos);
  bad = config;
  bad.work_order[0] = "ve1";
  EXPECT_NE(error(bad).find("work_order has label scalars 0 times"), std::string::npos);
  bad = config;
  bad.work_order.push_back("ve1");
  EXPECT_NE(error(bad).find("work_order has label ve1 2 times"), std::string::npos);
  bad = config;
  bad.scatter_order.push_back("ve3");
  EXPECT_NE(error(bad).find("\"ve3\", which is no label"), std::string::npos);
  bad = config;
  bad.work_order.clear();
  EXPECT_NE(error(bad).find("work_order has label attn 0 times"), std::string::npos);
}

// Launches in scatter order, updates in work order, then the gathers, the head's first while its
// copy is waited for.
TEST(UnifiedOptimizer, UO_39_ScheduleOfThreePhases) {
  const OptimizerConfig config = Config();
  const StepLayout layout = Layout();
  const std::vector<ParameterSpec> specs = Specs();
  const auto labels = [&](const std::vector<ScheduleEntry>& schedule, Action action) {
    std::vector<std::string> names;
    for (const ScheduleEntry& entry : schedule) {
      if (entry.action != action) continue;
      names.push_back(specs[layout.buffer(entry.buffer).members[0]].label);
    }
    return names;
  };
  const auto without = [](std::vector<std::string> order, const std::string& label) {
    order.erase(std::remove(order.begin(), order.end(), label), order.end());
    return order;
  };
  const std::vector<ScheduleEntry> untied = MakeSchedule(layout, KindOfStep(layout, 1153, false));
  EXPECT_EQ(labels(untied, Action::kReduce), config.scatter_order);
  EXPECT_EQ(labels(untied, Action::kUpdate), config.work_order);
  EXPECT_EQ(labels(untied, Action::kFinish), config.work_order);
  EXPECT_TRUE(labels(untied, Action::kAddTied).empty());
  EXPECT_TRUE(labels(untied, Action::kCopyTied).empty());

  const std::vector<ScheduleEntry> tied = MakeSchedule(layout, KindOfStep(layout, 1151, true));
  EXPECT_EQ(labels(tied, Action::kReduce), without(config.scatter_order, "embed"));
  EXPECT_EQ(labels(tied, Action::kUpdate), without(config.work_order, "embed"));
  std::vector<std::string> finish = without(without(config.work_order, "embed"), "lm_head");
  finish.insert(finish.begin(), "lm_head");
  EXPECT_EQ(labels(tied, Action::kFinish), finish);
  const auto place = [&](Action action, int buffer) {
    for (size_t i = 0; i < tied.size(); ++i) {
      if (tied[i].action == action && tied[i].buffer == buffer) return static_cast<int>(i);
    }
    return -1;
  };
  const int head = layout.tied->target;
  EXPECT_EQ(place(Action::kAddTied, head) + 1, place(Action::kReduce, head));
  EXPECT_EQ(place(Action::kFinish, head) + 1, place(Action::kCopyTied, head));
  // All of a phase before the next.
  EXPECT_TRUE(std::is_sorted(tied.begin(), tied.end(), [](const auto& a, const auto& b) {
    const auto phase = [](Action action) {
      if (action == Action::kAddTied || action == Action::kReduce) return 0;
      return action == Action::kUpdate ? 1 : 2;
    };
    return phase(a.action) < phase(b.action);
  }));

  for (bool is_tied : {true, false}) {
    const std::vector<ScheduleEntry> even = MakeSchedule(layout, KindOfStep(layout, 1150, is_tied));
    EXPECT_EQ(labels(even, Action::kReduce), (std::vector<std::string>{"attn", "mlp"}));
    EXPECT_EQ(even.size(), 6u);
  }
}

std::map<std::string, int> Count(const std::vector<PlannedCollective>& planned) {
  std::map<std::string, int> counts;
  for (const PlannedCollective& collective : planned) ++counts[collective.op];
  return counts;
}

TEST(UnifiedOptimizer, UO_40_Collectives) {
  const StepLayout layout = Layout();
  const auto planned = [&](int64_t step, bool tied) {
    return PlanCollectives(layout, KindOfStep(layout, step, tied), 8, GradientWire::kWeightDType);
  };
  using Counts = std::map<std::string, int>;
  const Counts even = {{"reduce_scatter", 2}, {"all_gather", 2}};
  EXPECT_EQ(Count(planned(0, true)), even);
  EXPECT_EQ(Count(planned(1152, false)), even);
  EXPECT_EQ(Count(planned(1, true)),
            (Counts{{"reduce_scatter", 6}, {"all_gather", 6}, {"all_reduce", 6}}));
  EXPECT_EQ(Count(planned(1153, false)),
            (Counts{{"reduce_scatter", 7}, {"all_gather", 7}, {"all_reduce", 6}}));
  // In the dtypes of the PyTorch original.
  for (const PlannedCollective& collective : planned(1153, false)) {
    if (collective.op == "all_reduce") {
      EXPECT_LT(collective.bytes, 2048) << collective.label;
    } else if (collective.label == "attn") {
      EXPECT_EQ(collective.bytes, 47'185'920);
    } else if (collective.label == "mlp") {
      EXPECT_EQ(collective.bytes, 113'246'208);
    } else {
      EXPECT_EQ(collective.bytes, 77'266'944) << collective.label;
    }
  }
  // Our gradients travel in f32, weights as they are.
  EXPECT_EQ(PlanCollectives(layout, KindOfStep(layout, 0, true), 8, GradientWire::kF32)[0].bytes,
            2 * 47'185'920);
}

// Rank r's part of the embedding's moments are the rows [6288 r, 6288 (r + 1)).
TEST(UnifiedOptimizer, UO_41_EmbeddingIsCutBetweenRows) {
  const StepLayout layout = Layout();
  EXPECT_EQ(layout.adam[layout.tied->source].Chunk(8), int64_t{6288} * 768);
  EXPECT_EQ(layout.adam[layout.tied->target].Chunk(8), int64_t{96} * 50304);
}

TEST(UnifiedOptimizer, PlanTellsTheKindsOfSteps) {
  const std::string plan = DescribeStep(Layout(), Config(), Specs(), 8);
  for (const char* text :
       {"Collectives of steps 0, 2, ... (bytes", "Collectives of steps 1, 3, ... while tied (bytes",
        "Collectives of steps 1, 3, ... once untied (bytes", "replicated", "all_reduce",
        "tied to lm_head at first"}) {
    EXPECT_NE(plan.find(text), std::string::npos) << text << " not in\n" << plan;
  }
}

TEST(UnifiedOptimizer, TablesThatCannotBe) {
  const auto error = [](const std::string& label, void (*change)(ParamRow*)) {
    OptimizerConfig config = Config();
    for (ParamRow& row : config.table) {
      if (row.label == label) change(&row);
    }
    const auto layout = PlanStep(config, Specs());
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << label;
    return std::string(layout.status().message());
  };
  const auto expect = [&](const std::string& label, void (*change)(ParamRow*), const char* text) {
    const std::string message = error(label, change);
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  expect(
      "attn", [](ParamRow* row) { row->mantissa = false; }, "needs a mantissa");
  expect(
      "attn", [](ParamRow* row) { row->eps_in_bias_correction = true; }, "is for adam");
  expect(
      "attn", [](ParamRow* row) { row->decay_times_lr = false; }, "needs decay_times_lr");
  expect(
      "ve0", [](ParamRow* row) { row->aspect_of_view = true; }, "not for adam");
  expect(
      "ve0", [](ParamRow* row) { row->second_moment_as_stored = true; }, "is not for adam");
  expect(
      "embed", [](ParamRow* row) { row->mantissa = true; }, "but one has a mantissa");
  expect(
      "embed", [](ParamRow* row) { row->every = 1; }, "are not the same: 1, sharded, f32");
  expect(
      "lm_head", [](ParamRow* row) { row->comms = Comms::kReplicated; }, "are not the same");
  expect(
      "embed", [](ParamRow* row) { row->tied_to = "head"; }, "head, which has no row");
  expect(
      "embed", [](ParamRow* row) { row->tied_to = "attn"; }, "adam is not the rule of both");
  expect(
      "embed", [](ParamRow* row) { row->tied_to = "ve0"; }, "is no transpose of");
  expect(
      "embed", [](ParamRow* row) { row->tied_to = "embed"; }, "is tied itself");
  expect(
      "ve1", [](ParamRow* row) { row->tied_to = "lm_head"; }, "tied like ve1");
  OptimizerConfig config = Config();
  std::vector<ParameterSpec> specs = Specs();
  specs[0].dtype = kernels::DType::kF32;
  EXPECT_NE(std::string(PlanStep(config, specs).status().message())
                .find("attn_bank: dtype f32, but a mantissa belongs to bf16 weights"),
            std::string::npos);
}

}  // namespace
}  // namespace tools
