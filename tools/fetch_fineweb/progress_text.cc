#include "tools/fetch_fineweb/progress_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tools {
namespace {

constexpr int kWidth = 30;
constexpr double kWindowSeconds = 10;

struct Unit {
  double bytes;
  const char* name;
  int digits;
};

Unit UnitFor(int64_t bytes) {
  if (bytes < 1000) return {1, "B", 0};
  if (bytes < 1'000'000) return {1e3, "kB", 1};
  if (bytes < 1'000'000'000) return {1e6, "MB", 1};
  if (bytes < 1'000'000'000'000) return {1e9, "GB", 2};
  return {1e12, "TB", 2};
}

}  // namespace

std::string WithCommas(int64_t number) {
  std::string text = absl::StrCat(number);
  const int first = number < 0 ? 1 : 0;
  for (int at = static_cast<int>(text.size()) - 3; at > first; at -= 3) text.insert(at, 1, ',');
  return text;
}

std::string SizeText(int64_t bytes) {
  const Unit unit = UnitFor(bytes);
  return absl::StrFormat("%.*f %s", unit.digits, bytes / unit.bytes, unit.name);
}

std::string ProgressText(int64_t done_bytes, int64_t total_bytes, double bytes_per_s) {
  const Unit unit = UnitFor(total_bytes);
  const double share =
      total_bytes > 0 ? std::clamp(static_cast<double>(done_bytes) / total_bytes, 0.0, 1.0) : 1.0;
  const int filled = static_cast<int>(kWidth * share);
  std::string bar(filled, '=');
  if (filled < kWidth) bar += '>' + std::string(kWidth - filled - 1, ' ');
  const std::string sizes =
      absl::StrFormat("[%s] %.*f/%.*f %s", bar, unit.digits, done_bytes / unit.bytes, unit.digits,
                      total_bytes / unit.bytes, unit.name);
  if (done_bytes >= total_bytes) return sizes + "  verifies";
  std::string left = "--:--";
  if (bytes_per_s > 0) {
    const int64_t seconds = std::llround((total_bytes - done_bytes) / bytes_per_s);
    left = seconds < 3600
               ? absl::StrFormat("%d:%02d", seconds / 60, seconds % 60)
               : absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
  }
  return absl::StrFormat("%s  %.1f MB/s  %s left", sizes, bytes_per_s / 1e6, left);
}

double RateMeter::Update(double seconds, int64_t bytes) {
  samples_.emplace_back(seconds, bytes);
  while (samples_.size() > 2 && samples_[1].first <= seconds - kWindowSeconds) {
    samples_.pop_front();
  }
  const double span = seconds - samples_.front().first;
  return span > 0 ? static_cast<double>(bytes - samples_.front().second) / span : 0;
}

}  // namespace tools
