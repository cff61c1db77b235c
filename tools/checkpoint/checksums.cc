#include "tools/checkpoint/checksums.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/crc32c.h"

namespace tools {
namespace {

using nlohmann::json;

std::string Hex(uint32_t crc32c) { return absl::StrFormat("%08x", crc32c); }

}  // namespace

std::string FormatChecksums(const Checksums& checksums) {
  json out = json::object();
  for (const auto& [name, sum] : checksums) {
    out[name] = {{"bytes", sum.bytes}, {"crc32c", Hex(sum.crc32c)}};
  }
  return out.dump(2) + "\n";
}

absl::StatusOr<Checksums> ParseChecksums(const std::string& path, const std::string& text) {
  const json in = json::parse(text, nullptr, false);
  if (!in.is_object()) {
    return absl::DataLossError(absl::StrCat(path, ": is not a JSON object; it is damaged"));
  }
  Checksums checksums;
  for (const auto& [name, entry] : in.items()) {
    FileSum sum;
    if (!entry.is_object() || !entry.contains("bytes") || !entry["bytes"].is_number_unsigned() ||
        !entry.contains("crc32c") || !entry["crc32c"].is_string() ||
        !absl::SimpleHexAtoi(entry["crc32c"].get<std::string>(), &sum.crc32c)) {
      return absl::DataLossError(
          absl::StrCat(path, ": ", name, " lacks bytes or crc32c; it is damaged"));
    }
    sum.bytes = entry["bytes"];
    checksums[name] = sum;
  }
  return checksums;
}

absl::StatusOr<std::string> ReadChecked(const std::string& folder, const std::string& name,
                                        const Checksums& checksums) {
  const std::string path = absl::StrCat(folder, "/", name);
  const auto wanted = checksums.find(name);
  if (wanted == checksums.end()) {
    return absl::DataLossError(
        absl::StrCat(folder, "/checksums.json: lacks ", name, "; it is damaged"));
  }
  ABSL_ASSIGN_OR_RETURN(std::string content, ReadFile(path));
  if (content.size() != wanted->second.bytes) {
    return absl::DataLossError(absl::StrCat(path, ": holds ", content.size(), " bytes, ",
                                            wanted->second.bytes, " were saved"));
  }
  if (const uint32_t sum = Crc32c(0, content); sum != wanted->second.crc32c) {
    return absl::DataLossError(absl::StrCat(path, ": its CRC-32C is ", Hex(sum),
                                            ", that of what was saved ", Hex(wanted->second.crc32c),
                                            "; its bytes have changed since"));
  }
  return content;
}

}  // namespace tools
