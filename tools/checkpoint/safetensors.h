// Safetensors files: named tensors in one file, readable by every PyTorch user.
#ifndef TOOLS_CHECKPOINT_SAFETENSORS_H_
#define TOOLS_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "tools/checkpoint/files.h"

namespace tools {

// A tensor in host memory, row-major.
struct HostTensor {
  kernels::DType dtype = kernels::DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;

  friend bool operator==(const HostTensor&, const HostTensor&) = default;
};

using TensorMap = std::map<std::string, HostTensor>;

struct SafetensorsFile {
  TensorMap tensors;
  std::map<std::string, std::string> metadata;
};

// A reader sees the old file or the whole new one. Errors and `sum` are those of
// WriteFileAtomically.
absl::Status WriteSafetensors(const std::string& path, const SafetensorsFile& file,
                              FileSum* sum = nullptr);

// The one reader of such files: initial weights, saved models, checkpoints, imports and dumps.
//
// NotFound if there is no such file; DataLoss, with the tensor's name and both numbers, for a file
// that is shorter or longer than its header says, whose tensors overlap, leave bytes to none or
// come twice, and for a header that is not safetensors' (tools/checkpoint/safetensors_header.h).
// f32, bf16, i32, i64 and u16 are read; InvalidArgument names a tensor of another dtype.
absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path);
// The same of a file's content; `path` is for messages.
absl::StatusOr<SafetensorsFile> ParseSafetensors(const std::string& path,
                                                 const std::string& content);

}  // namespace tools

#endif  // TOOLS_CHECKPOINT_SAFETENSORS_H_
