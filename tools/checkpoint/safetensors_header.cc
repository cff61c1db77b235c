#include "tools/checkpoint/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the public implementations
constexpr int kMaxDepth = 127;                     // of values in each other, as serde_json has it
constexpr char kMetadata[] = "__metadata__";
constexpr const char* kFields[] = {"dtype", "shape", "data_offsets"};

struct DTypeBits {
  const char* name;
  uint64_t bits;
};
constexpr DTypeBits kDTypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64}};

absl::Status Bad(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

absl::Status BadTensor(const std::string& path, absl::string_view name, absl::string_view what) {
  return Bad(path, absl::StrCat("tensor ", name, ": ", what));
}

// False if the product is more than 64 bits can say.
bool Multiply(uint64_t factor, uint64_t* product) {
  return !__builtin_mul_overflow(*product, factor, product);
}

using Entries = std::vector<std::pair<std::string, json>>;

// What a parsed JSON object does not keep: keys that come twice, and how deep values lie in each
// other.
class HeaderReader {
 public:
  // To be called by the parser for each event; `depth` counts the open objects and arrays.
  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      deepest_ = std::max(deepest_, depth + 1);
      if (depth == 1) fields_.clear();
    } else if (event == Event::key && depth == 1) {
      name_ = parsed;
    } else if (event == Event::key && depth == 2) {
      AddField(parsed);
    } else if (event != Event::key && depth == 1) {
      entries_.emplace_back(name_, parsed);
    }
    return true;
  }

  int deepest() const { return deepest_; }
  // The header's keys and values, in the file's order.
  const Entries& entries() const { return entries_; }
  // A sentence about the first field that a tensor has twice.
  const std::optional<std::string>& field_twice() const { return field_twice_; }

 private:
  void AddField(const std::string& field) {
    const bool known =
        std::find(std::begin(kFields), std::end(kFields), field) != std::end(kFields);
    if (fields_.insert(field).second || !known || name_ == kMetadata || field_twice_) return;
    field_twice_ = absl::StrCat("tensor ", name_, ": has ", field, " twice");
  }

  Entries entries_;
  std::string name_;              // the latest of the header's keys
  std::set<std::string> fields_;  // of its value
  std::optional<std::string> field_twice_;
  int deepest_ = 0;
};

// The header's text; its length is checked.
absl::StatusOr<absl::string_view> HeaderText(const std::string& path, absl::string_view content) {
  if (content.size() < kLengthBytes) {
    return Bad(path, absl::StrCat(content.size(), " bytes; a safetensors file has at least 8"));
  }
  uint64_t length = 0;
  std::memcpy(&length, content.data(), sizeof(length));
  const uint64_t rest = content.size() - kLengthBytes;
  if (length <= kMaxHeaderBytes && length <= rest) return content.substr(kLengthBytes, length);
  const uint64_t swapped = __builtin_bswap64(length);
  if (swapped >= 2 && swapped <= rest && content[kLengthBytes] == '{') {
    return Bad(path, absl::StrCat("the length of its header, ", swapped,
                                  ", is written in big-endian byte order, and so may its tensors "
                                  "be; safetensors files are little-endian: write it again with "
                                  "the safetensors library"));
  }
  return Bad(path, absl::StrCat("its header claims ", length, " bytes, the file holds ", rest,
                                " after the length; truncated or not safetensors"));
}

absl::StatusOr<Entries> ParseJson(const std::string& path, absl::string_view text) {
  // The parser would pass over a byte order mark, and end at a zero byte.
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == absl::string_view::npos || text[first] != '{') {
    return Bad(path, "its header is not a JSON object");
  }
  if (text.find('\0') != absl::string_view::npos) return Bad(path, "its header has a zero byte");
  HeaderReader reader;
  const json header = json::parse(
      text.begin(), text.end(),
      [&reader](int depth, json::parse_event_t event, const json& parsed) {
        return reader(depth, event, parsed);
      },
      /*allow_exceptions=*/false);
  if (!header.is_object()) return Bad(path, "its header is not a JSON object");
  if (reader.deepest() > kMaxDepth) {
    return Bad(path, absl::StrCat("its header has ", reader.deepest(), " values in each other"));
  }
  if (reader.field_twice()) return Bad(path, *reader.field_twice());
  return reader.entries();
}

absl::StatusOr<std::map<std::string, std::string>> ParseMetadata(const std::string& path,
                                                                 const json& entry) {
  std::map<std::string, std::string> metadata;
  if (entry.is_null()) return metadata;
  if (!entry.is_object()) return Bad(path, "its __metadata__ is no JSON object");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      return Bad(path, absl::StrCat("its __metadata__ has ", key, ", which is no string"));
    }
    metadata[key] = value;
  }
  return metadata;
}

