#include "tools/report/decimate.h"

#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tools {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Optional;

std::vector<StepRow> Rows(int64_t n) {
  std::vector<StepRow> rows(n);
  for (int64_t i = 0; i < n; ++i) {
    rows[i].step = i + 1;
    rows[i].loss = 5 + std::sin(static_cast<double>(i * 7919 % 1000));
    rows[i].step_ms = 60;
    rows[i].lr = i < n / 2 ? 1.0 : 2.0 - 2.0 * static_cast<double>(i) / static_cast<double>(n);
    rows[i].window_tokens = i < 4321 ? 384 : 640;
  }
  return rows;
}

TEST(RowsToDraw, AllOfAShortRun) {
  EXPECT_THAT(RowsToDraw(Rows(3), 4), ElementsAre(0, 1, 2));
  EXPECT_THAT(RowsToDraw({}, 4), ElementsAre());
}

TEST(RowsToDraw, KeepsWhatStandsOut) {
  std::vector<StepRow> rows = Rows(6450);
  rows[1234].loss = 20;
  rows[2345].loss = 1;
  rows[3456].step_ms = 900;
  rows[5000].loss = std::nan("");
  const std::vector<size_t> drawn = RowsToDraw(rows, 2000);
  EXPECT_LT(drawn.size(), 2010);
  EXPECT_GT(drawn.size(), 1000);
  EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
  for (const size_t row : {0, 1234, 2345, 3456, 5000, 6449}) EXPECT_THAT(drawn, Contains(row));
  // The last of the old window and the first of the new; the end of the constant rate.
  for (const size_t row : {4320, 4321, 3225, 3226}) EXPECT_THAT(drawn, Contains(row));
}

// No stretch of the run has a greater or smaller loss than its drawn part.
TEST(RowsToDraw, ExtremesOfEveryStretch) {
  const std::vector<StepRow> rows = Rows(10000);
  const std::vector<size_t> drawn = RowsToDraw(rows, 400);
  for (size_t begin = 0; begin < rows.size(); begin += 100) {
    double most = 0, most_drawn = 0;
    for (size_t i = begin; i < begin + 100; ++i) most = std::max(most, *rows[i].loss);
    for (const size_t i : drawn) {
      if (i >= begin && i < begin + 100) most_drawn = std::max(most_drawn, *rows[i].loss);
    }
    EXPECT_EQ(most, most_drawn) << "from row " << begin;
  }
}

TEST(Smooth, MeansWithGaps) {
  const double nan = std::nan("");
  const Values smooth = Smooth({1, 2, 6, nan, 4, std::nullopt, 8}, 1);
  EXPECT_THAT(smooth[0], Optional(1.0));  // nothing before it
  EXPECT_THAT(smooth[1], Optional(3.0));
  EXPECT_THAT(smooth[2], Optional(4.0));  // without the NaN
  EXPECT_TRUE(std::isnan(*smooth[3]));
  EXPECT_THAT(smooth[4], Optional(4.0));
  EXPECT_EQ(smooth[5], std::nullopt);
  EXPECT_THAT(smooth[6], Optional(8.0));
}

}  // namespace
}  // namespace tools
