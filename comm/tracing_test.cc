#include "comm/tracing.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/testing/testing.h"

namespace comm {
namespace {

using kernels::DType;
using kernels::testing::HostTensor;

class Notes : public CollectiveListener {
 public:
  int64_t Began(absl::string_view name, absl::string_view label, int64_t bytes,
                kernels::Queue&) override {
    lines.push_back(absl::StrCat("began ", name, " ", label, " ", bytes));
    return begun++;
  }
  void Launched(int64_t collective, kernels::Queue&) override {
    lines.push_back(absl::StrCat("launched ", collective));
  }
  void Waiting(int64_t collective, kernels::Queue&) override {
    lines.push_back(absl::StrCat("waiting ", collective));
  }
  void Ended(int64_t collective, kernels::Queue&) override {
    lines.push_back(absl::StrCat("ended ", collective));
  }
  std::vector<std::string> lines;
  int64_t begun = 0;
};

TEST(Tracing, TellsEachCollectiveAndPassesItOn) {
  RunRanks(2, [](Communicator& inner, kernels::Queue& queue) {
    Notes notes;
    const std::unique_ptr<Communicator> comm = MakeTracing(inner, notes);
    EXPECT_EQ(comm->rank(), inner.rank());
    EXPECT_EQ(comm->size(), 2);
    const HostTensor x(DType::kF32, {4}), half(DType::kF32, {2});
    x.Set({1, 2, 3, 4});
    // Two at once, waited for in the other order.
    Future gathered = comm->AllGather("gather", half, x, queue);
    Future reduced = comm->AllReduce("reduce", half, ReduceOp::kSum, queue);
    ASSERT_TRUE(reduced.Wait(queue).ok());
    ASSERT_TRUE(gathered.Wait(queue).ok());
    x.Set({1, 2, 3, 4});
    ASSERT_TRUE(comm->ReduceScatter("scatter", x, half, ReduceOp::kSum, queue).Wait(queue).ok());
    ASSERT_TRUE(comm->Broadcast("cast", half, 0, queue).Wait(queue).ok());
    // Rank 0 sends one row of two bytes and gets three.
    const HostTensor rows(DType::kBF16, {4, 1}), others(DType::kBF16, {4, 1});
    const bool first = inner.rank() == 0;
    const std::vector<int64_t> send = {first ? 0 : 3, first ? 1 : 0};
    const std::vector<int64_t> receive = {first ? 0 : 1, first ? 3 : 0};
    ASSERT_TRUE(comm->AllToAllRows("rows", rows, send, others, receive, queue).Wait(queue).ok());
    ASSERT_TRUE(comm->Barrier("all").ok());
    EXPECT_EQ(half.ToDouble(), (std::vector<double>{2, 4}));
    EXPECT_EQ(notes.lines, (std::vector<std::string>{"began all_gather gather 16",
                                                     "launched 0",
                                                     "began all_reduce reduce 8",
                                                     "launched 1",
                                                     "waiting 1",
                                                     "ended 1",
                                                     "waiting 0",
                                                     "ended 0",
                                                     "began reduce_scatter scatter 16",
                                                     "launched 2",
                                                     "waiting 2",
                                                     "ended 2",
                                                     "began broadcast cast 8",
                                                     "launched 3",
                                                     "waiting 3",
                                                     "ended 3",
                                                     "began all_to_all_rows rows 6",
                                                     "launched 4",
                                                     "waiting 4",
                                                     "ended 4"}));
  });
}

TEST(Tracing, FailuresPassThrough) {
  RunRanks(2, [](Communicator& inner, kernels::Queue& queue) {
    Notes notes;
    const std::unique_ptr<Communicator> comm = MakeTracing(inner, notes);
    if (comm->rank() == 1) {
      comm->Abort(absl::InternalError("enough"));
      return;
    }
    const HostTensor x(DType::kF32, {4});
    const absl::Status status = comm->Broadcast("cast", x, 1, queue).Wait(queue);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(notes.lines.size(), 4u);
  });
}

}  // namespace
}  // namespace comm
