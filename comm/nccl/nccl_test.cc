#include "comm/nccl/nccl.h"

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/checking.h"
#include "comm/engine_suite.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"

namespace comm {
namespace {

using kernels::DType;
using kernels::Tensor;

// A tensor on device 0 that is freed with its owner.
class DeviceTensor {
 public:
  DeviceTensor(kernels::Backend& backend, DType dtype, int64_t size)
      : backend_(backend), memory_(backend.Allocate(size * kernels::SizeOf(dtype))) {
    tensor_ = Tensor(memory_, dtype, {size}, kernels::DeviceKind::kCuda);
  }
  ~DeviceTensor() { backend_.Free(memory_); }
  const Tensor& get() const { return tensor_; }

 private:
  kernels::Backend& backend_;
  void* const memory_;
  Tensor tensor_;
};

class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<kernels::Backend*> backend = kernels::CudaBackend(0);
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *backend;
    absl::StatusOr<std::unique_ptr<kernels::Queue>> queue = kernels::MakeCudaQueue(0, {});
    ASSERT_TRUE(queue.ok()) << queue.status();
    queue_ = *std::move(queue);
  }

  std::vector<float> OnHost(const Tensor& x) {
    std::vector<float> values(x.size());
    queue_->Download(x, values.data());
    queue_->Synchronize();
    return values;
  }

  kernels::Backend* backend_ = nullptr;
  std::unique_ptr<kernels::Queue> queue_;
};

// Also under the checking decorator, whose own gathers are of host memory.
TEST_F(NcclTest, C1_OneRankCopies) {
  for (const bool checked : {false, true}) {
    absl::StatusOr<std::unique_ptr<Communicator>> made =
        MakeNccl(ProcessRank(), 0, absl::Seconds(1));
    ASSERT_TRUE(made.ok()) << made.status();
    const std::unique_ptr<Communicator> comm =
        checked ? MakeChecking(*std::move(made)) : *std::move(made);
    EXPECT_EQ(comm->backend(), "nccl");
    const DeviceTensor x(*backend_, DType::kF32, 3), y(*backend_, DType::kF32, 3);
    const std::vector<float> want = {1, -2, 3.5};
    queue_->Upload(want.data(), x.get());
    kernels::Queue& queue = *queue_;
    EXPECT_TRUE(comm->ReduceScatter("a", x.get(), y.get(), ReduceOp::kAvg, queue).Wait(queue).ok());
    EXPECT_EQ(OnHost(y.get()), want);
    EXPECT_TRUE(comm->AllReduce("b", y.get(), ReduceOp::kAvg, queue).Wait(queue).ok());
    EXPECT_TRUE(comm->Broadcast("c", y.get(), 0, queue).Wait(queue).ok());
    EXPECT_TRUE(comm->AllGather("d", y.get(), x.get(), queue).Wait(queue).ok());
    EXPECT_EQ(OnHost(x.get()), want);
    EXPECT_TRUE(comm->Barrier("e").ok());
  }
}

// What all engines have to do, of the only rank.
TEST_F(NcclTest, C1_OneRankPassesTheSuite) {
  const auto comm = MakeNccl(ProcessRank(), 0, absl::Seconds(1));
  ASSERT_TRUE(comm.ok()) << comm.status();
  for (const auto* cases : {&CollectiveCases(), &CheckingCases(), &RankOrderCases()}) {
    for (const EngineCase& test : *cases) {
      SCOPED_TRACE(test.name);
      test.run({**comm, *queue_, *backend_});
    }
  }
}

TEST_F(NcclTest, DeviceOfRank) {
  const int devices = kernels::CudaDeviceCount();
  ProcessRank where;
  where.size = devices + 1;
  where.rank = where.local_rank = devices;
  const absl::StatusOr<int> device = DeviceOfRank(where);
  if (devices == 1) {
    EXPECT_EQ(device.value_or(-1), 0);  // its own GPU, as far as this process can tell
  } else {
    EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  }
  where.rank = where.local_rank = devices - 1;
  EXPECT_EQ(DeviceOfRank(where).value_or(-1), devices - 1);
}

TEST_F(NcclTest, C6_TwoRanksOnOneGpuAreNamed) {
  std::vector<std::thread> ranks;
  std::atomic<int> refused{0};
  for (const int rank : {0, 1}) {
    ranks.emplace_back([rank, &refused] {
      ProcessRank where;
      where.rank = where.local_rank = rank;
      where.size = where.local_size = 2;
      where.job = absl::StrCat("nccl_test", getpid());
      const auto comm = MakeNccl(where, 0, absl::Seconds(60));
      const std::string text(comm.status().message());
      EXPECT_NE(text.find("ranks 0 and 1 both use GPU"), std::string::npos) << comm.status();
      EXPECT_NE(text.find("device 0 of rank 1"), std::string::npos) << comm.status();
      ++refused;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(refused, 2);
}

TEST_F(NcclTest, C4_AMissingRankIsATimeout) {
  ProcessRank where;
  where.size = where.local_size = 2;
  where.job = absl::StrCat("nccl_test_missing", getpid());
  const auto comm = MakeNccl(where, 0, absl::Milliseconds(200));
  EXPECT_EQ(comm.status().code(), absl::StatusCode::kDeadlineExceeded) << comm.status();
  EXPECT_NE(comm.status().message().find("rank 1"), absl::string_view::npos) << comm.status();
}

}  // namespace
}  // namespace comm
