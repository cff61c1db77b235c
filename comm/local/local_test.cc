#include "comm/local/local.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/engine_suite.h"
#include "comm/test_ranks.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/trace_scope.h"
#include "kernels/testing/testing.h"

namespace comm {
namespace {

using kernels::DType;
using kernels::Tensor;
using kernels::testing::HostTensor;
using kernels::testing::RandomTensor;

using EngineTest = testing::TestWithParam<std::tuple<EngineCase, int>>;

TEST_P(EngineTest, Works) {
  const auto [test, size] = GetParam();
  RunRanks(size, [run = test.run](Communicator& comm, kernels::Queue& queue) {
    run({comm, queue, kernels::CpuBackend()});
  });
}

std::string NameOf(const testing::TestParamInfo<std::tuple<EngineCase, int>>& info) {
  const auto [test, size] = info.param;
  return absl::StrCat(test.name, size);
}
const auto kSizes = testing::Values(1, 2, 3, 4, 7, 8);
INSTANTIATE_TEST_SUITE_P(All, EngineTest,
                         testing::Combine(testing::ValuesIn(CollectiveCases()), kSizes), NameOf);
INSTANTIATE_TEST_SUITE_P(Order, EngineTest,
                         testing::Combine(testing::ValuesIn(RankOrderCases()), kSizes), NameOf);

// A queue that says it is a GPU's, with the one op that a single rank needs.
class OtherDevice : public kernels::Queue, kernels::OpListener {
 public:
  OtherDevice() { SetListener(this); }
  int copies() const { return copies_; }

  const kernels::OpTable& ops() const override { return cpu_->ops(); }
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
  int64_t MarkTime() override {
    ADD_FAILURE();
    return 0;
  }
  std::vector<double> TakeTimes() override {
    ADD_FAILURE();
    return {};
  }

 private:
  void Begin(const char* name, kernels::OpCost) override {
    EXPECT_STREQ(name, "Copy");
    ++copies_;
  }
  void End() override {}
  double AttentionPairs(const kernels::AttentionArgs&) const override { return 0; }

  const std::unique_ptr<kernels::Queue> cpu_ = kernels::MakeCpuQueue(1);
  int copies_ = 0;
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
