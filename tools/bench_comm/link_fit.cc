#include "tools/bench_comm/link_fit.h"

#include <algorithm>
#include <limits>

#include "third_party/absl_compat/check.h"

namespace tools {

LinkFit FitLink(const std::vector<TimedCollective>& timed, int ranks, LinkShape shape) {
  CHECK_GE(ranks, 2);
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  // Seconds are a alpha + b x, with alpha in us and x = 1 / (Gbit/s): the columns are what the
  // model says for one of each alone. Both over the measured time, so the right side is 1.
  double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
  for (const TimedCollective& t : timed) {
    CHECK_GT(t.seconds, 0) << t.collective << " of " << t.bytes << " bytes";
    const LinkModel latency{.shape = shape, .gbps = kInfinite, .latency_us = 1};
    const LinkModel rate{.shape = shape, .gbps = 1, .latency_us = 0};
    const double a = CollectiveSeconds(t.collective, t.bytes, ranks, latency) / t.seconds;
    const double b = CollectiveSeconds(t.collective, t.bytes, ranks, rate) / t.seconds;
    aa += a * a;
    ab += a * b;
    bb += b * b;
    a1 += a;
    b1 += b;
  }
  const double determinant = aa * bb - ab * ab;
  CHECK_GT(determinant, 1e-12 * aa * bb) << "collectives of one size cannot tell rate from latency";
  double alpha = (a1 * bb - b1 * ab) / determinant, x = (b1 * aa - a1 * ab) / determinant;
  if (alpha < 0) {
    alpha = 0;
    x = b1 / bb;
  } else if (x <= 0) {  // a rate fits no better than none: all of it is latency
    alpha = a1 / aa;
    x = 0;
  }
  LinkFit fit;
  fit.link = {.shape = shape, .gbps = x > 0 ? 1 / x : kInfinite, .latency_us = alpha};
  for (const TimedCollective& t : timed) {
    const double predicted = CollectiveSeconds(t.collective, t.bytes, ranks, fit.link);
    fit.worst_ratio = std::max({fit.worst_ratio, predicted / t.seconds, t.seconds / predicted});
  }
  return fit;
}

}  // namespace tools
