#include "tools/trainer/comm_times.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tools/checkpoint/files.h"
#include "tools/trainer/run_trace.h"
#include "tools/trainer/step_phases.h"

namespace tools {
namespace {

CollectiveSpan Span(const char* name, const char* label, int64_t bytes, double begin_ms,
                    double launched_ms, double wait_ms, double end_ms) {
  return {.name = name,
          .label = label,
          .bytes = bytes,
          .begin_s = begin_ms / 1e3,
          .launched_s = launched_ms / 1e3,
          .wait_s = wait_ms / 1e3,
          .end_s = end_ms / 1e3};
}

// Backward 0 to 10, losses, two buffers: "a" is sharded, "b" replicated. Times in ms:
//   10-11 losses, waited for at once           11-13 the losses are looked at, a is packed
//   13-14 reduction of a launched              14-16 b is packed
//   16    reduction of b launched              18-21 wait for a; 21-26 update of a
//   26    gather of a launched                 27-28 wait for b; 28-30 update of b
//   30-33 wait for the gather; 33-34 copies back
TracedStep Step(int rank, double scale = 1) {
  TracedStep step;
  step.rank = rank;
  step.tokens = 20;
  step.end_s = 0.034 * scale;
  step.collectives = {
      Span("all_gather", "slot losses", 40, 10, 10, 10, 11),
      Span("reduce_scatter", "a", 1000, 13, 14, 18, 21),
      Span("all_reduce", "b", 8, 16, 16, 27, 28),
      Span("all_gather", "a", 500, 26, 26, 30, 33),
  };
  for (CollectiveSpan& span : step.collectives) {
    for (double* at : {&span.begin_s, &span.launched_s, &span.wait_s, &span.end_s}) *at *= scale;
  }
  return step;
}

RunFacts Facts(bool deterministic = false) {
  return {.record = "r",
          .preset = "demo",
          .device = "cpu",
          .ranks = 2,
          .slots = 8,
          .deterministic = deterministic};
}

TEST(CommTimes, ExposedIsWhatTheQueueStoodStillFor) {
  const CommTimes times = SumCollectives({Step(0), Step(0)});
  ASSERT_EQ(times.collectives.size(), 4u);
  EXPECT_EQ(times.ranks, 1);
  EXPECT_EQ(times.steps, 2);
  EXPECT_NEAR(times.step_ms, 34, 1e-9);
  const CollectiveTimes& a = times.collectives[1];
  EXPECT_EQ(a.collective, "reduce_scatter");
  EXPECT_EQ(a.label, "a");
  EXPECT_NEAR(a.calls, 1, 1e-12);
  EXPECT_NEAR(a.bytes, 1000, 1e-9);
  EXPECT_NEAR(a.total_ms, 8, 1e-9);
  EXPECT_NEAR(a.exposed_ms, 1 + 3, 1e-9);  // in the call, and in the wait
  EXPECT_NEAR(a.hidden_ms(), 4, 1e-9);
  const CollectiveTimes all = times.Total();
  EXPECT_NEAR(all.total_ms, 1 + 8 + 12 + 7, 1e-9);
  EXPECT_NEAR(all.exposed_ms, 1 + 4 + 1 + 3, 1e-9);
  EXPECT_NEAR(all.calls, 4, 1e-9);
}

TEST(CommTimes, AreMeansOverRanksAndSteps) {
  const CommTimes times = SumCollectives({Step(0), Step(1, 3)});
  EXPECT_EQ(times.ranks, 2);
  EXPECT_EQ(times.steps, 1);
  EXPECT_NEAR(times.collectives[1].exposed_ms, (4 + 12) / 2.0, 1e-9);
  EXPECT_NEAR(times.step_ms, 34 * 2, 1e-9);
  const std::string text = CommTimesText(times);
  EXPECT_TRUE(absl::StrContains(text, "reduce_scatter a")) << text;
  EXPECT_TRUE(absl::StrContains(text, "exposed ms  late ms  hidden ms\n")) << text;
  EXPECT_EQ(CommTimesJson(times)["collectives"].size(), 4u);
  EXPECT_TRUE(SumCollectives({}).collectives.empty());
}

// Rank 1 does all 2 ms later: what rank 0 waits longer for than rank 1 is the other's lateness.
TEST(CommTimes, LateIsWhatASlowerRankCosts) {
  TracedStep slower = Step(1), faster = Step(0);
  for (CollectiveSpan& span : slower.collectives) {
    for (double* at : {&span.begin_s, &span.launched_s, &span.wait_s, &span.end_s}) *at += 2e-3;
  }
  for (CollectiveSpan& span : faster.collectives) span.end_s += 2e-3;
  const CommTimes times = SumCollectives({faster, slower});
  // The losses: begun at 10 and 12, so 2 ms of rank 0's 3 are late. The reduction of a: begun at 13
  // and 15, launched at 14 on rank 0, 1 ms late; its wait begins when all are there.
  EXPECT_NEAR(times.collectives[0].late_ms, 2 / 2.0, 1e-9);
  EXPECT_NEAR(times.collectives[0].exposed_ms, (3 + 1) / 2.0, 1e-9);
  EXPECT_NEAR(times.collectives[1].late_ms, 1 / 2.0, 1e-9);
  EXPECT_NEAR(times.collectives[2].late_ms, 0, 1e-9);
  // Alone nothing is known of others.
  EXPECT_EQ(SumCollectives({faster}).Total().late_ms, 0);
}

// A gather of the step before, waited for from 2 to 5 and then copied back until 6.
TracedStep WithContinued(TracedStep step, double called_ms) {
  CollectiveSpan span = Span("all_gather", "a", 500, 0, 0, 2, 5);
  span.continued = true;
  span.called_s = called_ms / 1e3;
  step.collectives.insert(step.collectives.begin(), span);
  return step;
}

TEST(CommTimes, WhatAStepContinuesIsNotCountedAgain) {
  const CommTimes times = SumCollectives({WithContinued(Step(0), -8), WithContinued(Step(1), 4)});
  const CollectiveTimes& a = times.collectives[0];
  EXPECT_EQ(a.collective, "all_gather");
  EXPECT_EQ(a.label, "a");
  EXPECT_NEAR(a.calls, 1, 1e-12);
  EXPECT_NEAR(a.bytes, 500, 1e-9);
  EXPECT_NEAR(a.exposed_ms, 3 + 3, 1e-9);
  EXPECT_NEAR(a.total_ms, 5 + 7, 1e-9);
  // Rank 1 called at 4, while both waited.
  EXPECT_NEAR(a.late_ms, 2, 1e-9);
}

TEST(StepPhases, WaitsForTheStepBeforeAreNoBackward) {
  const StepPhases with = PhasesOf({WithContinued(Step(0), -8)}, Facts());
  const StepPhases without = PhasesOf({Step(0)}, Facts());
  EXPECT_NEAR(with.backward_ms_per_token, (10.0 - 3) / 20, 1e-9);
  ASSERT_EQ(with.buffers.size(), without.buffers.size());
  for (size_t i = 0; i < with.buffers.size(); ++i) {
    EXPECT_EQ(with.buffers[i].unpack_ms, without.buffers[i].unpack_ms);
  }
}

TEST(StepPhases, GapsBelongToTheCollectiveBeforeOrToTheLaunchBehind) {
  const StepPhases phases = PhasesOf({Step(0)}, Facts());
  EXPECT_NEAR(phases.backward_ms_per_token, 10.0 / 20, 1e-9);
  ASSERT_EQ(phases.buffers.size(), 2u);
  EXPECT_EQ(phases.buffers[0].label, "a");
  EXPECT_NEAR(phases.buffers[0].pack_ms, 2, 1e-9);
  EXPECT_NEAR(phases.buffers[0].update_ms, 5, 1e-9);
  EXPECT_NEAR(phases.buffers[0].unpack_ms, 1, 1e-9);
  EXPECT_NEAR(phases.buffers[1].pack_ms, 2, 1e-9);
  EXPECT_NEAR(phases.buffers[1].update_ms, 2, 1e-9);
  EXPECT_NEAR(phases.buffers[1].unpack_ms, 0, 1e-9);
}

TEST(StepPhases, TheSlowestRankCounts) {
  const StepPhases phases = PhasesOf({Step(0), Step(1, 2), Step(1, 4)}, Facts());
  EXPECT_NEAR(phases.buffers[0].update_ms, 5 * 3, 1e-9);
  EXPECT_NEAR(phases.backward_ms_per_token, 3 * 10.0 / 20, 1e-9);
}

TEST(StepPhases, ComeBackFromTheTracesFile) {
  const std::string path = testing::TempDir() + "/trace.json";
  RunTrace trace({.skip = 0, .steps = 1});
  trace.SetFacts(Facts());
  trace.Add(Step(0));
  ASSERT_TRUE(trace.Write(path).ok());
  const absl::StatusOr<StepPhases> read = ReadStepPhases(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->facts.record, "r");
  EXPECT_EQ(read->facts.preset, "demo");
  EXPECT_EQ(read->facts.ranks, 2);
  EXPECT_EQ(read->facts.slots, 8);
  ASSERT_EQ(read->buffers.size(), 2u);
  EXPECT_NEAR(read->buffers[0].update_ms, 5, 1e-9);
  EXPECT_NEAR(read->backward_ms_per_token, 0.5, 1e-9);
}

TEST(StepPhases, WhatIsNoTraceIsRefused) {
  const std::string path = testing::TempDir() + "/not_a_trace.json";
  const auto refused = [&](const std::string& text, const char* why) {
    ASSERT_TRUE(WriteFileAtomically(path, {text}).ok());
    const absl::Status status = ReadStepPhases(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), why)) << status;
  };
  refused("{", "no phases");
  refused(R"({"traceEvents": []})", "no phases");
  refused(R"({"otherData": {"phases": {"record": "r", "preset": 3}}})", "lack a field");
  refused(RunTrace({}).ToJson(), "no traced step");
  RunTrace deterministic({});
  deterministic.SetFacts(Facts(true));
  deterministic.Add(Step(0));
  refused(deterministic.ToJson(), "--deterministic");
  EXPECT_TRUE(absl::IsNotFound(ReadStepPhases(testing::TempDir() + "/none.json").status()));
}

}  // namespace
}  // namespace tools
