#include "comm/local/local.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/ops/elementwise.h"
#include "kernels/testing/testing.h"

namespace comm {
namespace {

using kernels::DType;
using kernels::Tensor;
using kernels::testing::HostTensor;
using kernels::testing::RandomTensor;

class LocalTest : public testing::TestWithParam<int> {};

TEST_P(LocalTest, ReduceScatterAddsInRankOrder) {
  const int size = GetParam();
  const int64_t n = 37;
  // In f32 the order shows: the oracle adds rank 0 first.
  std::vector<float> want(size * n, 0.0f);
  for (int rank = 0; rank < size; ++rank) {
    const HostTensor in = RandomTensor(DType::kF32, {size * n}, rank + 1);
    for (int64_t i = 0; i < size * n; ++i) want[i] += in.get().f32()[i];
  }
  RunRanks(size, [&](Communicator& comm, kernels::Queue& queue) {
    const HostTensor in = RandomTensor(DType::kF32, {size * n}, comm.rank() + 1);
    const HostTensor out(DType::kF32, {n});
    ASSERT_TRUE(comm.ReduceScatter("x", in, out, ReduceOp::kSum, queue).Wait(queue).ok());
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(out.get().f32()[i], want[comm.rank() * n + i]);
  });
}

TEST_P(LocalTest, ReduceScatterIntoItsOwnPart) {
  const int size = GetParam();
  RunRanks(size, [&](Communicator& comm, kernels::Queue& queue) {
    const HostTensor x(DType::kF32, {size * 2});
    for (int i = 0; i < size * 2; ++i) x.get().f32()[i] = i + 1;
    const Tensor own = x.get().Slice(comm.rank() * 2, 2);
    ASSERT_TRUE(comm.ReduceScatter("x", x, own, ReduceOp::kAvg, queue).Wait(queue).ok());
    EXPECT_EQ(own.f32()[0], comm.rank() * 2 + 1);
    EXPECT_EQ(own.f32()[1], comm.rank() * 2 + 2);
  });
}

TEST_P(LocalTest, Bf16IsAddedInF32AndRoundedOnce) {
  const int size = GetParam();
  RunRanks(size, [&](Communicator& comm, kernels::Queue& queue) {
    const HostTensor x(DType::kBF16, {1});
    // 256 swallows a single 1 in bf16; in f32 the ones add up first.
    x.Set({comm.rank() == 0 ? 256.0 : 1.0});
    ASSERT_TRUE(comm.AllReduce("x", x, ReduceOp::kSum, queue).Wait(queue).ok());
    EXPECT_EQ(x.ToDouble()[0], kernels::RoundToBF16(256.0f + size - 1));
  });
}

TEST_P(LocalTest, AllGatherAndBroadcast) {
  const int size = GetParam();
  RunRanks(size, [&](Communicator& comm, kernels::Queue& queue) {
    const HostTensor all(DType::kI32, {size});
    const Tensor own = all.get().Slice(comm.rank(), 1);
    own.i32()[0] = 100 + comm.rank();
    Future gathered = comm.AllGather("ranks", own, all, queue);
    const HostTensor x(DType::kF32, {3});
    if (comm.rank() == size - 1) x.Set({1, 2, 3});
    Future sent = comm.Broadcast("x", x, size - 1, queue);
    ASSERT_TRUE(gathered.Wait(queue).ok());
    ASSERT_TRUE(sent.Wait(queue).ok());
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(all.get().i32()[rank], 100 + rank);
    EXPECT_EQ(x.ToDouble(), (std::vector<double>{1, 2, 3}));
    EXPECT_TRUE(comm.Barrier("end").ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, LocalTest, testing::Values(1, 2, 3, 4, 7, 8));

// A queue that says it is a GPU's, with the one op that a single rank needs.
class OtherDevice : public kernels::Queue, kernels::ElementwiseOps {
 public:
  OtherDevice() { ops_.elementwise = this; }
  int copies() const { return copies_; }

  const kernels::OpTable& ops() const override { return ops_; }
  kernels::DeviceKind device() const override { return kernels::DeviceKind::kCuda; }
  void Synchronize() override { ADD_FAILURE() << "nothing is to wait"; }
  void Upload(const void*, Tensor) override { ADD_FAILURE(); }
  void Download(Tensor, void*) override { ADD_FAILURE(); }
  std::unique_ptr<kernels::Readback> StartDownload(Tensor) override {
    ADD_FAILURE();
    return nullptr;
  }
  std::unique_ptr<kernels::Recording> Record(const std::function<void()>&) override {
    ADD_FAILURE();
    return nullptr;
  }
  void SetOps(const kernels::OpTable*) override { ADD_FAILURE(); }
  int64_t MarkTime() override {
    ADD_FAILURE();
    return 0;
  }
  std::vector<double> TakeTimes() override {
    ADD_FAILURE();
    return {};
  }

 private:
  void Copy(Tensor x, Tensor y, Queue&) const override {
    ++copies_;
    std::memcpy(y.data(), x.data(), x.bytes());
  }
  void FillZero(Tensor, Queue&) const override { ADD_FAILURE(); }
  void Add(Tensor, Tensor, Queue&) const override { ADD_FAILURE(); }
  void Sum(Tensor, Tensor, Tensor, Queue&) const override { ADD_FAILURE(); }
  void Scale(Tensor, float, Queue&) const override { ADD_FAILURE(); }
  void RowSums(Tensor, Tensor, Queue&) const override { ADD_FAILURE(); }
  void FirstNonFinite(Tensor, Tensor, Queue&) const override { ADD_FAILURE(); }
  void PoisonIfFound(Tensor, Tensor, Queue&) const override { ADD_FAILURE(); }
  void ClearUnlessFinite(Tensor, Tensor, Queue&) const override { ADD_FAILURE(); }

  kernels::OpTable ops_;
  mutable int copies_ = 0;
};

TEST(Local, C1_OneRankOnAnotherDevice) {
  RunRanks(1, [](Communicator& comm, kernels::Queue&) {
    OtherDevice queue;
    const HostTensor x(DType::kF32, {2}), y(DType::kF32, {2});
    x.Set({1, 2});
    const Tensor in(x.get().data(), DType::kF32, {2}, kernels::DeviceKind::kCuda);
    const Tensor out(y.get().data(), DType::kF32, {2}, kernels::DeviceKind::kCuda);
    EXPECT_TRUE(comm.ReduceScatter("a", in, out, ReduceOp::kAvg, queue).Wait(queue).ok());
    EXPECT_EQ(y.ToDouble(), x.ToDouble());
    EXPECT_TRUE(comm.AllGather("b", out, in, queue).Wait(queue).ok());
    EXPECT_TRUE(comm.AllGather("b", out, out, queue).Wait(queue).ok());
    EXPECT_TRUE(comm.AllReduce("c", in, ReduceOp::kSum, queue).Wait(queue).ok());
    EXPECT_TRUE(comm.Broadcast("d", in, 0, queue).Wait(queue).ok());
    EXPECT_TRUE(comm.Barrier("e").ok());
    EXPECT_EQ(queue.copies(), 2);
    EXPECT_EQ(x.ToDouble(), (std::vector<double>{1, 2}));
    comm.Abort(absl::InternalError("bad"));
    EXPECT_FALSE(comm.AllGather("b", in, out, queue).Wait(queue).ok());
    EXPECT_FALSE(comm.Barrier("e").ok());
  });
}

TEST(Local, SeveralRanksAreForTheCpu) {
  RunRanks(2, [](Communicator& comm, kernels::Queue&) {
    OtherDevice queue;
    const HostTensor x(DType::kF32, {2}), y(DType::kF32, {1});
    const std::vector<absl::Status> all = {
        comm.ReduceScatter("a", x, y, ReduceOp::kSum, queue).Wait(queue),
        comm.AllGather("b", y, x, queue).Wait(queue),
        comm.AllReduce("c", x, ReduceOp::kSum, queue).Wait(queue),
        comm.Broadcast("d", x, 0, queue).Wait(queue)};
    for (const absl::Status& status : all) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_NE(status.message().find("--config=nccl"), absl::string_view::npos) << status;
    }
  });
}

TEST(FutureDeathTest, MustBeWaitedForOnce) {
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
  EXPECT_DEATH(Future([](kernels::Queue&) { return absl::OkStatus(); }), "dropped");
  Future future([](kernels::Queue&) { return absl::OkStatus(); });
  EXPECT_TRUE(future.Wait(*queue).ok());
  EXPECT_DEATH((void)future.Wait(*queue), "twice");
}

}  // namespace
}  // namespace comm
