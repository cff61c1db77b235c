#include "tools/report/loss_svg.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/check.h"
#include "tools/report/assets.h"
#include "tools/report/html.h"

namespace tools {
namespace {

constexpr double kWidth = 760, kHeight = 420;
constexpr double kLeft = 54, kRight = kWidth - 16, kTop = 34, kBottom = kHeight - 44;
constexpr size_t kColours = 8;     // --c0 to --c7 of report.css
constexpr size_t kMostNamed = 18;  // rows that the legend has room for

struct Point {
  int64_t step = 0;
  double x = 0;
  double loss = 0;
};
using Line = std::vector<Point>;

// What shares a colour: a run, or a group's runs and their mean.
struct Bundle {
  std::string name;
  std::vector<Line> thin;
  Line bold;
};

bool Drawable(const Point& point) { return std::isfinite(point.loss) && point.loss > 0; }

std::optional<double> XOf(const ValidationRow& row, LossAxis axis) {
  switch (axis) {
    case LossAxis::kStep:
      return static_cast<double>(row.step);
    case LossAxis::kTokens:
      return row.tokens;
    case LossAxis::kTime:
      if (!row.train_ms.has_value()) return std::nullopt;
      return *row.train_ms / 1000;
  }
  CHECK(false) << "no such axis";
}

Line LineOf(const TrainingRun& run, LossAxis axis) {
  Line line;
  for (const ValidationRow& row : run.validations) {
    if (const std::optional<double> x = XOf(row, axis)) line.push_back({row.step, *x, row.loss});
  }
  return line;
}

Line MeanOf(const std::vector<Line>& lines) {
  std::map<int64_t, std::vector<Point>> at;
  for (const Line& line : lines) {
    for (const Point& point : line) {
      if (Drawable(point)) at[point.step].push_back(point);
    }
  }
  Line mean;
  for (const auto& [step, points] : at) {
    if (points.size() != lines.size()) continue;
    Point sum = {step, 0, 0};
    for (const Point& point : points) {
      sum.x += point.x;
      sum.loss += point.loss;
    }
    const auto count = static_cast<double>(points.size());
    mean.push_back({step, sum.x / count, sum.loss / count});
  }
  return mean;
}

// In the order of their first runs.
std::vector<Bundle> BundlesOf(const std::vector<TrainingRun>& runs, LossAxis axis,
                              std::vector<std::string>* lacking) {
  std::vector<Bundle> bundles;
  std::map<std::string, size_t> groups;
  for (const TrainingRun& run : runs) {
    Line line = LineOf(run, axis);
    if (std::none_of(line.begin(), line.end(), Drawable)) {
      lacking->push_back(run.name);
      continue;
    }
    if (run.group.empty()) {
      bundles.push_back({run.name, {}, std::move(line)});
      continue;
    }
    const auto [place, is_new] = groups.emplace(run.group, bundles.size());
    if (is_new) bundles.push_back({run.group, {}, {}});
    bundles[place->second].thin.push_back(std::move(line));
  }
  for (const auto& [group, i] : groups) {
    Bundle& bundle = bundles[i];
    bundle.bold = MeanOf(bundle.thin);
    absl::StrAppend(&bundle.name, " (", bundle.thin.size(), ")");
  }
  return bundles;
}

// Of all points that are drawn.
struct Extent {
  double x_low = HUGE_VAL, x_high = -HUGE_VAL, y_low = HUGE_VAL, y_high = -HUGE_VAL;

  void Add(const Line& line) {
    for (const Point& point : line) {
      if (!Drawable(point)) continue;
      x_low = std::min(x_low, point.x);
      x_high = std::max(x_high, point.x);
      y_low = std::min(y_low, point.loss);
      y_high = std::max(y_high, point.loss);
    }
  }
  // Room above and below, and no axis without length.
  void Widen() {
    const double margin = std::max(std::pow(y_high / y_low, 0.04), 1.001);
    y_low /= margin;
    y_high *= margin;
    if (x_high <= x_low) x_high = x_low + 1;
  }
  double X(double x) const { return kLeft + (x - x_low) / (x_high - x_low) * (kRight - kLeft); }
  double Y(double loss) const {
    return kBottom - std::log(loss / y_low) / std::log(y_high / y_low) * (kBottom - kTop);
  }
};

// Multiples of 1, 2 or 5 times a power of ten, about `count` of them.
std::vector<double> Ticks(double low, double high, double count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5, 2, 1}) {
    if (factor * power >= 0.999 * rough) step = factor * power;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) {
    ticks.push_back(i * step + 0.0);  // not -0
  }
  return ticks;
}

