// The CPU backend: an in-order executor that runs each op at once on the shared pool.
#ifndef KERNELS_CPU_CPU_BACKEND_H_
#define KERNELS_CPU_CPU_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "kernels/queue.h"

namespace kernels {

// Whether the ops can run here: OK, or the error of CheckCpuTarget() in simd_target.h, where the
// environment chooses an instruction set that this program or machine lacks, or of OpenSgemm() in
// gemm.h, which says what to install. Whoever is about to compute on a CPU queue asks first.
// MakeCpuQueue CHECKs the instruction set, ops CHECK the library: planning and copying need none.
// Safe from any thread.
absl::Status CheckCpuBackend();

// Never destroyed. Safe from any thread.
Backend& CpuBackend();

// "CPU with AVX2, oneDNN 2.7.2": what the bits of a result depend on. CHECKs CheckCpuBackend().
std::string DescribeCpu();

// A queue over a pool of `threads` threads; 0: kernels::UsableCpus(). Queues made with the same
// number share one pool, so that the ranks of one process do not multiply the threads.
// The number of threads changes no bit of any result.
std::unique_ptr<Queue> MakeCpuQueue(int threads = 0);

}  // namespace kernels

#endif  // KERNELS_CPU_CPU_BACKEND_H_
