#include "tools/parity/queue_choice.h"

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_backend.h"
#include "third_party/absl_compat/status_macros.h"
#ifdef WITH_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace tools {
namespace {

absl::StatusOr<QueueChoice> OpenCudaQueue() {
#ifdef WITH_CUDA
  QueueChoice choice;
  ABSL_ASSIGN_OR_RETURN(choice.backend, kernels::CudaBackend());
  ABSL_ASSIGN_OR_RETURN(choice.queue, kernels::MakeCudaQueue(0, {.deterministic = true}));
  return choice;
#else
  return absl::InvalidArgumentError(
      "--backend=cuda: this program was built without CUDA; build it with --config=cuda");
#endif
}

}  // namespace

absl::StatusOr<QueueChoice> OpenQueue(absl::string_view backend, int threads) {
  if (backend == "cuda") return OpenCudaQueue();
  if (backend != "cpu") {
    return absl::InvalidArgumentError(absl::StrCat("--backend=", backend, ": must be cpu or cuda"));
  }
  QueueChoice choice;
  choice.backend = &kernels::CpuBackend();
  choice.queue = kernels::MakeCpuQueue(threads);
  return choice;
}

}  // namespace tools
