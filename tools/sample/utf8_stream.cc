#include "tools/sample/utf8_stream.h"

#include <cstddef>
#include <cstdint>

namespace tools {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

struct Lead {
  size_t length;                                 // of the sequence; 0: no sequence begins so
  uint8_t second_from = 0x80, second_to = 0xBF;  // of its second byte; later ones are 80 to BF
};

// Unicode 15, table 3-7. It leaves out overlong forms, surrogates, and what is behind U+10FFFF.
Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

// Bytes from `at` on that begin a well-formed sequence, at most all of one: `length` of them.
size_t Matching(absl::string_view bytes, size_t at, const Lead& lead) {
  size_t n = 1;
  while (n < lead.length && at + n < bytes.size()) {
    const auto byte = static_cast<uint8_t>(bytes[at + n]);
    const uint8_t from = n == 1 ? lead.second_from : 0x80, to = n == 1 ? lead.second_to : 0xBF;
    if (byte < from || byte > to) break;
    ++n;
  }
  return n;
}

}  // namespace

std::string Utf8Stream::Push(absl::string_view bytes) {
  held_.append(bytes.data(), bytes.size());
  std::string whole;
  size_t at = 0;
  while (at < held_.size()) {
    const Lead lead = LeadOf(static_cast<uint8_t>(held_[at]));
    const size_t n = Matching(held_, at, lead);
    if (n == lead.length) {
      whole.append(held_, at, n);
    } else if (lead.length > 0 && at + n == held_.size()) {
      break;  // more may come
    } else {
      whole.append(kReplacement.data(), kReplacement.size());
    }
    at += n;
  }
  held_.erase(0, at);
  return whole;
}

std::string Utf8Stream::Finish() {
  if (held_.empty()) return "";
  held_.clear();
  return std::string(kReplacement);
}

}  // namespace tools
