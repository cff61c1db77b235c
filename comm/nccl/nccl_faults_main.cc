// Faults that end processes, on real ranks of the NCCL backend: how the others end then.
//
//   launch --nproc=2 nccl_faults killed    # SIGKILL of the last rank in the midst of collectives
//   launch --nproc=2 nccl_faults stopped   # SIGSTOP: silent but connected, until launch kills it
//   launch --nproc=2 nccl_faults stuck     # the last rank hangs outside of the collectives
//   launch --nproc=2 nccl_faults slow_gpu  # the last rank's stream never comes to its collective
//
// launch is //tools:launch; mpirun would kill the other ranks at once. Each rank that lives prints
// its failure with the report, then "rank R: good" and ends with code 2, as a training would; with
// code 1 and "rank R: BAD: why" if it came too late or does not name the last rank.

#include <cuda_runtime_api.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "comm/nccl/nccl.h"
#include "comm/process_rank.h"
#include "comm/watchdog.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_queue.h"
#include "third_party/absl_compat/check.h"

namespace comm {
namespace {

using kernels::Tensor;
using Clock = std::chrono::steady_clock;

constexpr absl::Duration kTimeout = absl::Seconds(5);

class FaultyRank {
 public:
  FaultyRank(const ProcessRank& where, int device) : where_(where) {
    absl::StatusOr<std::unique_ptr<kernels::Queue>> queue = kernels::MakeCudaQueue(device, {});
    CHECK(queue.ok()) << queue.status();
    queue_ = *std::move(queue);
    const absl::StatusOr<kernels::Backend*> backend = kernels::CudaBackend(device);
    CHECK(backend.ok()) << backend.status();
    x_ = Tensor((*backend)->Allocate(kSize * sizeof(float)), kernels::DType::kF32, {kSize},
                kernels::DeviceKind::kCuda);
    queue_->Upload(std::vector<float>(kSize, 1.0f).data(), x_);
    queue_->Synchronize();
    watchdog_ = std::make_unique<Watchdog>(kComeBackWithin, [this](const std::string& message) {
      End(absl::UnavailableError(message), /*stuck=*/true);
    });
    absl::StatusOr<std::unique_ptr<Communicator>> made =
        MakeNccl(where_, device, kTimeout,
                 [this](const absl::Status& status) { watchdog_->Failed(status); });
    CHECK(made.ok()) << made.status();
    comm_ = *std::move(made);
    const absl::Status together = comm_->Barrier("together");
    CHECK(together.ok()) << together;
    start_ = Clock::now();
  }

  [[noreturn]] void Run(const std::string& fault) {
    fault_ = fault;
    if (fault == "stuck" && last()) Hang();
    if (fault == "slow_gpu" && last()) HangOnTheGpu();
    for (int64_t i = 0;; ++i) {
      if (i == 100 && last() && fault == "killed") raise(SIGKILL);
      if (i == 100 && last() && fault == "stopped") raise(SIGSTOP);
      absl::Status status =
          comm_->AllReduce(absl::StrCat("number ", i), x_, ReduceOp::kSum, *queue_).Wait(*queue_);
      if (status.ok()) status = comm_->Barrier("step");
      if (!status.ok()) End(status, /*stuck=*/false);
    }
  }

 private:
  static constexpr int64_t kSize = 1 << 20;

  bool last() const { return where_.rank == where_.size - 1; }

  static void Hang() { std::this_thread::sleep_for(std::chrono::hours(1)); }
  // A callback that does not return keeps the stream from going on.
  void HangOnTheGpu() {
    const auto hang = [](void*) { Hang(); };
    CHECK(cudaLaunchHostFunc(kernels::Cuda(*queue_).stream(), hang, nullptr) == cudaSuccess);
  }

  // What is wrong with how this rank ends; empty: nothing.
  std::string Bad(const absl::Status& status, bool stuck) const {
    // From the last common step on, what may pass is the timeout, unless the connection told of it
    // at once, and 10 s.
    const double limit =
        (fault_ == "killed" ? 0 : absl::ToDoubleSeconds(kTimeout)) + 10 + /*100 steps*/ 2;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (seconds > limit) return absl::StrCat("ended after ", seconds, " s, not ", limit);
    if (stuck && !last()) return "was ended by its watchdog, though only the last rank is stuck";
    const char* const what = fault_ == "killed"    ? "is lost"
                             : fault_ == "stopped" ? "is silent"
                             : fault_ == "stuck"   ? "is behind"
                                                   : "number 0";
    // The stuck stream's host goes on to the same calls as the others.
    const std::string expected =
        fault_ == "slow_gpu" ? what : absl::StrCat("differs: rank ", where_.size - 1, " ", what);
    if (!absl::StrContains(status.message(), expected)) {
      return absl::StrCat("no \"", expected, "\" in its report");
    }
    return "";
  }

  [[noreturn]] void End(const absl::Status& status, bool stuck) const {
    const std::string bad = Bad(status, stuck);
    const std::string text =
        absl::StrCat(std::string(status.message()), "\nrank ", where_.rank, ": ",
                     bad.empty() ? "good" : absl::StrCat("BAD: ", bad), "\n");
    std::fputs(text.c_str(), stderr);
    _exit(bad.empty() ? 2 : 1);
  }

  const ProcessRank where_;
  std::string fault_;
  std::unique_ptr<kernels::Queue> queue_;
  Tensor x_;
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<Communicator> comm_;
  Clock::time_point start_;
};

[[noreturn]] void Main(const std::string& fault) {
  CHECK(fault == "killed" || fault == "stopped" || fault == "stuck" || fault == "slow_gpu")
      << "which fault: killed, stopped, stuck or slow_gpu?";
  const absl::StatusOr<ProcessRank> where = GetProcessRank();
  CHECK(where.ok()) << where.status();
  CHECK(where->size >= 2) << "start it with launch --nproc=2";
  const absl::StatusOr<int> device = DeviceOfRank(*where);
  CHECK(device.ok()) << device.status();
  FaultyRank(*where, *device).Run(fault);
}

}  // namespace
}  // namespace comm

int main(int argc, char** argv) { comm::Main(argc > 1 ? argv[1] : ""); }
