#include "tools/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the public implementations

const std::pair<const char*, kernels::DType> kDTypes[] = {
    {"F32", kernels::DType::kF32}, {"BF16", kernels::DType::kBF16}, {"I32", kernels::DType::kI32},
    {"I64", kernels::DType::kI64}, {"U16", kernels::DType::kU16},
};

absl::StatusOr<HostTensor> ParseEntry(const std::string& path, const std::string& name,
                                      const json& entry, absl::string_view data, uint64_t* end) {
  const auto bad = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path, ": tensor ", name, ": ", what));
  };
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    return bad("its header entry lacks dtype, shape or data_offsets");
  }
  HostTensor tensor;
  bool known = false;
  const std::string dtype = entry["dtype"];
  for (const auto& [text, value] : kDTypes) {
    if (dtype == text) {
      tensor.dtype = value;
      known = true;
    }
  }
  if (!known) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", name, " is ", dtype,
                                                   "; F32, BF16, I32, I64, U16 are read"));
  }
  uint64_t elements = 1;
  for (const json& dim : entry["shape"]) {
    if (!dim.is_number_unsigned()) return bad("a dim is not a whole number");
    const uint64_t size = dim;
    if (size != 0 && elements > (uint64_t{1} << 48) / size) return bad("its shape overflows");
    elements *= size;
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  if (!entry["data_offsets"][0].is_number_unsigned() ||
      !entry["data_offsets"][1].is_number_unsigned()) {
    return bad("its data_offsets are not whole numbers");
  }
  const uint64_t from = entry["data_offsets"][0], to = entry["data_offsets"][1];
  const uint64_t want = elements * kernels::SizeOf(tensor.dtype);
  if (to < from || to - from != want) {
    return bad(
        absl::StrCat("its shape needs ", want, " bytes, its data_offsets are ", from, " to ", to));
  }
  if (to > data.size()) {
    return bad(absl::StrCat("ends at byte ", to, " of the data, the file holds ", data.size(),
                            "; the file is truncated, copy it again"));
  }
  tensor.bytes.assign(data.data() + from, to - from);
  *end = std::max(*end, to);
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
  if (content.size() < kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", content.size(), " bytes; a safetensors file has at least 8"));
  }
  uint64_t length = 0;
  std::memcpy(&length, content.data(), sizeof(length));
  if (length > kMaxHeaderBytes || length > content.size() - kLengthBytes) {
    return absl::DataLossError(absl::StrCat(
        path, ": its header claims ", length, " bytes, the file holds ",
        content.size() - kLengthBytes, " after the length; truncated or not safetensors"));
  }
  const json header = json::parse(content.begin() + kLengthBytes,
                                  content.begin() + kLengthBytes + length, nullptr, false);
  if (!header.is_object()) {
    return absl::DataLossError(absl::StrCat(path, ": its header is not a JSON object"));
  }
  const absl::string_view data = absl::string_view(content).substr(kLengthBytes + length);
  SafetensorsFile file;
  uint64_t end = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items()) {
        if (value.is_string()) file.metadata[key] = value;
      }
      continue;
    }
    ABSL_ASSIGN_OR_RETURN(file.tensors[name], ParseEntry(path, name, entry, data, &end));
  }
  if (end != data.size()) {
    return absl::DataLossError(absl::StrCat(path, ": its tensors end at byte ", end,
                                            " of the data, the file holds ", data.size()));
  }
  return file;
}

}  // namespace tools
