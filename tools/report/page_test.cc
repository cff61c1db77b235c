#include "tools/report/page.h"

#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/report/page_data.h"

namespace tools {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

TrainingRun ARun(const std::string& name, int64_t steps) {
  TrainingRun run;
  run.name = name;
  run.paths = {name};
  for (int64_t step = 1; step <= steps; ++step) {
    StepRow row;
    row.step = step;
    row.loss = 4 + std::sin(static_cast<double>(step));
    row.step_ms = 50;
    row.tokens = 100.0 * static_cast<double>(step);
    run.steps.push_back(row);
  }
  run.validations = {{0, 10, 0.0, {}}, {steps, 3, 50.0 * static_cast<double>(steps), {}}};
  Complete(&run);
  return run;
}

TraceFile ATrace(const std::string& name) {
  TraceFile trace;
  trace.name = name;
  RankTimeline rank;
  rank.span = {0, 10};
  rank.ops = {{"gemm", {0, 6}, 3}};
  rank.op_ms = {{"gemm", 6}};
  rank.host = {{"forward", {0, 6}}};
  rank.collectives = {{"all_gather", name, 1000, {5, 9}, 3, {{"gemm", 1}}}};
  StepTimeline& step = trace.steps.emplace_back();
  step.step = 1;
  step.ranks = {rank};
  return trace;
}

Inputs SomeInputs(const std::string& name) {
  Inputs inputs;
  inputs.runs = {ARun(name, 4), ARun("long", 6450)};
  inputs.runs[0].group = name;
  inputs.traces = {ATrace(name)};
  inputs.notes = {name};
  return inputs;
}

// The text between the tag that begins with `begin` and the next `end`.
std::string Between(const std::string& page, const std::string& begin, const std::string& end) {
  const size_t tag = page.find(begin);
  if (tag == std::string::npos) return "";
  const size_t start = page.find('>', tag) + 1;
  return page.substr(start, page.find(end, start) - start);
}

TEST(PageData, HasTheRuns) {
  Inputs inputs = SomeInputs("a");
  inputs.runs[0].steps[1].loss = std::nan("");
  const Json data = Json::parse(PageData(inputs, 3.28));
  EXPECT_EQ(data["target"], 3.28);
  ASSERT_EQ(data["runs"].size(), 2);
  const Json& train = data["runs"][0]["train"];
  EXPECT_EQ(train["step"], Json({1, 2, 3, 4}));
  EXPECT_EQ(train["loss"][1], "nan");
  EXPECT_NEAR(train["loss"][0], 4 + std::sin(1.0), 1e-6);
  EXPECT_EQ(train["time"][3], 0.2);
  EXPECT_EQ(train["tokens"][3], 400);
  EXPECT_EQ(train["rate"][3], 2000);
  EXPECT_FALSE(train.contains("lr"));  // nothing is known of it
  EXPECT_EQ(data["runs"][0]["val"]["loss"], Json({10, 3}));
  EXPECT_EQ(data["runs"][1]["rows"], 6450);
  EXPECT_LE(data["runs"][1]["drawn"], 2010);
  EXPECT_EQ(data["runs"][1]["train"]["step"].size(), data["runs"][1]["drawn"]);
  const Json& trace = data["traces"][0];
  EXPECT_EQ(trace["phases"][0]["ops"]["gemm"], 6);
  EXPECT_EQ(trace["phases"][0]["exposed"], 3);
  EXPECT_EQ(trace["phases"][0]["idle"], 1);
  EXPECT_EQ(trace["steps"][0]["ranks"][0]["collectives"][0][6]["gemm"], 1);
}

TEST(Page, IsWhole) {
  const std::string page = Page(SomeInputs("a"), {"My title", 3.28});
  EXPECT_TRUE(absl::StartsWith(page, "<!DOCTYPE html>\n<html lang=\"en\">"));
  EXPECT_TRUE(absl::EndsWith(page, "</html>\n"));
  EXPECT_EQ(Between(page, "<title", "</title>"), "My title");
  EXPECT_THAT(page, HasSubstr("6,450"));
  EXPECT_THAT(page, HasSubstr("Runs of more than 2000 steps are drawn with fewer points"));
  EXPECT_TRUE(Json::accept(Between(page, "<script type=\"application/json\"", "</script>")));
  // An id twice would mislead labels.
  std::set<std::string> ids;
  for (size_t at = 0; (at = page.find(" id=\"", at)) != std::string::npos;) {
    at += 5;
    EXPECT_TRUE(ids.insert(page.substr(at, page.find('"', at) - at)).second) << page.substr(at, 20);
  }
}

TEST(Page, NeedsNothingElse) {
  const std::string page = Page(SomeInputs("a"), {});
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* link :
       {"src=", "@import", "fetch(", "XMLHttpRequest", "url(http", "href=\"http"}) {
    EXPECT_THAT(page, Not(HasSubstr(link)));
  }
}

// Whatever a run, group, collective or title is called, it stays text.
TEST(Page, NamesStayText) {
  for (const std::string name : {"<script>alert(1)</script>", "</script><b>", "\"><img src=x>",
                                 "<!--", "a'b\"c&lt;", "\xff\xfe", "]]>"}) {
    const std::string page = Page(SomeInputs(name), {name, 3.28});
    size_t scripts = 0;
    for (size_t at = 0; (at = page.find("<script", at)) != std::string::npos; ++at) ++scripts;
    EXPECT_EQ(scripts, 2) << name;
    for (const char* markup : {"<b>", "<img", "alert(1)</script>", "<!--"}) {
      EXPECT_THAT(page, Not(HasSubstr(markup))) << name;
    }
    const std::string data = Between(page, "<script type=\"application/json\"", "</script>");
    ASSERT_TRUE(Json::accept(data)) << name;
    if (name[0] == '\xff') continue;  // replaced, since JSON is UTF-8
    EXPECT_EQ(Json::parse(data)["runs"][0]["name"], name);
  }
}

TEST(InputNotes, NameWhatTheyAreAbout) {
  Inputs inputs = SomeInputs("a");
  inputs.runs[1].notes = {"ends at step 2 of 9"};
  EXPECT_THAT(InputNotes(inputs), testing::ElementsAre("long: ends at step 2 of 9", "a"));
  EXPECT_THAT(Page(inputs, {}), HasSubstr("<li>long: ends at step 2 of 9</li>"));
}

}  // namespace
}  // namespace tools
