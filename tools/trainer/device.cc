#include "tools/trainer/device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cpu/cpu_backend.h"
#include "third_party/absl_compat/status_macros.h"
#ifdef NANOSPEED_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace tools {
namespace {

absl::StatusOr<Device> OpenCpu() {
  ABSL_RETURN_IF_ERROR(kernels::CheckCpuBackend());
  Device device;
  device.kind = "cpu";
  device.description = kernels::DescribeCpu();
  device.backend = &kernels::CpuBackend();
  device.make_queue = [](const QueueOptions& options) {
    return absl::StatusOr<std::unique_ptr<kernels::Queue>>(kernels::MakeCpuQueue(options.threads));
  };
  return device;
}

#ifdef NANOSPEED_CUDA
Card CardOf(const kernels::CudaCard& card) {
  return {.name = card.name,
          .size = "",
          .memory_gib = card.memory_bytes / double{1 << 30},
          .capability = {.major = card.major, .minor = card.minor}};
}
#endif

absl::StatusOr<Device> OpenCuda(int index, absl::string_view flag) {
#ifdef NANOSPEED_CUDA
  absl::StatusOr<kernels::CudaDeviceInfo> info = kernels::DescribeCudaDevice(index);
  if (!info.ok()) {
    return absl::Status(info.status().code(), absl::StrCat(info.status().message(), " (--", flag,
                                                           "=cpu runs without a GPU)"));
  }
  Device device;
  device.kind = "cuda";
  device.description = absl::StrFormat(
      "%s, compute capability %d.%d, %.1f GiB, driver for CUDA %d.%d, CUDA %d.%d, cuBLASLt "
      "%d.%d.%d",
      info->name, info->major, info->minor, info->memory_bytes / double{1 << 30},
      info->driver_version / 1000, info->driver_version % 1000 / 10, info->runtime_version / 1000,
      info->runtime_version % 1000 / 10, info->cublaslt_version / 10000,
      info->cublaslt_version / 100 % 100, info->cublaslt_version % 100);
  device.card = CardOf(*info);
  ABSL_ASSIGN_OR_RETURN(device.backend, kernels::CudaBackend(index));
  device.make_queue = [index](const QueueOptions& options) {
    return kernels::MakeCudaQueue(index, {.deterministic = options.deterministic});
  };
  return device;
#else
  (void)index;
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=cuda: this program was built without CUDA; build it with --config=cuda"));
#endif
}

}  // namespace

absl::StatusOr<Card> CardOfDevice(int index) {
#ifdef NANOSPEED_CUDA
  ABSL_ASSIGN_OR_RETURN(const kernels::CudaCard card, kernels::DescribeCudaCard(index));
  return CardOf(card);
#else
  (void)index;
  return absl::InvalidArgumentError("this program was built without CUDA");
#endif
}

absl::string_view DefaultDeviceKind() {
#ifdef NANOSPEED_CUDA
  return "cuda";
#else
  return "cpu";
#endif
}

absl::StatusOr<Device> OpenDevice(absl::string_view kind, int index, absl::string_view flag) {
  if (kind.empty()) kind = DefaultDeviceKind();
  if (kind == "cpu") return OpenCpu();
  if (kind == "cuda") return OpenCuda(index, flag);
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", kind, ": no such device; cpu and cuda are known"));
}

}  // namespace tools