absl::StatusOr<SafetensorsEntry> ParseEntry(const std::string& path, const std::string& name,
                                            const json& in) {
  if (!in.is_object() || !in.contains("dtype") || !in["dtype"].is_string() ||
      !in.contains("shape") || !in["shape"].is_array() || !in.contains("data_offsets") ||
      !in["data_offsets"].is_array() || in["data_offsets"].size() != 2) {
    return BadTensor(path, name, "its header entry lacks dtype, shape or data_offsets");
  }
  SafetensorsEntry entry;
  entry.name = name;
  entry.dtype = in["dtype"];
  for (const json& dim : in["shape"]) {
    if (!dim.is_number_unsigned()) return BadTensor(path, name, "a dim is not a whole number");
    entry.shape.push_back(dim);
  }
  if (!in["data_offsets"][0].is_number_unsigned() || !in["data_offsets"][1].is_number_unsigned()) {
    return BadTensor(path, name, "its data_offsets are not whole numbers");
  }
  entry.begin = in["data_offsets"][0];
  entry.end = in["data_offsets"][1];
  return entry;
}

absl::Status CheckSize(const std::string& path, const SafetensorsEntry& entry) {
  const auto* dtype = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                   [&](const DTypeBits& d) { return entry.dtype == d.name; });
  if (dtype == std::end(kDTypes)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", entry.name, " is ",
                                                   entry.dtype, ", which is no safetensors dtype"));
  }
  uint64_t bits = 1;
  bool fits = true;
  for (const uint64_t dim : entry.shape) fits = fits && Multiply(dim, &bits);
  if (!fits || !Multiply(dtype->bits, &bits)) {
    return BadTensor(path, entry.name, "its shape overflows");
  }
  if (bits % 8 != 0) {
    return BadTensor(path, entry.name,
                     absl::StrCat("its shape needs ", bits, " bits, which are no whole bytes"));
  }
  if (entry.end - entry.begin == bits / 8) return absl::OkStatus();
  return BadTensor(path, entry.name,
                   absl::StrCat("its shape needs ", bits / 8, " bytes, its data_offsets are ",
                                entry.begin, " to ", entry.end));
}

// Whether `entry` begins where `before` ends, or the data begins if that is null.
absl::Status CheckPlace(const std::string& path, const SafetensorsEntry* before,
                        const SafetensorsEntry& entry) {
  const uint64_t start = before == nullptr ? 0 : before->end;
  if (entry.end < entry.begin) {
    return BadTensor(
        path, entry.name,
        absl::StrCat("its data_offsets run backwards, from ", entry.begin, " to ", entry.end));
  }
  if (entry.begin == start) return absl::OkStatus();
  if (entry.begin > start) {
    return BadTensor(path, entry.name,
                     absl::StrCat("begins at byte ", entry.begin, " of the data, and bytes ", start,
                                  " to ", entry.begin, " before it are of no tensor"));
  }
  if (entry.begin == before->begin && entry.end == before->end) {
    return BadTensor(path, entry.name,
                     absl::StrCat("has the bytes of tensor ", before->name, ", ", entry.begin,
                                  " to ", entry.end));
  }
  return BadTensor(path, entry.name,
                   absl::StrCat("begins at byte ", entry.begin, " of the data, where tensor ",
                                before->name, " has bytes ", before->begin, " to ", before->end));
}

absl::Status CheckCover(const std::string& path, const SafetensorsHeader& header, uint64_t bytes) {
  const SafetensorsEntry* before = nullptr;
  for (const SafetensorsEntry& entry : header.tensors) {
    ABSL_RETURN_IF_ERROR(CheckPlace(path, before, entry));
    ABSL_RETURN_IF_ERROR(CheckSize(path, entry));
    before = &entry;
  }
  const uint64_t end = before == nullptr ? 0 : before->end;
  if (end > bytes) {
    return BadTensor(path, before->name,
                     absl::StrCat("ends at byte ", end, " of the data, the file holds ", bytes,
                                  "; the file is truncated, copy it again"));
  }
  if (end == bytes) return absl::OkStatus();
  return Bad(path,
             absl::StrCat("its tensors end at byte ", end, " of the data, the file holds ", bytes));
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const std::string& path,
                                                         absl::string_view content) {
  ABSL_ASSIGN_OR_RETURN(const absl::string_view text, HeaderText(path, content));
  ABSL_ASSIGN_OR_RETURN(const Entries entries, ParseJson(path, text));
  SafetensorsHeader header = {
      .tensors = {}, .metadata = {}, .data_begin = kLengthBytes + text.size()};
  std::map<std::string, SafetensorsEntry> tensors;
  bool has_metadata = false;
  for (const auto& [name, value] : entries) {
    if (name == kMetadata) {
      if (std::exchange(has_metadata, true)) return Bad(path, "has __metadata__ twice");
      ABSL_ASSIGN_OR_RETURN(header.metadata, ParseMetadata(path, value));
      continue;
    }
    // Of a name that comes twice the last counts: bytes that the first alone has are then a hole.
    ABSL_ASSIGN_OR_RETURN(tensors[name], ParseEntry(path, name, value));
  }
  for (auto& [name, entry] : tensors) header.tensors.push_back(std::move(entry));
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
            });
  ABSL_RETURN_IF_ERROR(CheckCover(path, header, content.size() - header.data_begin));
  return header;
}

}  // namespace tools