std::string TickText(double value) {
  for (const auto& [unit, size] : {std::pair("G", 1e9), std::pair("M", 1e6), std::pair("k", 1e3)}) {
    if (std::abs(value) >= 10 * size) return absl::StrFormat("%.4g %s", value / size, unit);
  }
  return absl::StrFormat("%.4g", value);
}

// Names come from files. XML allows neither broken UTF-8 nor control characters.
std::string XmlText(const std::string& text) {
  std::string valid = nlohmann::json::parse(ScriptString(text)).get<std::string>();
  std::replace_if(
      valid.begin(), valid.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return EscapeHtml(valid);
}

// "--c0: light-dark(#0072b2, #4da8e6);" of the page's style, by names.
std::map<std::string, std::pair<std::string, std::string>> PageColours() {
  std::map<std::string, std::pair<std::string, std::string>> colours;
  for (const absl::string_view line : absl::StrSplit(kReportStyle, '\n')) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::ByAnyChar(" :(),;"), absl::SkipEmpty());
    if (parts.size() == 4 && absl::StartsWith(parts[0], "--") && parts[1] == "light-dark") {
      colours[parts[0]] = {parts[2], parts[3]};
    }
  }
  return colours;
}

// Plain rules, since viewers other than browsers know no variables.
std::string Style(size_t bundles) {
  const auto colours = PageColours();
  std::string light, dark;
  const auto rule = [&](const std::string& selector, const char* property,
                        const std::string& colour) {
    const auto found = colours.find(colour);
    CHECK(found != colours.end()) << colour << " is not in report.css";
    absl::StrAppend(&light, selector, "{", property, ":", found->second.first, "}\n");
    absl::StrAppend(&dark, selector, "{", property, ":", found->second.second, "}\n");
  };
  rule(".card", "fill", "--card");
  rule("text", "fill", "--text");
  rule(".soft", "fill", "--soft");
  rule(".grid", "stroke", "--grid");
  rule(".frame", "stroke", "--line");
  for (size_t i = 0; i < std::min(bundles, kColours); ++i) {
    rule(absl::StrCat(".c", i), "stroke", absl::StrCat("--c", i));
  }
  return absl::StrCat(
      "<style>\ntext{font:12px system-ui,sans-serif}\n"
      "path,.frame{fill:none;stroke-linejoin:round;stroke-linecap:round}\n"
      ".bold{stroke-width:2.2}\n.thin{stroke-width:1;opacity:.45}\n.dots{stroke-width:5.6}\n",
      light, "@media(prefers-color-scheme:dark){\n", dark, "}\n</style>\n");
}

std::string Text(double x, double y, const char* anchor, absl::string_view attributes,
                 absl::string_view text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y,
                         anchor, attributes, text);
}

constexpr char kSoft[] = " class=\"soft\"";

// Seconds in the unit of the axis, and its title.
std::pair<double, std::string> Unit(LossAxis axis, double high) {
  if (axis == LossAxis::kStep) return {1, "step"};
  if (axis == LossAxis::kTokens) return {1, "tokens trained on"};
  if (high < 180) return {1, "train time, s"};
  return high < 3 * 3600 ? std::pair(60.0, "train time, min") : std::pair(3600.0, "train time, h");
}

std::string Axes(const Extent& extent, LossAxis axis) {
  std::string grid, texts;
  double last = HUGE_VAL;
  for (const double tick : Ticks(extent.y_low, extent.y_high, 14)) {
    const double y = extent.Y(tick);
    if (last - y < 24) continue;  // they crowd at the upper end
    last = y;
    absl::StrAppendFormat(&grid, "M%.1f %.1fH%.1f", kLeft, y, kRight);
    absl::StrAppend(&texts, Text(kLeft - 7, y + 4, "end", kSoft, TickText(tick)));
  }
  const auto [divisor, title] = Unit(axis, extent.x_high);
  for (const double tick : Ticks(extent.x_low / divisor, extent.x_high / divisor, 8)) {
    const double x = extent.X(tick * divisor);
    absl::StrAppendFormat(&grid, "M%.1f %.1fV%.1f", x, kTop, kBottom);
    absl::StrAppend(&texts, Text(x, kBottom + 16, "middle", kSoft, TickText(tick)));
  }
  return absl::StrCat(
      "<path class=\"grid\" d=\"", grid, "\"/>\n",
      absl::StrFormat("<rect class=\"frame\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/>\n",
                      kLeft, kTop, kRight - kLeft, kBottom - kTop),
      texts, Text(kRight, kHeight - 10, "end", kSoft, title));
}

