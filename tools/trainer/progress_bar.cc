#include "tools/trainer/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"

namespace tools {
namespace {

constexpr int kWidth = 30;

}  // namespace

std::string ProgressText(int64_t step, int64_t total, double loss, double tokens_per_s,
                         double seconds_left) {
  const int64_t filled = total > 0 ? kWidth * std::min(step, total) / total : kWidth;
  std::string bar(filled, '=');
  if (filled < kWidth) bar += '>' + std::string(kWidth - filled - 1, ' ');
  const int64_t left = static_cast<int64_t>(std::max(seconds_left, 0.0) + 0.5);
  return absl::StrFormat("[%s] %d/%d  loss %.3f  %.0f tok/s  %d:%02d left", bar, step, total, loss,
                         tokens_per_s, left / 60, left % 60);
}

ProgressBar::ProgressBar(int64_t total_steps)
    : total_steps_(total_steps), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::Update(int64_t step, double loss, double tokens_per_s, double seconds_left) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\033[K%s",
               ProgressText(step, total_steps_, loss, tokens_per_s, seconds_left).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::Clear() {
  if (!drawn_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace tools
