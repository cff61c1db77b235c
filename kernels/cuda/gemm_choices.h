// The file in which timed algorithm choices survive a run.
#ifndef KERNELS_CUDA_GEMM_CHOICES_H_
#define KERNELS_CUDA_GEMM_CHOICES_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kernels {

// cuBLASLt's opaque description of an algorithm: valid for one card and one library version.
using AlgoBits = std::array<uint64_t, 8>;

class GemmChoices {
 public:
  // Reads $NANOSPEED_CACHE_DIR (or $XDG_CACHE_HOME/nanospeed, or $HOME/.cache/nanospeed)
  // /gemm-<card>-<version>.json. Without any of these variables nothing is kept. A file that
  // cannot be read or parsed is InvalidArgument: it says which file to delete.
  static absl::StatusOr<GemmChoices> Load(const std::string& card, int64_t library_version);

  // Null if there is none for that shape.
  const AlgoBits* Find(const std::string& shape) const;
  void Add(const std::string& shape, const AlgoBits& algo);
  // Writes the file if there is something new; atomically, so that a reader sees all or nothing.
  absl::Status Save();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::map<std::string, AlgoBits> choices_;
  bool changed_ = false;
};

}  // namespace kernels

#endif  // KERNELS_CUDA_GEMM_CHOICES_H_
