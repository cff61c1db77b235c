// The queue itself: uploads, downloads, recordings, time stamps.
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/ops/elementwise.h"

namespace kernels {
namespace {

class QueueTest : public CudaTest {};

TEST_F(QueueTest, UploadsLargerThanTheStagingRingArrive) {
  const int64_t n = (int64_t{150} << 20) / 4 + 3;
  const Twin x = Zeros(DType::kF32, {n});
  std::vector<float> host(n);
  for (int64_t i = 0; i < n; ++i) host[i] = static_cast<float>(i % 1000003);
  cuda().Upload(host.data(), x.cuda);
  std::vector<float> source = host;
  std::fill(host.begin(), host.end(), -1.0f);  // Upload has read it
  cuda().Download(x.cuda, host.data());
  cuda().Synchronize();
  EXPECT_TRUE(host == source);
}

TEST_F(QueueTest, ManySmallUploadsDoNotOvertakeOneAnother) {
  const Twin x = Zeros(DType::kF32, {1 << 16}), sum = Zeros(DType::kF32, {1 << 16});
  std::vector<float> host(1 << 16);
  double want = 0;
  for (int i = 0; i < 600; ++i) {  // more than twice around the ring
    std::fill(host.begin(), host.end(), static_cast<float>(i));
    cuda().Upload(host.data(), x.cuda);
    Add(x.cuda, sum.cuda, cuda());
    want += i;
  }
  for (double value : OnHost(sum.cuda)) ASSERT_EQ(value, want);
}

TEST_F(QueueTest, ReadbackSeesTheValueOfItsMoment) {
  const Twin x = Of(DType::kF32, {2}, {1, 2});
  const std::unique_ptr<Readback> before = cuda().StartDownload(x.cuda);
  Scale(x.cuda, 10.0f, cuda());
  const std::unique_ptr<Readback> after = cuda().StartDownload(x.cuda);
  EXPECT_EQ(static_cast<const float*>(before->Wait())[1], 2.0f);
  EXPECT_EQ(static_cast<const float*>(after->Wait())[1], 20.0f);
}

TEST_F(QueueTest, RecordingRunsOnlyWhenReplayed) {
  const Twin x = Of(DType::kF32, {3}, {1, 2, 3});
  Scale(x.cuda, 1.0f, cuda());  // loads the kernel
  const std::unique_ptr<Recording> twice = cuda().Record([&] { Scale(x.cuda, 2.0f, cuda()); });
  EXPECT_EQ(OnHost(x.cuda)[0], 1.0);
  for (int i = 0; i < 5; ++i) twice->Replay();
  EXPECT_EQ(OnHost(x.cuda)[2], 96.0);
}

TEST_F(QueueTest, MarksAreInOrder) {
  const Twin x = Zeros(DType::kF32, {1 << 22});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(cuda().MarkTime(), 0);
    Scale(x.cuda, 2.0f, cuda());
    EXPECT_EQ(cuda().MarkTime(), 1);
    const std::vector<double> seconds = cuda().TakeTimes();
    ASSERT_EQ(seconds.size(), 2u);
    EXPECT_EQ(seconds[0], 0);
    EXPECT_GT(seconds[1], 0);
    EXPECT_LT(seconds[1], 1);
  }
}

TEST_F(QueueTest, TooMuchMemoryIsNullNotACrash) {
  const absl::StatusOr<Backend*> backend = CudaBackend();
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->Allocate(int64_t{1} << 50), nullptr);
  Scale(Zeros(DType::kF32, {4}).cuda, 1.0f, cuda());  // the device still works
  cuda().Synchronize();
}

TEST_F(QueueTest, ADeviceThatDoesNotExist) {
  const absl::Status status = CudaBackend(99).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("GPU 99"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace kernels