std::string PathOf(const Extent& extent, const Line& line) {
  std::string path;
  bool open = false;
  for (const Point& point : line) {
    if (Drawable(point)) {
      absl::StrAppendFormat(&path, "%c%.1f %.1f", open ? 'L' : 'M', extent.X(point.x),
                            extent.Y(point.loss));
    }
    open = Drawable(point);
  }
  return path;
}

std::string DotsOf(const Extent& extent, const Line& line) {
  std::string path;
  for (const Point& point : line) {
    if (!Drawable(point)) continue;
    absl::StrAppendFormat(&path, "M%.1f %.1fh0", extent.X(point.x), extent.Y(point.loss));
  }
  return path;
}

std::string Curves(const Extent& extent, const std::vector<Bundle>& bundles) {
  std::string svg;
  const auto add = [&](const char* kind, size_t colour, const std::string& path) {
    absl::StrAppend(&svg, "<path class=\"", kind, " c", colour % kColours, "\" d=\"", path,
                    "\"/>\n");
  };
  for (size_t i = 0; i < bundles.size(); ++i) {
    for (const Line& line : bundles[i].thin) add("thin", i, PathOf(extent, line));
  }
  for (size_t i = 0; i < bundles.size(); ++i) {
    if (bundles[i].bold.empty()) continue;
    add("bold", i, PathOf(extent, bundles[i].bold));
    add("dots", i, DotsOf(extent, bundles[i].bold));
  }
  return svg;
}

// In the upper right corner, which falling losses leave free.
std::string Legend(const std::vector<Bundle>& bundles) {
  std::string svg;
  double y = kTop + 20;
  for (size_t i = 0; i < bundles.size(); ++i, y += 18) {
    if (i + 1 == kMostNamed && bundles.size() > kMostNamed) {
      return absl::StrCat(
          svg, Text(kRight - 44, y, "end", "", absl::StrCat("and ", bundles.size() - i, " more")));
    }
    absl::StrAppendFormat(&svg, "<path class=\"bold c%d\" d=\"M%.1f %.1fh24\"/>\n", i % kColours,
                          kRight - 36, y - 4);
    absl::StrAppend(&svg, Text(kRight - 44, y, "end", "", XmlText(bundles[i].name)));
  }
  return svg;
}

}  // namespace

const char* Name(LossAxis axis) {
  switch (axis) {
    case LossAxis::kStep:
      return "step";
    case LossAxis::kTokens:
      return "tokens";
    case LossAxis::kTime:
      return "time";
  }
  CHECK(false) << "no such axis";
}

LossSvg DrawLosses(const std::vector<TrainingRun>& runs, LossAxis axis) {
  LossSvg drawn;
  const std::vector<Bundle> bundles = BundlesOf(runs, axis, &drawn.lacking);
  if (bundles.empty()) return drawn;
  Extent extent;
  bool has_mean = false;
  for (const Bundle& bundle : bundles) {
    for (const Line& line : bundle.thin) extent.Add(line);
    extent.Add(bundle.bold);
    has_mean = has_mean || (!bundle.thin.empty() && !bundle.bold.empty());
  }
  extent.Widen();
  const std::string title = absl::StrCat("Validation loss against ", Name(axis));
  drawn.svg = absl::StrCat(
      absl::StrFormat(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" "
          "height=\"%g\" role=\"img\" aria-label=\"%s\">\n",
          kWidth, kHeight, kWidth, kHeight, title),
      "<title>", title, "</title>\n", Style(bundles.size()),
      "<rect class=\"card\" width=\"100%\" height=\"100%\"/>\n",
      Text(kLeft, 20, "start", " font-weight=\"600\"", "Validation loss, nats a token"),
      Text(kRight, 20, "end", kSoft,
           has_mean ? "bold: mean of the group; thin: each run" : "each dot a validation"),
      Axes(extent, axis), Curves(extent, bundles), Legend(bundles), "</svg>\n");
  return drawn;
}

}  // namespace tools
