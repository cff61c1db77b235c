#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/card_support.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/probe.h"
#include "kernels/cuda/staging.h"
#include "third_party/absl_compat/status_macros.h"

namespace kernels {
namespace {

// NVIDIA's CUDA compatibility guide: a program serves all drivers of its toolkit's major version,
// and later ones, as long as the driver has nothing to compile for it.
constexpr int kOldestDriver = CUDART_VERSION >= 13000 ? 580 : 525;

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// Why there is no device to use, in words that say what to do.
absl::Status CheckDriver() {
  int driver = 0, count = 0;
  const cudaError_t version = cudaDriverGetVersion(&driver);
  if (version != cudaSuccess || driver == 0) {
    return absl::FailedPreconditionError(
        "no NVIDIA driver on this machine (libcuda.so.1 is missing); install one, or run the CPU "
        "build: bazel run //tools:track1 without --config=cuda");
  }
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    return absl::FailedPreconditionError(
        absl::StrCat("the NVIDIA driver is too old: it supports CUDA ", VersionText(driver),
                     ", this program was built with ", VersionText(CUDART_VERSION),
                     " and needs driver ", kOldestDriver, " or newer",
                     CUDART_VERSION >= 13000
                         ? "; update the driver, or build with CUDA 12, for drivers from 525 on"
                         : "; update the driver"));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return absl::FailedPreconditionError(
        "no GPU is visible to this process; does nvidia-smi list one, and does "
        "CUDA_VISIBLE_DEVICES allow it?");
  }
  if (error != cudaSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA cannot start: ", cudaGetErrorString(error)));
  }
  return absl::OkStatus();
}

absl::Status CheckExists(int device) {
  ABSL_RETURN_IF_ERROR(CheckDriver());
  int count = 0;
  CUDA_CHECK(cudaGetDeviceCount(&count));
  if (device < 0 || device >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", device, " does not exist: ", count, " are visible, numbered from 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckDevice(int device) {
  ABSL_RETURN_IF_ERROR(CheckExists(device));
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  ABSL_RETURN_IF_ERROR(CheckCompiledFor(CompiledArchs(), properties.name,
                                        {.major = properties.major, .minor = properties.minor}));
  const cudaError_t chosen = cudaSetDevice(device);
  if (chosen != cudaSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("GPU ", device, " cannot be used: ", cudaGetErrorString(chosen)));
  }
  if (cuda::KernelsRunHere()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(properties.name,
                   ": the driver does not load this program's kernels, though they are for "
                   "its compute capability; update the driver"));
}

class CudaDevice : public Backend {
 public:
  explicit CudaDevice(int device) : device_(device) {}
  absl::string_view name() const override { return "cuda"; }
  DeviceKind device() const override { return DeviceKind::kCuda; }
  void* Allocate(int64_t bytes) override {
    CUDA_CHECK(cudaSetDevice(device_));
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
      (void)cudaGetLastError();  // not enough memory is the caller's to report
      return nullptr;
    }
    CUDA_CHECK(cudaMemset(memory, 0, bytes));
    // The legacy stream, on which that ran, does not order itself with the queues' streams.
    CUDA_CHECK(cudaStreamSynchronize(nullptr));
    return memory;
  }
  void Free(void* memory) override { CUDA_CHECK(cudaFree(memory)); }

 private:
  const int device_;
};

// A captured graph.
class Graph : public Recording {
 public:
  Graph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    CUDA_CHECK(cudaGraphInstantiate(&executable_, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaGraphUpload(executable_, stream_));
  }
  ~Graph() override { CUDA_CHECK(cudaGraphExecDestroy(executable_)); }
  void Replay() override { CUDA_CHECK(cudaGraphLaunch(executable_, stream_)); }

 private:
  const cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

class StreamQueue : public CudaQueue {
 public:
  StreamQueue(int device, const CudaQueueOptions& options, std::unique_ptr<Gemm> gemm)
      : options_(options),
        gemm_(std::move(gemm)),
        attention_(MakeCudaAttentionOps()),
        elementwise_(MakeCudaElementwiseOps()),
        embedding_(MakeCudaEmbeddingOps()),
        head_(MakeCudaHeadOps(*gemm_)),
        matmul_(MakeCudaMatMulOps(*gemm_)),
        norm_(MakeCudaNormOps()),
        optimizer_(MakeCudaOptimizerOps()),
        qkv_(MakeCudaQkvOps()),
        gated_(MakeCudaGatedOps()),
        weight_(MakeCudaWeightOps()),
        table_{attention_.get(), elementwise_.get(), embedding_.get(), head_.get(),
               matmul_.get(),    norm_.get(),        optimizer_.get(), qkv_.get(),
               gated_.get(),     weight_.get(),      embedding_.get(), head_.get()},
        readbacks_(std::make_shared<ReadbackPool>()) {
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CUDA_CHECK(cudaDeviceGetAttribute(&sm_count_, cudaDevAttrMultiProcessorCount, device));
    CUDA_CHECK(cudaMalloc(&scratch_, kScratchBytes));
  }
  ~StreamQueue() override {
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    for (cudaEvent_t mark : marks_) CUDA_CHECK(cudaEventDestroy(mark));
    CUDA_CHECK(cudaFree(scratch_));
    CUDA_CHECK(cudaStreamDestroy(stream_));
  }

