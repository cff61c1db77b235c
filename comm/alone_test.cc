#include "comm/alone.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/testing.h"

namespace comm {
namespace {

using kernels::DType;
using kernels::testing::HostTensor;

class AloneTest : public testing::Test {
 protected:
  const std::unique_ptr<Communicator> comm_ = MakeAlone("test");
  const std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(1);
};

TEST_F(AloneTest, C1_CollectivesAreCopies) {
  EXPECT_EQ(comm_->rank(), 0);
  EXPECT_EQ(comm_->size(), 1);
  EXPECT_EQ(comm_->backend(), "test");
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const HostTensor in(dtype, {3}), scattered(dtype, {3}), gathered(dtype, {3});
    in.Set({1, -2, 3.5});
    const std::vector<double> want = {1, -2, 3.5};
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      EXPECT_TRUE(comm_->ReduceScatter("a", in, scattered, op, *queue_).Wait(*queue_).ok());
      EXPECT_EQ(scattered.ToDouble(), want);
      EXPECT_TRUE(comm_->AllReduce("b", in, op, *queue_).Wait(*queue_).ok());
    }
    EXPECT_TRUE(comm_->AllGather("c", in, gathered, *queue_).Wait(*queue_).ok());
    EXPECT_EQ(gathered.ToDouble(), want);
    EXPECT_TRUE(comm_->AllGather("in place", in, in, *queue_).Wait(*queue_).ok());
    EXPECT_TRUE(comm_->Broadcast("d", in, 0, *queue_).Wait(*queue_).ok());
    EXPECT_EQ(in.ToDouble(), want);
  }
  EXPECT_TRUE(comm_->Barrier("end").ok());
}

TEST_F(AloneTest, OtherTypesAreGathered) {
  const HostTensor in(DType::kI32, {2}), out(DType::kI32, {2});
  in.get().i32()[1] = 7;
  EXPECT_TRUE(comm_->AllGather("c", in, out, *queue_).Wait(*queue_).ok());
  EXPECT_EQ(out.get().i32()[1], 7);
}

TEST_F(AloneTest, RowsAreCopied) {
  const HostTensor in(DType::kF32, {3, 2}), out(DType::kF32, {4, 2});
  in.Set({1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(comm_->AllToAllRows("r", in, {0}, out, {0}, *queue_).Wait(*queue_).ok());
  EXPECT_EQ(out.ToDouble(), std::vector<double>(8, 0));
  EXPECT_TRUE(comm_->AllToAllRows("r", in, {2}, out, {2}, *queue_).Wait(*queue_).ok());
  EXPECT_EQ(out.ToDouble(), (std::vector<double>{1, 2, 3, 4, 0, 0, 0, 0}));
  const HostTensor narrow(DType::kF32, {2, 3});
  EXPECT_DEATH((void)comm_->AllToAllRows("counts", in, {2}, out, {1}, *queue_), "counts");
  EXPECT_DEATH((void)comm_->AllToAllRows("many", in, {4}, out, {4}, *queue_), "many");
  EXPECT_DEATH((void)comm_->AllToAllRows("cols", in, {1}, narrow, {1}, *queue_), "cols");
}

TEST_F(AloneTest, AbortEndsIt) {
  const HostTensor x(DType::kF32, {2});
  comm_->Abort(absl::DataLossError("torn"));
  for (const absl::Status& status :
       {comm_->Barrier("b"), comm_->AllReduce("x", x, ReduceOp::kSum, *queue_).Wait(*queue_),
        comm_->AllGather("x", x, x, *queue_).Wait(*queue_)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("torn"), absl::string_view::npos) << status;
  }
}

TEST_F(AloneTest, WrongArgumentsAreBugs) {
  const HostTensor two(DType::kF32, {2}), three(DType::kF32, {3}), half(DType::kBF16, {2});
  const HostTensor ints(DType::kI32, {2});
  EXPECT_DEATH((void)comm_->AllGather("sizes", two, three, *queue_), "sizes");
  EXPECT_DEATH((void)comm_->ReduceScatter("types", two, half, ReduceOp::kSum, *queue_), "types");
  EXPECT_DEATH((void)comm_->Broadcast("root", two, 1, *queue_), "root");
  EXPECT_DEATH((void)comm_->AllReduce("ints", ints, ReduceOp::kSum, *queue_), "ints: reduction");
}

}  // namespace
}  // namespace comm
