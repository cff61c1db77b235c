// Lines of JSONL: the field's text is that of a library's parser, and so is what is no JSON.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/check.h"
#include "tools/tokenize/json_line.h"
#include "tools/tokenize/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view line(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<std::string> field = tools::StringField(line, "text");
  (void)tools::FindMalformed(line);
  const std::string replaced = tools::ReplaceMalformed(line);
  CHECK_EQ(tools::FindMalformed(replaced).sequences, 0);
  CHECK_EQ(tools::ReplaceMalformed(replaced), replaced);

  // The library knows neither lone surrogates nor NaN, so it may refuse what we take; and it takes
  // a zero byte for the end, whatever comes behind.
  if (line.find('\0') != absl::string_view::npos) return 0;
  const nlohmann::json parsed = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
  if (parsed.is_discarded()) return 0;
  const bool there = parsed.is_object() && parsed.contains("text") && parsed["text"].is_string();
  CHECK_EQ(field.ok(), there) << field.status();
  if (there) CHECK_EQ(*field, parsed["text"].get<std::string>());
  return 0;
}
