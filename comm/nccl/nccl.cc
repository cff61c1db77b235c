#include "comm/nccl/nccl.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/alone.h"
#include "comm/flight_record.h"
#include "comm/nccl/nccl_api.h"
#include "comm/nccl/nccl_link.h"
#include "comm/nccl/nccl_rows.h"
#include "comm/shared_memory.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/ops/elementwise.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace comm {
namespace {

using kernels::DeviceKind;
using kernels::DType;
using kernels::Tensor;

// Of each rank, in one gather of host tensors.
constexpr int64_t kHostBytes = 1024;

ncclDataType_t Float(const Tensor& x) {
  CHECK(x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) << "reduction of " << x;
  return x.dtype() == DType::kF32 ? ncclFloat32 : ncclBfloat16;
}

// Where NCCL keeps what ranks of one host exchange without peer access.
constexpr char kSharedMemory[] = "/dev/shm";

class NcclCommunicator : public Communicator {
 public:
  explicit NcclCommunicator(std::unique_ptr<NcclLink> link)
      : link_(std::move(link)), nccl_(link_->api()) {
    CUDA_CHECK(cudaMalloc(&token_, sizeof(float)));
    CUDA_CHECK(cudaMemset(token_, 0, sizeof(float)));
    CUDA_CHECK(cudaMalloc(&device_bytes_, kHostBytes * (size() + 1)));
    CUDA_CHECK(cudaMallocHost(&host_bytes_, kHostBytes));
    CUDA_CHECK(cudaDeviceSynchronize());  // the stream of the link does not wait for the memset
  }
  ~NcclCommunicator() override {
    link_.reset();  // nothing runs afterwards
    cudaFree(token_);
    cudaFree(device_bytes_);
    cudaFreeHost(host_bytes_);
  }

  int rank() const override { return link_->rank(); }
  int size() const override { return link_->size(); }
  absl::string_view backend() const override { return "nccl"; }

  Future ReduceScatter(absl::string_view label, Tensor in, Tensor out, ReduceOp op,
                       kernels::Queue& queue) override {
    if (queue.device() == DeviceKind::kCpu) return NotForTheCpu();
    CHECK_EQ(in.size(), out.size() * size()) << label;
    CHECK_EQ(in.dtype(), out.dtype()) << label;
    CheckReduction(label, out, op);
    return Start(
        DescribeCall("reduce_scatter", label, in, Name(op)), in.bytes(), queue,
        [&](ncclComm_t comm, cudaStream_t stream) {
          return nccl_.ReduceScatter(in.data(), out.data(), out.size(), Float(in), ncclSum, comm,
                                     stream);
        },
        op == ReduceOp::kAvg ? out : Tensor());
  }
  Future AllGather(absl::string_view label, Tensor in, Tensor out, kernels::Queue& queue) override {
    if (queue.device() == DeviceKind::kCpu) return NotForTheCpu();
    CHECK_EQ(out.size(), in.size() * size()) << label;
    CHECK_EQ(in.dtype(), out.dtype()) << label;
    const std::string call = DescribeCall("all_gather", label, in, "");
    if (in.device() == DeviceKind::kCpu) {
      return Future([status = GatherHostBytes(call, in, out)](kernels::Queue&) { return status; });
    }
    return Start(
        call, out.bytes(), queue,
        [&](ncclComm_t comm, cudaStream_t stream) {
          return nccl_.AllGather(in.data(), out.data(), in.bytes(), ncclInt8, comm, stream);
        },
        Tensor());
  }
  Future AllReduce(absl::string_view label, Tensor x, ReduceOp op, kernels::Queue& queue) override {
    if (queue.device() == DeviceKind::kCpu) return NotForTheCpu();
    CheckReduction(label, x, op);
    return Start(
        DescribeCall("all_reduce", label, x, Name(op)), x.bytes(), queue,
        [&](ncclComm_t comm, cudaStream_t stream) {
          return nccl_.AllReduce(x.data(), x.data(), x.size(), Float(x), ncclSum, comm, stream);
        },
        op == ReduceOp::kAvg ? x : Tensor());
  }
  Future Broadcast(absl::string_view label, Tensor x, int root, kernels::Queue& queue) override {
    if (queue.device() == DeviceKind::kCpu) return NotForTheCpu();
    CHECK(root >= 0 && root < size()) << label << ": root " << root;
    CheckDevice(label, x);
    return Start(
        DescribeCall("broadcast", label, x, absl::StrCat("root ", root)), x.bytes(), queue,
        [&](ncclComm_t comm, cudaStream_t stream) {
          return nccl_.Broadcast(x.data(), x.data(), x.bytes(), ncclInt8, root, comm, stream);
        },
        Tensor());
  }
  Future AllToAllRows(absl::string_view label, Tensor in, absl::Span<const int64_t> send_counts,
                      Tensor out, absl::Span<const int64_t> receive_counts,
                      kernels::Queue& queue) override {
    if (queue.device() == DeviceKind::kCpu) return NotForTheCpu();
    CheckRows(label, size(), in, send_counts, out, receive_counts);
    CheckDevice(label, in);
    CheckDevice(label, out);
    const int64_t row_bytes = RowBytes(in);
    const int64_t rows = std::max(SumOfCounts(send_counts), SumOfCounts(receive_counts));
    return Start(
        DescribeRows(label, in), rows * row_bytes, queue,
        [&](ncclComm_t comm, cudaStream_t stream) {
          return GroupedRows(nccl_,
                             {.in = static_cast<const char*>(in.data()),
                              .send_counts = send_counts,
                              .out = static_cast<char*>(out.data()),
                              .receive_counts = receive_counts,
                              .row_bytes = row_bytes},
                             comm, stream);
        },
        Tensor());
  }
  absl::Status Barrier(absl::string_view label) override {
    ABSL_ASSIGN_OR_RETURN(const std::shared_ptr<Operation> operation,
                          link_->Launch(absl::StrCat("barrier(", label, ")"), 0, std::nullopt,
                                        [&](ncclComm_t comm, cudaStream_t stream) {
                                          return nccl_.AllReduce(token_, token_, 1, ncclFloat32,
                                                                 ncclSum, comm, stream);
                                        }));
    return link_->WaitOnHost(*operation);
  }
  void Abort(const absl::Status& reason) override { link_->Abort(reason); }

