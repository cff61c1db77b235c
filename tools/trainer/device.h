// The device that a program computes on.
#ifndef TOOLS_TRAINER_DEVICE_H_
#define TOOLS_TRAINER_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/queue.h"
#include "tools/trainer/cards.h"

namespace tools {

struct QueueOptions {
  int threads = 0;             // of the CPU; 0: kernels::UsableCpus()
  bool deterministic = false;  // the same bits whatever number of slots a pass has
};

struct Device {
  std::string kind;  // "cpu" or "cuda"
  // "NVIDIA H200, compute capability 9.0, 139.8 GiB, driver for CUDA 13.0, CUDA 13.0,
  // cuBLASLt 13.1.0" or "CPU with AVX2, oneDNN 2.7.2"
  std::string description;
  std::optional<Card> card;             // of "cuda"
  kernels::Backend* backend = nullptr;  // never destroyed
  // A queue for the calling thread.
  std::function<absl::StatusOr<std::unique_ptr<kernels::Queue>>(const QueueOptions&)> make_queue;
};

// kind: "cpu", "cuda", or empty for the best that this program was built with: cuda in a build
// with --config=cuda, else cpu. `index`: which GPU of those visible. InvalidArgument: an unknown
// kind, one that was not built, or NANOSPEED_CPU_TARGET is wrong. FailedPrecondition: no GPU, a
// driver too old, no kernels for this GPU; NotFound: a library that the device needs (oneDNN,
// cuBLASLt). The message says what to do. Nothing falls back to the CPU by itself. `flag`: where
// the kind came from, for the messages.
absl::StatusOr<Device> OpenDevice(absl::string_view kind, int index = 0,
                                  absl::string_view flag = "device");

// The GPU of that index as its driver describes it, for plans: without kernels or libraries for it.
// FailedPrecondition: no GPU or no driver. InvalidArgument: no such index, or a build without CUDA.
absl::StatusOr<Card> CardOfDevice(int index);

// What an empty kind means in this build.
absl::string_view DefaultDeviceKind();

}  // namespace tools

#endif  // TOOLS_TRAINER_DEVICE_H_
