#include "tools/bench_comm/link_fit.h"

#include <cmath>

#include "gtest/gtest.h"

namespace tools {
namespace {

TEST(LinkFit, FindsTheLinkThatMadeTheTimes) {
  for (const LinkShape shape : {LinkShape::kRing, LinkShape::kTree}) {
    for (const int ranks : {2, 3, 8}) {
      const LinkModel link{.shape = shape, .gbps = 25, .latency_us = 7};
      std::vector<TimedCollective> timed;
      for (const int64_t bytes : {1 << 10, 1 << 16, 1 << 22}) {
        for (const char* name : {"reduce_scatter", "all_gather", "all_reduce"}) {
          timed.push_back({name, bytes, CollectiveSeconds(name, bytes, ranks, link)});
        }
      }
      const LinkFit fit = FitLink(timed, ranks, shape);
      EXPECT_NEAR(fit.link.gbps, 25, 1e-6);
      EXPECT_NEAR(fit.link.latency_us, 7, 1e-6);
      EXPECT_NEAR(fit.worst_ratio, 1, 1e-9);
    }
  }
}

// Twice the time for twice the bytes and a little less at small sizes: no latency fits that.
TEST(LinkFit, LatencyIsNotNegative) {
  const LinkFit fit =
      FitLink({{"all_gather", 1000, 0.9e-6}, {"all_gather", 2'000'000, 2e-3}}, 2, LinkShape::kRing);
  EXPECT_EQ(fit.link.latency_us, 0);
  EXPECT_GT(fit.worst_ratio, 1.01);
  EXPECT_LT(fit.worst_ratio, 1.2);
}

// More bytes in less time: all is latency, and 1.2 us is nearest to both, (1.2 / 2 - 1)^2 + 0.2^2.
TEST(LinkFit, RateIsNotNegative) {
  const LinkFit fit =
      FitLink({{"all_gather", 1000, 2e-6}, {"all_gather", 2'000'000, 1e-6}}, 2, LinkShape::kRing);
  EXPECT_TRUE(std::isinf(fit.link.gbps));
  EXPECT_NEAR(fit.link.latency_us, 1.2, 1e-9);
  EXPECT_NEAR(fit.worst_ratio, 2 / 1.2, 1e-9);
}

}  // namespace
}  // namespace tools
