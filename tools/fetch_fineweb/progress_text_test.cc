#include "tools/fetch_fineweb/progress_text.h"

#include "gtest/gtest.h"

namespace tools {
namespace {

TEST(WithCommas, GroupsOfThree) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(100'000'000), "100,000,000");
  EXPECT_EQ(WithCommas(-123), "-123");
  EXPECT_EQ(WithCommas(-1234), "-1,234");
}

TEST(SizeText, ChoosesTheUnit) {
  EXPECT_EQ(SizeText(0), "0 B");
  EXPECT_EQ(SizeText(999), "999 B");
  EXPECT_EQ(SizeText(456'318), "456.3 kB");
  EXPECT_EQ(SizeText(200'001'024), "200.0 MB");
  EXPECT_EQ(SizeText(2'000'010'240), "2.00 GB");
  EXPECT_EQ(SizeText(3'000'000'000'000), "3.00 TB");
}

TEST(ProgressText, BarSizesRateAndTime) {
  EXPECT_EQ(ProgressText(500'000'000, 2'000'000'000, 50e6),
            "[=======>                      ] 0.50/2.00 GB  50.0 MB/s  0:30 left");
  EXPECT_EQ(ProgressText(200'000'000, 200'000'000, 1e6),
            "[==============================] 200.0/200.0 MB  verifies");
}

TEST(ProgressText, StrangeNumbers) {
  EXPECT_EQ(ProgressText(0, 1000, 0),
            "[>                             ] 0.0/1.0 kB  0.0 MB/s  --:-- left");
  EXPECT_EQ(ProgressText(0, 7'322'000'000, 1e6),
            "[>                             ] 0.00/7.32 GB  1.0 MB/s  2:02:02 left");
}

TEST(RateMeter, TheLastTenSeconds) {
  RateMeter meter;
  EXPECT_EQ(meter.Update(100, 0), 0);
  EXPECT_EQ(meter.Update(101, 1000), 1000);
  EXPECT_EQ(meter.Update(110, 1000), 100);
  // Nothing has come since second 101, which is ten seconds ago.
  EXPECT_EQ(meter.Update(111, 1000), 0);
  EXPECT_EQ(meter.Update(121, 21'000), 2000);
}

TEST(RateMeter, TwoSamplesAtOnce) {
  RateMeter meter;
  EXPECT_EQ(meter.Update(1, 0), 0);
  EXPECT_EQ(meter.Update(1, 1000), 0);
}

}  // namespace
}  // namespace tools
