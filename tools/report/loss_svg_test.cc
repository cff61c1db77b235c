#include "tools/report/loss_svg.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/report/assets.h"

namespace tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TrainingRun ARun(const std::string& group, const std::string& name,
                 const std::vector<ValidationRow>& validations) {
  TrainingRun run;
  run.group = group;
  run.name = name;
  run.validations = validations;
  return run;
}

// `d` of the paths of such a class, in the file's order.
std::vector<std::string> Paths(const std::string& svg, const std::string& classes) {
  std::vector<std::string> paths;
  const std::string begin = absl::StrCat("<path class=\"", classes, "\" d=\"");
  for (size_t at = 0; (at = svg.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    paths.push_back(svg.substr(at, svg.find('"', at) - at));
  }
  return paths;
}

struct Place {
  double x = 0, y = 0;
};

std::vector<Place> PlacesOf(const std::string& path) {
  std::vector<Place> places;
  for (const absl::string_view part :
       absl::StrSplit(path, absl::ByAnyChar("ML"), absl::SkipEmpty())) {
    const std::vector<std::string> numbers = absl::StrSplit(part, ' ');
    Place place;
    EXPECT_TRUE(numbers.size() == 2 && absl::SimpleAtod(numbers[0], &place.x) &&
                absl::SimpleAtod(numbers[1], &place.y))
        << path;
    places.push_back(place);
  }
  return places;
}

// Every tag is closed in order, and no attribute or text has a bare < or &.
void ExpectWellFormed(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = 0; (at = svg.find('<', at)) != std::string::npos;) {
    const size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    ASSERT_EQ(tag.find('<'), std::string::npos) << tag;
    const std::string name = tag.substr(0, tag.find_first_of(" \n"));
    if (name[0] == '/') {
      ASSERT_FALSE(open.empty()) << name;
      ASSERT_EQ("/" + open.back(), name);
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  EXPECT_TRUE(open.empty());
  for (const unsigned char c : svg) ASSERT_TRUE(c >= ' ' || c == '\n') << int{c};
}

const std::vector<TrainingRun>& TwoGroups() {
  static const auto* const runs = new std::vector<TrainingRun>{
      ARun("muon", "m1", {{0, 8, 0.0, 0.0}, {10, 4, 1000.0, 640.0}, {20, 2, 2000.0, 1280.0}}),
      ARun("adamw", "a1", {{0, 8, 0.0, 0.0}, {10, 5, 500.0, 640.0}, {20, 3, 1000.0, 1280.0}}),
      ARun("muon", "m2", {{0, 8, 0.0, 0.0}, {10, 6, 3000.0, 640.0}, {20, 4, 6000.0, 1280.0}})};
  return *runs;
}

// The mean of losses 4 and 6 is where adamw's 5 is, and so is the mean of its steps.
TEST(LossSvg, RunsAreThinAndTheirMeanIsBold) {
  const LossSvg drawn = DrawLosses(TwoGroups(), LossAxis::kStep);
  EXPECT_TRUE(drawn.lacking.empty());
  ExpectWellFormed(drawn.svg);
  EXPECT_EQ(Paths(drawn.svg, "thin c0").size(), 2);
  EXPECT_EQ(Paths(drawn.svg, "thin c1").size(), 1);
  const std::vector<Place> muon = PlacesOf(Paths(drawn.svg, "bold c0").at(0));
  const std::vector<Place> adamw = PlacesOf(Paths(drawn.svg, "bold c1").at(0));
  ASSERT_EQ(muon.size(), 3);
  ASSERT_EQ(adamw.size(), 3);
  for (const size_t i : {0, 1, 2}) {
    EXPECT_EQ(muon[i].x, adamw[i].x);
    EXPECT_EQ(muon[i].y, adamw[i].y);
  }
  EXPECT_THAT(drawn.svg, HasSubstr(">muon (2)</text>"));
  EXPECT_THAT(drawn.svg, HasSubstr(">adamw (1)</text>"));
  EXPECT_THAT(drawn.svg, HasSubstr(">step</text>"));
  EXPECT_THAT(drawn.svg, HasSubstr(">0</text>"));
}

// Equal ratios of losses are equal distances, and each axis is as long as its values.
TEST(LossSvg, AxesHoldAllValues) {
  const LossSvg drawn = DrawLosses(TwoGroups(), LossAxis::kTime);
  const std::vector<Place> first = PlacesOf(Paths(drawn.svg, "thin c0").at(0));
  EXPECT_NEAR(first[1].y - first[0].y, first[2].y - first[1].y, 0.11);  // 8, 4, 2
  const std::vector<Place> second = PlacesOf(Paths(drawn.svg, "thin c0").at(1));
  EXPECT_NEAR(second[2].x - second[0].x, 3 * (first[2].x - first[0].x), 0.5);  // 6 s and 2 s
  EXPECT_EQ(first[0].x, 54);
  EXPECT_EQ(second[2].x, 744);
  const std::vector<Place> mean = PlacesOf(Paths(drawn.svg, "bold c0").at(0));
  EXPECT_NEAR(2 * mean[2].x, first[2].x + second[2].x, 0.21);
  EXPECT_THAT(drawn.svg, HasSubstr(">train time, s</text>"));
}

TEST(LossSvg, LossesThatAreNotFiniteAreGaps) {
  const double nan = std::nan("");
  const LossSvg drawn = DrawLosses({ARun("g", "a", {{0, 8}, {1, 6}, {2, nan}, {3, 4}, {4, 3}}),
                                    ARun("g", "b", {{0, 8}, {1, 6}, {2, 5}, {3, 4}})},
                                   LossAxis::kStep);
  const std::string path = Paths(drawn.svg, "thin c0").at(0);
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 2);
  EXPECT_EQ(PlacesOf(path).size(), 4);
  EXPECT_EQ(PlacesOf(Paths(drawn.svg, "bold c0").at(0)).size(), 3);  // steps 0, 1 and 3
  EXPECT_THAT(drawn.svg, Not(HasSubstr("nan")));
}

TEST(LossSvg, SaysWhichRunsAreNotThere) {
  std::vector<TrainingRun> runs = TwoGroups();
  runs.push_back(ARun("", "untimed", {{0, 8}, {10, 4}}));
  runs.push_back(ARun("", "empty", {}));
  EXPECT_THAT(DrawLosses(runs, LossAxis::kTime).lacking, ElementsAre("untimed", "empty"));
  EXPECT_THAT(DrawLosses(runs, LossAxis::kStep).lacking, ElementsAre("empty"));
  EXPECT_TRUE(DrawLosses({runs.back()}, LossAxis::kStep).svg.empty());
}

TEST(LossSvg, NamesStayText) {
  for (const std::string name : {"<script>", "a&b", "\"'", "\xff\xfe", "\x01\n", "]]>"}) {
    const LossSvg drawn = DrawLosses({ARun("", name, {{0, 8}, {1, 7}})}, LossAxis::kStep);
    ExpectWellFormed(drawn.svg);
    EXPECT_THAT(drawn.svg, Not(HasSubstr("<script"))) << name;
    EXPECT_THAT(drawn.svg, Not(HasSubstr("a&b"))) << name;
    EXPECT_THAT(drawn.svg, Not(HasSubstr("\xff"))) << name;
  }
}

// One run's one validation has neither range.
TEST(LossSvg, OnePointIsDrawn) {
  const LossSvg drawn = DrawLosses({ARun("", "a", {{5, 3}})}, LossAxis::kStep);
  ExpectWellFormed(drawn.svg);
  EXPECT_EQ(PlacesOf(Paths(drawn.svg, "bold c0").at(0)).size(), 1);
  EXPECT_THAT(drawn.svg, Not(HasSubstr("nan")));
  EXPECT_THAT(drawn.svg, Not(HasSubstr("inf")));
}

TEST(LossSvg, IsReadableOnLightAndDark) {
  const std::string svg = DrawLosses(TwoGroups(), LossAxis::kStep).svg;
  const size_t dark = svg.find("@media(prefers-color-scheme:dark)");
  ASSERT_NE(dark, std::string::npos);
  ASSERT_THAT(kReportStyle, HasSubstr("--c1: light-dark(#d55e00, #ff8f50);"));
  EXPECT_THAT(svg.substr(0, dark), HasSubstr(".c1{stroke:#d55e00}"));
  EXPECT_THAT(svg.substr(dark), HasSubstr(".c1{stroke:#ff8f50}"));
  for (const char* one : {".card{fill:", "text{fill:", ".soft{fill:", ".grid{stroke:"}) {
    EXPECT_THAT(svg.substr(0, dark), HasSubstr(one));
    EXPECT_THAT(svg.substr(dark), HasSubstr(one));
  }
  EXPECT_THAT(svg, Not(HasSubstr("href")));
  EXPECT_THAT(svg, Not(HasSubstr("url(")));
}

// Colours come round, and a legend without end would leave the chart.
TEST(LossSvg, ManyRuns) {
  std::vector<TrainingRun> runs;
  for (int i = 0; i < 30; ++i) {
    runs.push_back(ARun("", absl::StrCat("run", i), {{0, 8}, {1, 3 + 0.1 * i}}));
  }
  const std::string svg = DrawLosses(runs, LossAxis::kStep).svg;
  EXPECT_THAT(svg, HasSubstr(">run16</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">run17</text>")));
  EXPECT_THAT(svg, HasSubstr(">and 13 more</text>"));
  EXPECT_EQ(Paths(svg, "dots c0").size(), 4);  // 0, 8, 16, 24
}

}  // namespace
}  // namespace tools
