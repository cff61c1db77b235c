#include "tools/trainer/rank_trace.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/elementwise.h"
#include "kernels/testing/testing.h"
#include "nlohmann/json.hpp"
#include "tools/trainer/comm_times.h"

namespace tools {
namespace {

using kernels::DType;
using kernels::testing::HostTensor;
using nlohmann::json;

// Three steps of a rank, each a fill, a collective and an "optimizer" that scales.
void RunSteps(RankTrace& trace, comm::Communicator& inner, kernels::Queue& queue) {
  const std::unique_ptr<comm::Communicator> comm = comm::MakeTracing(inner, trace);
  const HostTensor x(DType::kF32, {1000});
  trace.Phase("validation");
  kernels::FillZero(x, queue);
  trace.EndPhase();
  for (int64_t step = 0; step < 3; ++step) {
    trace.BeginStep(step);
    trace.Phase("forward+backward");
    kernels::FillZero(x, queue);
    comm::Future reduced = comm->AllReduce("x", x, comm::ReduceOp::kSum, queue);
    ASSERT_TRUE(reduced.Wait(queue).ok());
    trace.Phase("optimizer", kernels::OpPhase::kOptimizer);
    kernels::Scale(x, 2.0f, queue);
    trace.EndStep();
  }
}

// Complete spans of one thread, in the order of the file.
std::vector<json> Spans(const json& trace, int rank, int thread) {
  std::vector<json> spans;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["pid"] == rank && event["tid"] == thread) {
      spans.push_back(event);
    }
  }
  return spans;
}

std::vector<std::string> Names(const std::vector<json>& spans) {
  std::vector<std::string> names;
  for (const json& span : spans) names.push_back(span["name"]);
  return names;
}

// In the order of begins, and each either ends before the next begins or encloses it.
void ExpectNested(const std::vector<json>& spans) {
  std::vector<double> open;  // ends of the spans around
  double last = 0;
  for (const json& span : spans) {
    const double begin = span["ts"], end = begin + span["dur"].get<double>();
    EXPECT_LE(last, begin) << span;
    last = begin;
    constexpr double kRounding = 1e-3;  // of begin + dur, in microseconds
    while (!open.empty() && open.back() <= begin + kRounding) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(end, open.back() + kRounding) << span;
    }
    open.push_back(end);
  }
}

TEST(RankTrace, WritesTheTracedStepsOfAllRanks) {
  RunTrace run({.skip = 1, .steps = 1});
  comm::RunRanks(2, [&run](comm::Communicator& comm, kernels::Queue& queue) {
    RankTrace trace(&run, comm.rank(), queue);
    RunSteps(trace, comm, queue);
  });
  const json trace = json::parse(run.ToJson());
  for (int rank : {0, 1}) {
    const std::vector<json> host = Spans(trace, rank, 1), device = Spans(trace, rank, 2);
    EXPECT_EQ(Names(host),
              (std::vector<std::string>{"validation", "step 1", "forward+backward", "optimizer"}));
    EXPECT_EQ(Names(device), (std::vector<std::string>{"FillZero", "Scale"}));
    ExpectNested(host);
    ExpectNested(device);
    EXPECT_EQ(device[0]["args"]["shape"], "f32 [1000]");
    EXPECT_EQ(device[0]["args"]["bytes"], 4000.0);
    EXPECT_EQ(device[0]["cat"], "other");
    EXPECT_EQ(device[1]["cat"], "optimizer");
    // Ops lie inside the step.
    EXPECT_GE(device[0]["ts"], host[1]["ts"]);
  }
}

TEST(RankTrace, CollectivesAreBeginAndEndWithLabelAndBytes) {
  RunTrace run({.skip = 0, .steps = 1});
  comm::RunRanks(2, [&run](comm::Communicator& comm, kernels::Queue& queue) {
    RankTrace trace(&run, comm.rank(), queue);
    RunSteps(trace, comm, queue);
  });
  std::map<std::pair<std::string, int64_t>, int> seen;
  const json trace = json::parse(run.ToJson());
  for (const json& event : trace["traceEvents"]) {
    if (event.value("cat", "") != "collective") continue;
    EXPECT_EQ(event["name"], "all_reduce x");
    if (event["ph"] == "b") {
      EXPECT_EQ(event["args"]["bytes"], 4000);
      EXPECT_GE(event["args"]["exposed_ms"], 0.0);
    }
    ++seen[{event["ph"], event["id"]}];
  }
  const std::map<std::pair<std::string, int64_t>, int> want = {
      {{"b", 0}, 1}, {{"e", 0}, 1}, {{"b", 1}, 1}, {{"e", 1}, 1}};
  EXPECT_EQ(seen, want);
}

