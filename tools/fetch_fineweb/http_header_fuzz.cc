// What a server says in its headers, a line each.
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "third_party/absl_compat/check.h"
#include "tools/fetch_fineweb/http_client.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  tools::HttpResponse response;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    tools::ReadHeaderLine(line, &response);
    CHECK(response.content_length >= -1) << response.content_length;
    CHECK(response.retry_after >= absl::ZeroDuration());
  }
  return 0;
}
