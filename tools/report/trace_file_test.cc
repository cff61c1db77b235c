#include "tools/report/trace_file.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trainer/run_trace.h"

namespace tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

kernels::TracedOp Op(kernels::OpPhase phase, double begin_s, double end_s) {
  kernels::TracedOp op;
  op.name = "Op";
  op.cost.phase = phase;
  op.begin_s = begin_s;
  op.end_s = end_s;
  return op;
}

// Two ranks, one step from 10 s to 20 s and 21 s: products until 14, a reduction from 13 to 18
// whose result is waited for from 15 on, and an update at the end.
std::string TwoRanks() {
  RunTrace trace({.skip = 0, .steps = 1});
  trace.SetFacts({.record = "a_record", .preset = "demo", .device = "cpu", .ranks = 2, .slots = 2});
  for (int rank = 0; rank < 2; ++rank) {
    const double end = 20.0 + rank;
    TracedStep step;
    step.rank = rank;
    step.step = 7;
    step.tokens = 100;
    step.begin_s = 10;
    step.end_s = end;
    step.ops = {Op(kernels::OpPhase::kGemm, 10, 12), Op(kernels::OpPhase::kGemm, 12, 14),
                Op(kernels::OpPhase::kOptimizer, 18, end)};
    CollectiveSpan span;
    span.name = "reduce_scatter";
    span.label = "mlp";
    span.bytes = 1000;
    span.begin_s = 13;
    span.launched_s = 13;
    span.wait_s = 15;
    span.end_s = 18;
    step.collectives = {span};
    trace.Add(rank, {"validation", 0, 9});
    trace.Add(rank, {"step 7", 10, end});
    trace.Add(rank, {"forward+backward", 10, 14});
    trace.Add(std::move(step));
  }
  return trace.ToJson();
}

TEST(ParseTrace, WhatTheTrainerWrites) {
  const absl::StatusOr<TraceFile> trace = ParseTrace("t.json", TwoRanks());
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->about, "a_record, demo, cpu, 2 ranks");
  ASSERT_EQ(trace->steps.size(), 1);
  EXPECT_EQ(trace->steps[0].step, 7);
  ASSERT_EQ(trace->steps[0].ranks.size(), 2);
  const RankTimeline& rank = trace->steps[0].ranks[1];
  EXPECT_EQ(rank.rank, 1);
  EXPECT_NEAR(rank.span.begin_ms, 0, 1e-9);
  EXPECT_NEAR(rank.span.end_ms, 11000, 1e-6);
  ASSERT_EQ(rank.host.size(), 1);
  EXPECT_EQ(rank.host[0].name, "forward+backward");
  ASSERT_EQ(rank.ops.size(), 2);  // the two products touch
  EXPECT_EQ(rank.ops[0].ops, 2);
  EXPECT_NEAR(rank.ops[0].span.end_ms, 4000, 1e-6);
  ASSERT_EQ(rank.collectives.size(), 1);
  const CollectiveTimeline& one = rank.collectives[0];
  EXPECT_EQ(one.name, "reduce_scatter");
  EXPECT_EQ(one.label, "mlp");
  EXPECT_EQ(one.bytes, 1000);
  EXPECT_NEAR(one.span.begin_ms, 3000, 1e-6);
  EXPECT_NEAR(one.span.end_ms, 8000, 1e-6);
  EXPECT_NEAR(one.exposed_ms, 3000, 1e-6);
  EXPECT_THAT(one.under, ElementsAre(Pair("gemm", testing::DoubleNear(1000, 1e-6))));
}

// 10 s are 4 of products, 2 of the update, 3 of waiting, and 1 (from 14 to 15) of nothing.
TEST(MeanPhases, SumToTheStep) {
  const absl::StatusOr<TraceFile> trace = ParseTrace("t.json", TwoRanks());
  ASSERT_TRUE(trace.ok()) << trace.status();
  const std::vector<RankPhases> phases = MeanPhases(*trace);
  ASSERT_EQ(phases.size(), 2);
  EXPECT_NEAR(phases[0].step_ms, 10000, 1e-6);
  EXPECT_NEAR(phases[0].op_ms.at("gemm"), 4000, 1e-6);
  EXPECT_NEAR(phases[0].op_ms.at("optimizer"), 2000, 1e-6);
  EXPECT_NEAR(phases[0].exposed_ms, 3000, 1e-6);
  EXPECT_NEAR(phases[0].idle_ms, 1000, 1e-6);
  EXPECT_NEAR(phases[1].op_ms.at("optimizer"), 3000, 1e-6);
}

TEST(ParseTrace, BadFiles) {
  const std::string good = TwoRanks();
  const absl::Status cut = ParseTrace("t.json", good.substr(0, good.size() / 2)).status();
  EXPECT_EQ(cut.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(cut.message()), HasSubstr("t.json: no whole JSON object"));
  const absl::Status empty = ParseTrace("t.json", "{\"traceEvents\":[]}").status();
  EXPECT_EQ(empty.code(), absl::StatusCode::kDataLoss);
  for (const char* event :
       {"3", "{}", "{\"ph\":\"X\"}", "{\"ph\":\"X\",\"ts\":1,\"pid\":0,\"tid\":1}",
        "{\"ph\":\"b\",\"ts\":1,\"pid\":0,\"id\":1}", "{\"ph\":\"Q\",\"ts\":1,\"pid\":0}",
        "{\"ph\":\"X\",\"ts\":\"1\",\"pid\":0,\"tid\":1,\"dur\":1}"}) {
    const std::string text = absl::StrCat("{\"traceEvents\":[", event, "]}");
    const absl::Status status = ParseTrace("t.json", text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << event;
    EXPECT_THAT(std::string(status.message()), HasSubstr("traceEvents[0]")) << event;
  }
}

}  // namespace
}  // namespace tools