  const OpTable& ops() const override { return table_; }
  cudaStream_t stream() const override { return stream_; }
  bool deterministic() const override { return options_.deterministic; }
  int sm_count() const override { return sm_count_; }

  void Synchronize() override { CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  void Upload(const void* host, Tensor tensor) override {
    CHECK(!recording_) << "Upload while recording";
    uploads_.Upload(host, tensor.data(), tensor.bytes(), stream_);
  }
  void Download(Tensor tensor, void* host) override {
    CHECK(!recording_) << "Download while recording";
    CUDA_CHECK(
        cudaMemcpyAsync(host, tensor.data(), tensor.bytes(), cudaMemcpyDeviceToHost, stream_));
  }
  std::unique_ptr<Readback> StartDownload(Tensor tensor) override {
    CHECK(!recording_) << "StartDownload while recording";
    return readbacks_->Start(tensor, stream_);
  }

  std::unique_ptr<Recording> Record(const std::function<void()>& enqueue) override {
    CHECK(!recording_) << "a recording inside a recording";
    recording_ = true;
    CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    enqueue();
    cudaGraph_t graph = nullptr;
    CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
    recording_ = false;
    return std::make_unique<Graph>(graph, stream_);
  }

  void* Scratch(int64_t bytes) override {
    CHECK_LE(bytes, kScratchBytes);
    return scratch_;
  }

  absl::Status SaveTuning() override { return gemm_->SaveChoices(); }

  int64_t MarkTime() override {
    CHECK(!recording_) << "MarkTime while recording";
    if (marks_taken_ == marks_.size()) {
      marks_.emplace_back();
      CUDA_CHECK(cudaEventCreate(&marks_.back()));
    }
    CUDA_CHECK(cudaEventRecord(marks_[marks_taken_], stream_));
    return static_cast<int64_t>(marks_taken_++);
  }
  std::vector<double> TakeTimes() override {
    Synchronize();
    std::vector<double> seconds;
    for (size_t i = 0; i < marks_taken_; ++i) {
      float ms = 0;
      CUDA_CHECK(cudaEventElapsedTime(&ms, marks_[0], marks_[i]));
      seconds.push_back(ms / 1000.0);
    }
    marks_taken_ = 0;
    return seconds;
  }

 private:
  const CudaQueueOptions options_;
  const std::unique_ptr<Gemm> gemm_;
  const std::unique_ptr<AttentionOps> attention_;
  const std::unique_ptr<ElementwiseOps> elementwise_;
  const std::unique_ptr<EmbeddingOps> embedding_;
  const std::unique_ptr<HeadOps> head_;
  const std::unique_ptr<MatMulOps> matmul_;
  const std::unique_ptr<NormOps> norm_;
  const std::unique_ptr<OptimizerOps> optimizer_;
  const std::unique_ptr<QkvOps> qkv_;
  const std::unique_ptr<GatedOps> gated_;
  const std::unique_ptr<WeightOps> weight_;
  const OpTable table_;
  cudaStream_t stream_ = nullptr;
  int sm_count_ = 0;
  void* scratch_ = nullptr;
  bool recording_ = false;
  UploadRing uploads_;
  const std::shared_ptr<ReadbackPool> readbacks_;
  std::vector<cudaEvent_t> marks_;
  size_t marks_taken_ = 0;
};

}  // namespace

int CudaDeviceCount() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

absl::StatusOr<Backend*> CudaBackend(int device) {
  static std::mutex& mutex = *new std::mutex;
  static auto& backends = *new std::map<int, CudaDevice*>;
  std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = backends.find(device); found != backends.end()) return found->second;
  ABSL_RETURN_IF_ERROR(CheckDevice(device));
  return backends[device] = new CudaDevice(device);
}

absl::StatusOr<CudaCard> DescribeCudaCard(int device) {
  ABSL_RETURN_IF_ERROR(CheckExists(device));
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return CudaCard{.name = properties.name,
                  .major = properties.major,
                  .minor = properties.minor,
                  .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)};
}

absl::StatusOr<CudaDeviceInfo> DescribeCudaDevice(int device) {
  ABSL_RETURN_IF_ERROR(CheckDevice(device));
  CudaDeviceInfo info;
  ABSL_ASSIGN_OR_RETURN(static_cast<CudaCard&>(info), DescribeCudaCard(device));
  CUDA_CHECK(cudaDriverGetVersion(&info.driver_version));
  CUDA_CHECK(cudaRuntimeGetVersion(&info.runtime_version));
  ABSL_ASSIGN_OR_RETURN(info.cublaslt_version, CublasLtVersion());
  return info;
}

absl::StatusOr<std::unique_ptr<Queue>> MakeCudaQueue(int device, const CudaQueueOptions& options) {
  ABSL_RETURN_IF_ERROR(CudaBackend(device).status());
  CUDA_CHECK(cudaSetDevice(device));  // of this thread
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<Gemm> gemm, MakeGemm(device));
  return std::make_unique<StreamQueue>(device, options, std::move(gemm));
}

}  // namespace kernels
