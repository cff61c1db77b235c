// The backends of this build by name, so that one program can measure one against the other.
#ifndef TOOLS_PARITY_QUEUE_CHOICE_H_
#define TOOLS_PARITY_QUEUE_CHOICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/queue.h"

namespace tools {

struct QueueChoice {
  kernels::Backend* backend = nullptr;  // never destroyed
  std::unique_ptr<kernels::Queue> queue;
};

// "cpu", or "cuda" in a build with --config=cuda (its device 0). InvalidArgument for another name
// and for a backend that was not built; else the backend's own errors. `threads`: of the CPU.
absl::StatusOr<QueueChoice> OpenQueue(absl::string_view backend, int threads);

}  // namespace tools

#endif  // TOOLS_PARITY_QUEUE_CHOICE_H_
