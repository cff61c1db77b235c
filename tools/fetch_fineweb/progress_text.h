// Numbers and the progress bar as text. Pure.
#ifndef TOOLS_FETCH_FINEWEB_PROGRESS_TEXT_H_
#define TOOLS_FETCH_FINEWEB_PROGRESS_TEXT_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace tools {

// 1234567 as "1,234,567".
std::string WithCommas(int64_t number);

// "512 B", "4.6 kB", "200.0 MB", "2.00 GB"; powers of 1000, as sizes on the hub are.
std::string SizeText(int64_t bytes);

// "[=====>      ] 0.52/2.00 GB  64.5 MB/s  0:23 left"; a rate of 0 leaves the time open. When all
// have come, "verifies" in place of rate and time.
std::string ProgressText(int64_t done_bytes, int64_t total_bytes, double bytes_per_s);

// Bytes per second over the last ten seconds.
class RateMeter {
 public:
  // `bytes` in all have come by `seconds`, on a clock that never goes back; returns the rate.
  double Update(double seconds, int64_t bytes);

 private:
  std::deque<std::pair<double, int64_t>> samples_;
};

}  // namespace tools

#endif  // TOOLS_FETCH_FINEWEB_PROGRESS_TEXT_H_
