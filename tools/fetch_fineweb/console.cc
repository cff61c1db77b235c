#include "tools/fetch_fineweb/console.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "third_party/absl_compat/check.h"
#include "tools/fetch_fineweb/progress_text.h"

namespace tools {
namespace {

constexpr std::chrono::milliseconds kRedraw(200);

}  // namespace

Console::Console(std::string program) : program_(std::move(program)) {}

Console::~Console() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  end_.notify_all();
  if (drawer_.joinable()) drawer_.join();
}

void Console::StartBar(int64_t total_bytes) {
  CHECK(!drawer_.joinable()) << "one bar";
  if (isatty(STDERR_FILENO) != 1) return;
  total_ = total_bytes;
  drawer_ = std::thread(&Console::DrawUntilEnd, this);
}

void Console::DrawUntilEnd() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  RateMeter meter;
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const int64_t fetched = fetched_;
    const double rate =
        meter.Update(std::chrono::duration<double>(Clock::now() - start).count(), fetched);
    std::fprintf(stderr, "\r\033[K%s",
                 ProgressText(found_ + fetched - lost_, total_, rate).c_str());
    std::fflush(stderr);
    drawn_ = true;
    end_.wait_for(lock, kRedraw);
  }
  Clear();
}

void Console::Clear() {
  if (!std::exchange(drawn_, false)) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
}

void Console::Result(const std::string& line) {
  const std::lock_guard lock(mutex_);
  Clear();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void Console::Note(const std::string& line) {
  const std::lock_guard lock(mutex_);
  Clear();
  std::fprintf(stderr, "%s: %s\n", program_.c_str(), line.c_str());
}

}  // namespace tools