// Rank 0 stands still for rank 1, which comes late; then both do something else before they wait,
// which is hidden.
TEST(RankTrace, TellsExposedFromHidden) {
  RunTrace run({.skip = 0, .steps = 1});
  comm::RunRanks(2, [&run](comm::Communicator& inner, kernels::Queue& queue) {
    RankTrace trace(&run, inner.rank(), queue);
    const std::unique_ptr<comm::Communicator> comm = comm::MakeTracing(inner, trace);
    const HostTensor x(DType::kF32, {1000}), y(DType::kF32, {1000});
    ASSERT_TRUE(inner.Barrier("start").ok());
    trace.BeginStep(0);
    if (inner.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ASSERT_TRUE(comm->AllReduce("at once", x, comm::ReduceOp::kSum, queue).Wait(queue).ok());
    comm::Future later = comm->AllReduce("later", y, comm::ReduceOp::kSum, queue);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(later.Wait(queue).ok());
    trace.EndStep();
  });
  const std::vector<TracedStep> steps = run.steps();
  ASSERT_EQ(steps.size(), 2u);
  for (const TracedStep& step : steps) {
    ASSERT_EQ(step.collectives.size(), 2u);
    const CollectiveSpan &at_once = step.collectives[0], &later = step.collectives[1];
    if (step.rank == 0) {
      EXPECT_GE(at_once.exposed_s(), 0.050);  // less than 200 ms, should rank 0 start late itself
    }
    EXPECT_GE(later.hidden_s(), 0.020);
    for (const CollectiveSpan& span : step.collectives) {
      EXPECT_GE(span.exposed_s(), 0);
      EXPECT_NEAR(span.exposed_s() + span.hidden_s(), span.end_s - span.begin_s, 1e-9);
    }
  }
}

// Launched in one step and waited for in the next, as gathers of weights are, also over the edges
// of what is traced: each step has of it what lies in the step. Rank 1 is late to launch it in step
// 1, which rank 0 finds in step 2.
TEST(RankTrace, WhatAStepLeavesInFlightCountsWhereItIsWaitedFor) {
  RunTrace run({.skip = 1, .steps = 2});
  comm::RunRanks(2, [&run](comm::Communicator& inner, kernels::Queue& queue) {
    RankTrace trace(&run, inner.rank(), queue);
    const std::unique_ptr<comm::Communicator> comm = comm::MakeTracing(inner, trace);
    const HostTensor own(DType::kF32, {500}), all(DType::kF32, {1000});
    comm::Future gather;
    for (int step = 0; step < 4; ++step) {
      if (step != 2) {
        ASSERT_TRUE(inner.Barrier("begin").ok());
      }
      trace.BeginStep(step);
      if (gather.valid()) {
        if (step == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ASSERT_TRUE(gather.Wait(queue).ok());
      }
      ASSERT_TRUE(comm->AllReduce("x", own, comm::ReduceOp::kSum, queue).Wait(queue).ok());
      if (step == 1 && inner.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
      gather = comm->AllGather("w", own, all, queue);
      trace.EndStep();
    }
    ASSERT_TRUE(gather.Wait(queue).ok());
  });
  const std::vector<TracedStep> steps = run.steps();
  ASSERT_EQ(steps.size(), 4u);
  for (const TracedStep& step : steps) {
    ASSERT_EQ(step.collectives.size(), 3u);
    const CollectiveSpan &before = step.collectives[0], &left = step.collectives[2];
    for (const CollectiveSpan* span : {&before, &left}) {
      EXPECT_EQ(span->label, "w");
      EXPECT_EQ(span->continued, span == &before);
      EXPECT_GE(span->begin_s, step.begin_s);
      EXPECT_LE(span->end_s, step.end_s);
    }
    EXPECT_EQ(before.begin_s, step.begin_s);
    EXPECT_LE(before.called_s, step.begin_s);
    EXPECT_EQ(left.end_s, step.end_s);
    EXPECT_EQ(left.wait_s, step.end_s) << "nobody waited for it";
    if (step.step == 1) {
      EXPECT_GE(before.hidden_s(), 0.020);
    }
    if (step.step == 2 && step.rank == 0) {
      EXPECT_GE(before.exposed_s(), 0.100);
    }
  }
  const CommTimes times = SumCollectives(steps);
  for (const CollectiveTimes& row : times.collectives) {
    EXPECT_NEAR(row.calls, 1, 1e-9) << row.label;
    EXPECT_NEAR(row.bytes, row.label == "w" ? 4000 : 2000, 1e-6);
    if (row.label == "w") {
      EXPECT_GE(row.late_ms, 100.0 / 4) << "of one rank and step of four";
    }
  }
}

TEST(RankTrace, WithoutARunNothingHappens) {
  comm::RunRanks(1, [](comm::Communicator& comm, kernels::Queue& queue) {
    RankTrace trace(nullptr, 0, queue);
    trace.BeginStep(0);
    EXPECT_EQ(queue.listener(), nullptr);
    EXPECT_FALSE(trace.tracing_ops());
    trace.EndStep();
    RunSteps(trace, comm, queue);
  });
}

TEST(RankTrace, AttentionCountsThePairsOfTheRanksDocuments) {
  RunTrace run({.skip = 0, .steps = 1});
  comm::RunRanks(1, [&run](comm::Communicator&, kernels::Queue& queue) {
    const auto batch = std::make_shared<data::GlobalBatch>();
    for (int32_t cut : {4, 8, 12}) batch->slots.push_back({{}, {}, {0, cut, 16}});
    const HostTensor q = kernels::testing::RandomTensor(DType::kBF16, {2, 16, 16}, 1);
    const HostTensor o(DType::kBF16, {2, 16, 16}), lse(DType::kF32, {2, 1, 16});
    const HostTensor boundaries(DType::kI32, {2, 2});
    for (int slot : {0, 1}) boundaries.get().i32()[2 * slot + 1] = 16;
    kernels::AttentionArgs args;
    args.q = args.k = args.v = q;
    args.boundaries = boundaries;
    args.heads = 1;
    args.window_tokens = 5;
    args.scale = 0.1f;
    args.o = o;
    args.lse = lse;

    RankTrace trace(&run, 0, queue);
    trace.BeginStep(0);
    trace.SetBatch(batch, {1, 3});
    kernels::Attention(args, queue);
    trace.EndStep();
  });
  ASSERT_EQ(run.steps().size(), 1u);
  const double pairs =
      kernels::AttentionPairs({0, 8, 16}, 5) + kernels::AttentionPairs({0, 12, 16}, 5);
  EXPECT_EQ(run.steps()[0].ops.at(0).cost.flops, 4 * 16 * pairs);
}

}  // namespace
}  // namespace tools
