#include "kernels/trace/tracing.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/matmul.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;

constexpr int64_t kSlots = 2, kT = 16, kD = 16, kHeads = 2;

std::vector<std::string> Names(const std::vector<TracedOp>& ops) {
  std::vector<std::string> names;
  for (const TracedOp& op : ops) names.push_back(op.name);
  return names;
}

class Tracing : public ::testing::Test {
 protected:
  HostTensor Stream(uint32_t seed) { return RandomTensor(DType::kBF16, {kSlots, kT, kD}, seed); }

  const std::unique_ptr<Queue> queue_ = MakeCpuQueue(1);
  OpTrace trace_{*queue_};
};

TEST_F(Tracing, TracedOpsComputeTheSameAndUntracedOnesLeaveNoTrace) {
  const HostTensor a = RandomTensor(DType::kBF16, {8, 24}, 1);
  const HostTensor b = RandomTensor(DType::kBF16, {24, 16}, 2);
  const HostTensor c(DType::kBF16, {8, 16}), want(DType::kBF16, {8, 16});
  MatMul(a, b, c, {}, *queue_);
  const std::unique_ptr<Queue> untraced = MakeCpuQueue(1);
  MatMul(a, b, want, {}, *untraced);
  EXPECT_EQ(c.ToDouble(), want.ToDouble());
  const std::vector<TracedOp> ops = trace_.Take();
  ASSERT_EQ(Names(ops), std::vector<std::string>{"MatMul"});
  EXPECT_EQ(ops[0].cost.shape, "bf16 [8, 24] x bf16 [24, 16]");
  EXPECT_EQ(ops[0].cost.flops, 2 * 8 * 24 * 16);
  EXPECT_EQ(ops[0].cost.bytes, 2 * (8 * 24 + 24 * 16 + 8 * 16));
  EXPECT_TRUE(trace_.Take().empty());
}

TEST_F(Tracing, TheQueueIsItselfAgainAfterwards) {
  const std::unique_ptr<Queue> queue = MakeCpuQueue(1);
  {
    OpTrace trace(*queue);
    EXPECT_NE(queue->listener(), nullptr);
  }
  EXPECT_EQ(queue->listener(), nullptr);
}

TEST(TracingDeathTest, OneTraceAQueue) {
  const std::unique_ptr<Queue> queue = MakeCpuQueue(1);
  const OpTrace trace(*queue);
  EXPECT_DEATH(OpTrace second(*queue), "two traces of one queue");
}

TEST_F(Tracing, WithoutATraceCostsAreNotEvenCounted) {
  const std::unique_ptr<Queue> untraced = MakeCpuQueue(1);
  int counted = 0;
  const auto cost = [&] {
    ++counted;
    return OpCost();
  };
  { const TraceScope scope("op", *untraced, cost); }
  EXPECT_EQ(counted, 0);
  { const TraceScope scope("op", *queue_, cost); }
  EXPECT_EQ(counted, 1);
}

TEST_F(Tracing, OpsInsideOfAnOpArePartOfIt) {
  const HostTensor x = Stream(1);
  OpCost cost;
  cost.bytes = 7;
  {
    const TraceScope scope("outer", *queue_, [&] { return cost; });
    FillZero(x, *queue_);
    FillZero(x, *queue_);
  }
  FillZero(x, *queue_);
  const std::vector<TracedOp> ops = trace_.Take();
  EXPECT_EQ(Names(ops), (std::vector<std::string>{"outer", "FillZero"}));
  EXPECT_EQ(ops[0].cost.bytes, 7);
  EXPECT_LE(ops[0].end_s, ops[1].begin_s);
}

TEST_F(Tracing, OpsThatAreReplayedAreNoted) {
  const HostTensor x = Stream(1);
  const auto recording = queue_->Record([&] { FillZero(x, *queue_); });
  EXPECT_TRUE(trace_.Take().empty()) << "recording runs nothing";
  recording->Replay();
  EXPECT_EQ(Names(trace_.Take()), std::vector<std::string>{"FillZero"});
}

TEST_F(Tracing, TimesAreOrderedAndTheCallersMarksAmongThem) {
  const HostTensor x = Stream(1);
  const int64_t begin = queue_->MarkTime();
  FillZero(x, *queue_);
  Scale(HostTensor(DType::kF32, {1000}), 2.0f, *queue_);
  const int64_t end = queue_->MarkTime();
  std::vector<double> marks;
  const std::vector<TracedOp> ops = trace_.Take(&marks);
  ASSERT_EQ(ops.size(), 2u);
  ASSERT_EQ(marks.size(), 6u);
  EXPECT_EQ(marks[begin], 0);
  double last = 0;
  for (const TracedOp& op : ops) {
    EXPECT_LE(last, op.begin_s);
    EXPECT_LE(op.begin_s, op.end_s);
    last = op.end_s;
  }
  EXPECT_LE(last, marks[end]);
}

TEST_F(Tracing, PhaseOfTheCaller) {
  const HostTensor x = Stream(1);
  FillZero(x, *queue_);
  trace_.SetPhase(OpPhase::kOptimizer);
  FillZero(x, *queue_);
  trace_.SetPhase(std::nullopt);
  FillZero(x, *queue_);
  const std::vector<TracedOp> ops = trace_.Take();
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[0].cost.phase, OpPhase::kOther);
  EXPECT_EQ(ops[1].cost.phase, OpPhase::kOptimizer);
  EXPECT_EQ(ops[2].cost.phase, OpPhase::kOther);
}

TEST_F(Tracing, AttentionWithTheCallersPairs) {
  const HostTensor q = Stream(1), k = Stream(2), v = Stream(3), d_o = Stream(4);
  const HostTensor o = Stream(0), dq = Stream(0), dk = Stream(0), dv = Stream(0);
  const HostTensor boundaries(DType::kI32, {kSlots, 3});
  const HostTensor lse(DType::kF32, {kSlots, kHeads, kT}), delta(DType::kF32, {kSlots, kHeads, kT});
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    int32_t* row = boundaries.get().i32() + 3 * slot;
    row[1] = 7;
    row[2] = kT;
  }
  AttentionArgs args{.q = q,
                     .k = k,
                     .v = v,
                     .boundaries = boundaries,
                     .heads = kHeads,
                     .window_tokens = 4,
                     .scale = 0.1f,
                     .o = o,
                     .lse = lse};
  Attention(args, *queue_);
  trace_.SetAttentionPairs([](const AttentionWindow& window) {
    return AttentionPairs({0, 7, 16}, window);
  });
  AttentionGrad(args, {.do_ = d_o, .delta = delta, .dq = dq, .dk = dk, .dv = dv}, *queue_);
  args.window_tokens = 0;
  args.window_block = 16;
  Attention(args, *queue_);
  const std::vector<TracedOp> ops = trace_.Take();
  ASSERT_EQ(Names(ops), (std::vector<std::string>{"Attention", "AttentionGrad", "Attention"}));
  EXPECT_EQ(ops[0].cost.flops, 4 * kSlots * kD * AttentionPairs(kT, 4));
  EXPECT_EQ(ops[1].cost.flops, 10 * kSlots * kD * AttentionPairs({0, 7, 16}, 4));
  EXPECT_EQ(ops[2].cost.flops, 4 * kSlots * kD * (7 * 8 / 2 + 9 * 10 / 2));  // all in one block
}

}  // namespace
}  // namespace kernels
