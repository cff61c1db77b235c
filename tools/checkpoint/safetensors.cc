#include "tools/checkpoint/safetensors.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/safetensors_header.h"

namespace tools {
namespace {

using nlohmann::json;

const std::pair<const char*, kernels::DType> kDTypes[] = {
    {"F32", kernels::DType::kF32}, {"BF16", kernels::DType::kBF16}, {"I32", kernels::DType::kI32},
    {"I64", kernels::DType::kI64}, {"U16", kernels::DType::kU16},
};

absl::StatusOr<HostTensor> ReadTensor(const std::string& path, const SafetensorsEntry& entry,
                                      absl::string_view data) {
  const auto* dtype = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                   [&](const auto& row) { return entry.dtype == row.first; });
  if (dtype == std::end(kDTypes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": tensor ", entry.name, " is ", entry.dtype, "; F32, BF16, I32, I64, U16 are read"));
  }
  HostTensor tensor = {.dtype = dtype->second, .shape = {}, .bytes = ""};
  for (const uint64_t dim : entry.shape) {
    if (dim > std::numeric_limits<int64_t>::max()) {  // possible where another dim is 0
      return absl::DataLossError(
          absl::StrCat(path, ": tensor ", entry.name, ": a dim is ", dim, ", more than 2^63 - 1"));
    }
    tensor.shape.push_back(static_cast<int64_t>(dim));
  }
  tensor.bytes.assign(data.data() + entry.begin, entry.end - entry.begin);
  return tensor;
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, const SafetensorsFile& file, FileSum* sum) {
  json header = json::object();
  if (!file.metadata.empty()) header["__metadata__"] = file.metadata;
  uint64_t offset = 0;
  std::vector<absl::string_view> pieces(2);
  for (const auto& [name, tensor] : file.tensors) {
    std::string dtype;
    for (const auto& [text, value] : kDTypes) {
      if (value == tensor.dtype) dtype = text;
    }
    if (dtype.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": tensor ", name, ": no safetensors dtype for ", kernels::Name(tensor.dtype)));
    }
    header[name] = {{"dtype", dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
    pieces.push_back(tensor.bytes);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts aligned
  const uint64_t length = text.size();
  pieces[0] = absl::string_view(reinterpret_cast<const char*>(&length), sizeof(length));
  pieces[1] = text;
  return WriteFileAtomically(path, pieces, sum);
}

absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path) {
  ABSL_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  return ParseSafetensors(path, content);
}

absl::StatusOr<SafetensorsFile> ParseSafetensors(const std::string& path,
                                                 const std::string& content) {
  ABSL_ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsHeader(path, content));
  const absl::string_view data = absl::string_view(content).substr(header.data_begin);
  SafetensorsFile file;
  for (const SafetensorsEntry& entry : header.tensors) {
    ABSL_ASSIGN_OR_RETURN(file.tensors[entry.name], ReadTensor(path, entry, data));
  }
  file.metadata = std::move(header.metadata);
  return file;
}

}  // namespace tools
