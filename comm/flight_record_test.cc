#include "comm/flight_record.h"

#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace comm {
namespace {

// A rank that has started `calls`, of which the first `finished` have ended.
RankState Rank(int rank, const std::vector<std::string>& calls, size_t finished) {
  FlightRecord record(rank);
  for (const std::string& call : calls) record.Start(call, 12);
  for (size_t i = 0; i < finished; ++i) record.Finish(i);
  return {.kind = RankState::kHere, .progress = record.Now()};
}

void ExpectHas(const std::string& text, const std::string& part) {
  EXPECT_TRUE(absl::StrContains(text, part)) << part << "\nnot in\n" << text;
}

int Count(absl::string_view text, absl::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != absl::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(DescribeCall, SaysWhatRanksMustAgreeOn) {
  float data[6];
  const kernels::Tensor x(data, kernels::DType::kF32, {2, 3});
  EXPECT_EQ(DescribeCall("all_reduce", "loss", x, "sum"), "all_reduce(loss, f32 x 6, sum)");
  EXPECT_EQ(DescribeCall("all_gather", "w", x, ""), "all_gather(w, f32 x 6)");
}

TEST(FlightRecord, NumbersInOrderAndEndsInAnyOrder) {
  FlightRecord record(3);
  EXPECT_EQ(record.Now().LastStarted(), nullptr);
  EXPECT_EQ(record.Now().LastFinished(), nullptr);
  EXPECT_EQ(record.Start("a", 1), 0);
  EXPECT_EQ(record.Start("b", 2), 1);
  EXPECT_EQ(record.Start("c", 3), 2);
  record.Finish(1);
  const Progress now = record.Now();
  EXPECT_EQ(now.rank, 3);
  EXPECT_EQ(now.started, 3);
  EXPECT_EQ(now.LastStarted()->call, "c");
  EXPECT_EQ(now.LastStarted()->bytes, 3);
  EXPECT_EQ(now.LastFinished()->call, "b");
  EXPECT_EQ(now.OldestUnfinished()->call, "a");
  EXPECT_GE(now.OldestUnfinished()->started_ago, now.LastFinished()->finished_ago);
  EXPECT_EQ(now.Find(3), nullptr);
}

TEST(FlightRecord, ForgetsTheOldButNotTheUnfinished) {
  FlightRecord record(0);
  for (int i = 0; i < 1000; ++i) record.Finish(record.Start("old", 1));
  EXPECT_LE(record.Now().calls.size(), 32u);
  EXPECT_EQ(record.Now().started, 1000);
  const int64_t stuck = record.Start("stuck", 1);
  for (int i = 0; i < 100; ++i) record.Finish(record.Start("new", 1));
  EXPECT_EQ(record.Now().OldestUnfinished()->number, stuck);
  record.Finish(stuck);
  record.Start("next", 1);
  EXPECT_LE(record.Now().calls.size(), 33u);
  EXPECT_EQ(record.Now().LastStarted()->number, 1101);
}

TEST(FlightRecordDeathTest, EndsAreOfStartedCallsOnce) {
  FlightRecord record(0);
  EXPECT_DEATH(record.Finish(0), "collective 0 was not started");
  record.Finish(record.Start("a", 1));
  EXPECT_DEATH(record.Finish(0), "twice");
}

TEST(FlightRecord, FromSeveralThreads) {
  FlightRecord record(0);
  std::thread reader([&] {
    for (int i = 0; i < 200; ++i) EXPECT_LE(record.Now().calls.size(), 33u);
  });
  for (int i = 0; i < 1000; ++i) record.Finish(record.Start("x", 1));
  reader.join();
}

TEST(Progress, TravelsAsText) {
  FlightRecord record(7);
  record.Finish(record.Start("all_reduce(a b, f32 x 3, sum)", 12));
  record.Start("barrier(two\nlines)", 0);
  const Progress now = record.Now();
  const absl::StatusOr<Progress> back = ParseProgress(Serialize(now));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->rank, 7);
  EXPECT_EQ(back->started, 2);
  ASSERT_EQ(back->calls.size(), 2u);
  EXPECT_EQ(back->calls[0].call, "all_reduce(a b, f32 x 3, sum)");
  EXPECT_EQ(back->calls[0].bytes, 12);
  EXPECT_TRUE(back->calls[0].finished);
  EXPECT_EQ(back->calls[0].finished_ago,
            absl::Floor(now.calls[0].finished_ago, absl::Microseconds(1)));
  EXPECT_EQ(back->calls[1].call, "barrier(two lines)");
  EXPECT_FALSE(back->calls[1].finished);
}

TEST(Progress, TextHasABound) {
  FlightRecord record(0);
  record.Finish(record.Start("the finished one", 1));
  record.Start("the oldest", 1);
  for (int i = 0; i < 5000; ++i) record.Start(std::string(1000, 'x'), 1);
  const std::string text = Serialize(record.Now());
  EXPECT_LE(text.size(), size_t{7} << 10);
  const absl::StatusOr<Progress> back = ParseProgress(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->OldestUnfinished()->call, "the oldest");
  EXPECT_EQ(back->LastFinished()->call, "the finished one");
  EXPECT_EQ(back->LastStarted()->number, 5001);
}

TEST(Progress, OtherTextsAreRefused) {
  for (const char* text :
       {"", "progress-1 2", "progress-2 0 0\n", "progress-1 0 1\n0 1 2 3\n",
        "progress-1 0 1\n0 1 2 x call\n", "GET / HTTP/1.1", "progress-1 1 -2\n",
        "progress-1 -1 2\n", "progress-1 1 2\n2 8 3 4 call\n", "progress-1 1 2\n-1 8 3 4 call\n",
        "progress-1 1 2\n1 -8 3 4 call\n", "progress-1 1 2\n1 8 -3 4 call\n",
        "progress-1 1 2\n1 8 3 -2 call\n", "progress-1 1 2\n1 8 3 4 call\n1 8 3 4 call\n"}) {
    EXPECT_EQ(ParseProgress(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Report, NamesTheRankThatIsBehind) {
  const std::string text =
      ReportText({Rank(0, {"a", "b"}, 1), Rank(1, {"a", "b"}, 1), Rank(2, {"a"}, 1)});
  ExpectHas(text, "  rank 0 started 1 b, 12 bytes, 0.0 s ago; finished 0 a, 0.0 s ago\n");
  ExpectHas(text, "  rank 2 started 0 a, 12 bytes, 0.0 s ago, and finished it 0.0 s ago\n");
  ExpectHas(text,
            "  differs: rank 2 is behind: it has not called collective 1, b, as ranks 0 and 1 "
            "have\n");
  EXPECT_EQ(Count(text, "differs"), 1) << text;
}

TEST(Report, NamesBothSidesOfADifferentCall) {
  const std::string text = ReportText(
      {Rank(0, {"a", "b", "c"}, 1), Rank(1, {"a", "b", "c"}, 1), Rank(2, {"a", "x"}, 1)});
  ExpectHas(text, "  differs: collective 1: rank 0 calls b, rank 2 calls x\n");
  EXPECT_EQ(Count(text, "differs"), 1) << text;
}

TEST(Report, NamesTheRanksThatAreStillInACall) {
  const std::string text =
      ReportText({Rank(0, {"a", "b"}, 2), Rank(1, {"a", "b"}, 0), Rank(2, {"a", "b"}, 2)});
  ExpectHas(text, "  rank 1 started 1 b, 12 bytes, 0.0 s ago; finished none; still in 0 a\n");
  ExpectHas(text, "  differs: collective 0, a has ended for ranks 0 and 2, not for rank 1\n");
}

TEST(Report, NamesTheLostAndTheSilent) {
  const std::string text = ReportText({Rank(0, {"a"}, 0),
                                       {.kind = RankState::kLost, .progress = {}},
                                       {.kind = RankState::kSilent, .progress = {}},
                                       {.kind = RankState::kLeft, .progress = {}},
                                       Rank(4, {}, 0)});
  ExpectHas(text, "  differs: rank 1 is lost");
  ExpectHas(text, "  differs: rank 2 is silent");
  ExpectHas(text, "  differs: rank 3 has left in good order");
  ExpectHas(text, "  rank 4 has started no collective yet\n");
  ExpectHas(text, "  differs: rank 4 is behind: it has not called collective 0, a, as rank 0 has");
}

TEST(Report, SaysWhenNoRankDiffers) {
  const std::string text = ReportText({Rank(0, {"a"}, 0), Rank(1, {"a"}, 0)});
  ExpectHas(text, "differs: nothing between the ranks");
}

TEST(Report, WithoutRankZero) {
  const std::string text = ReportText({{.kind = RankState::kLost, .progress = {}},
                                       Rank(1, {"a"}, 0),
                                       {.kind = RankState::kUnknown, .progress = {}}});
  ExpectHas(text, "  rank 2 is not known of");
  EXPECT_EQ(Count(text, "differs"), 1) << text;
}

}  // namespace
}  // namespace comm
