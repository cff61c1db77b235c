// The header of a safetensors file: which bytes of the file are which tensor.
#ifndef TOOLS_CHECKPOINT_SAFETENSORS_HEADER_H_
#define TOOLS_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the file spells it: "F32"
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // its bytes, counted from the first byte of the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // by begin, then end
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // where the data begins in the file
};

// Reads and checks the header of `content`, a whole file; `path` is for messages. Accepts what the
// reference library accepts (huggingface/safetensors 0.8.0; //tools/checkpoint:reference_cases_test
// compares the verdicts of 467 files): the tensors, ordered by their offsets, cover the data
// without overlap, hole or rest, each with as many bytes as its dtype and shape say. Of a name that
// comes twice the last entry counts, and what the first alone has is a hole.
//
// Two forms that the reference's parser lets through and no writer writes are refused: a tensor as
// an array of its three fields, and a dtype as an object.
//
// DataLoss, with the path and the tensor's name where there is one. InvalidArgument for a dtype
// that the format does not have.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const std::string& path,
                                                         absl::string_view content);

}  // namespace tools

#endif  // TOOLS_CHECKPOINT_SAFETENSORS_HEADER_H_