 private:
  static Future NotForTheCpu() {
    return Future([](kernels::Queue&) {
      return absl::FailedPreconditionError(
          "several ranks of the nccl backend compute on GPUs; for the CPU build with "
          "--//comm:backend=local");
    });
  }
  static void CheckDevice(absl::string_view label, const Tensor& x) {
    CHECK(x.device() == DeviceKind::kCuda) << label << ": " << x << " is in host memory";
  }
  static void CheckReduction(absl::string_view label, const Tensor& x, ReduceOp op) {
    CheckDevice(label, x);
    CHECK(op == ReduceOp::kSum || x.dtype() == DType::kF32)
        << label << ": the average of " << x << "; sum it, and divide in f32";
  }

  // `averaged` is divided by the number of ranks on the queue that waits.
  Future Start(std::string call, int64_t bytes, kernels::Queue& queue,
               const NcclLink::Enqueue& enqueue, Tensor averaged) {
    absl::StatusOr<std::shared_ptr<Operation>> operation =
        link_->Launch(std::move(call), bytes, kernels::Cuda(queue).stream(), enqueue);
    if (!operation.ok()) {
      return Future([status = operation.status()](kernels::Queue&) { return status; });
    }
    return Future([this, operation = *std::move(operation), averaged](kernels::Queue& waiting) {
      ABSL_RETURN_IF_ERROR(link_->failure());
      CUDA_CHECK(cudaStreamWaitEvent(kernels::Cuda(waiting).stream(), operation->end.get(), 0));
      if (averaged) kernels::Scale(averaged, 1.0f / static_cast<float>(size()), waiting);
      return absl::OkStatus();
    });
  }

  // For what ranks tell each other about their calls; waits for it. From pinned memory, since a
  // copy from other memory may wait for the stream, and so for a rank that is missing.
  absl::Status GatherHostBytes(const std::string& call, Tensor in, Tensor out) {
    const int64_t bytes = in.bytes();
    CHECK(out.device() == DeviceKind::kCpu && bytes <= kHostBytes) << call;
    char* const device_all = device_bytes_ + kHostBytes;
    std::memcpy(host_bytes_, in.data(), bytes);
    ABSL_ASSIGN_OR_RETURN(
        const std::shared_ptr<Operation> operation,
        link_->Launch(call, out.bytes(), std::nullopt, [&](ncclComm_t comm, cudaStream_t stream) {
          CUDA_CHECK(
              cudaMemcpyAsync(device_bytes_, host_bytes_, bytes, cudaMemcpyHostToDevice, stream));
          return nccl_.AllGather(device_bytes_, device_all, bytes, ncclInt8, comm, stream);
        }));
    ABSL_RETURN_IF_ERROR(link_->WaitOnHost(*operation));
    CUDA_CHECK(cudaMemcpy(out.data(), device_all, bytes * size(), cudaMemcpyDeviceToHost));
    return absl::OkStatus();
  }

  std::unique_ptr<NcclLink> link_;
  const NcclApi& nccl_;
  float* token_ = nullptr;        // Barrier's
  char* device_bytes_ = nullptr;  // this rank's kHostBytes, then all ranks'
  char* host_bytes_ = nullptr;    // this rank's
};

absl::Status CudaError(absl::string_view what, cudaError_t error) {
  (void)cudaGetLastError();
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", cudaGetErrorString(error)));
}

}  // namespace

absl::StatusOr<int> DeviceOfRank(const ProcessRank& where) {
  if (where.size == 1) return 0;
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return CudaError("looking for GPUs", error);
  if (devices == 1) return 0;  // some launchers show each rank only its own
  if (where.local_rank < devices) return where.local_rank;
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", where.rank, " is number ", where.local_rank, " (from 0) of its host, where it sees ",
      devices, " GPUs; start at most one rank for each GPU"));
}

absl::StatusOr<std::unique_ptr<Communicator>> MakeNccl(const ProcessRank& where, int device,
                                                       absl::Duration timeout,
                                                       FailureListener on_failure) {
  if (where.size == 1) return MakeAlone("nccl");
  if (where.local_rank == 0 && where.local_size != 1) {
    const std::string warning = SmallSharedMemoryWarning(kSharedMemory);
    if (!warning.empty()) std::fprintf(stderr, "%s\n", warning.c_str());
  }
  ABSL_ASSIGN_OR_RETURN(const NcclApi* api, LoadNccl());
  const cudaError_t error = cudaSetDevice(device);
  if (error != cudaSuccess) return CudaError(absl::StrCat("CUDA device ", device), error);
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<NcclLink> link,
                        NcclLink::Connect(*api, where, device, timeout, std::move(on_failure)));
  return std::make_unique<NcclCommunicator>(std::move(link));
}

}  // namespace comm
