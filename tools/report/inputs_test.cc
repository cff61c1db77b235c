#include "tools/report/inputs.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tools {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// A folder of its own for each test.
class InputsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(testing::TempDir(), "/",
                           testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(folder_, "/", name);
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
    return path;
  }
  std::string WriteLog(const std::string& name, double loss = 3.25) {
    return Write(name, absl::StrCat("step:1/2 train_time:10ms\nstep:2/2 train_time:25ms\n"
                                    "step:2/2 val_loss:",
                                    loss, " train_time:26ms step_avg:13.00ms\n"));
  }
  std::string WriteMetrics(const std::string& name, double loss = 3.25) {
    return Write(name, absl::StrCat("{\"step\":1,\"loss\":5,\"step_ms\":11,\"tokens\":100}\n"
                                    "{\"step\":2,\"loss\":4,\"step_ms\":15,\"tokens\":200}\n"
                                    "{\"step\":2,\"val_loss\":",
                                    loss, ",\"train_ms\":26}\n"));
  }

  Inputs Read(const std::vector<std::string>& arguments, const std::string& group = "") {
    const absl::StatusOr<Inputs> inputs = ReadInputs(arguments, {}, group);
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    return inputs.ok() ? *inputs : Inputs();
  }
  std::string Refusal(const std::vector<std::string>& arguments) {
    const absl::Status status = ReadInputs(arguments, {}, "").status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  std::string folder_;
};

std::vector<std::string> NamesOf(const Inputs& inputs) {
  std::vector<std::string> names;
  for (const TrainingRun& run : inputs.runs) {
    names.push_back(run.group.empty() ? run.name : absl::StrCat(run.group, ":", run.name));
  }
  return names;
}

TEST_F(InputsTest, LogAndMetricsAreOneRun) {
  const std::string log = WriteLog("run.log");
  const std::string metrics = WriteMetrics("run.jsonl", 3.25004);
  for (const auto& arguments :
       {std::vector<std::string>{log, metrics}, {metrics, log}, {folder_}}) {
    const Inputs inputs = Read(arguments);
    ASSERT_EQ(inputs.runs.size(), 1);
    const tools::TrainingRun& run = inputs.runs[0];
    EXPECT_EQ(run.name, "run");
    EXPECT_EQ(run.planned_steps, 2);
    EXPECT_EQ(run.steps[1].loss, 4);
    EXPECT_EQ(run.steps[1].train_ms, 25);
    EXPECT_EQ(run.validations[0].loss, 3.25004);
    EXPECT_THAT(run.paths, ElementsAre(log, metrics));
  }
}

TEST_F(InputsTest, HalvesThatContradict) {
  EXPECT_THAT(Refusal({WriteLog("run.log", 3.25), WriteMetrics("run.jsonl", 3.2502)}),
              HasSubstr("validation losses at step 2 are 3.25 and 3.2502"));
}

TEST_F(InputsTest, NamesAndGroups) {
  const std::string a = WriteLog("a/1.log", 3.25), b = WriteLog("a/2.log", 3.26),
                    c = WriteLog("b/1.log", 3.27);
  EXPECT_THAT(NamesOf(Read({a, b})), ElementsAre("1", "2"));
  EXPECT_THAT(NamesOf(Read({a, c})), ElementsAre("a/1", "b/1"));
  EXPECT_THAT(NamesOf(Read({absl::StrCat("x=", a), c})), ElementsAre("x", "1"));
  EXPECT_THAT(NamesOf(Read({absl::StrCat("old:x=", a), absl::StrCat("new:", c)})),
              ElementsAre("old:x", "new:1"));
  EXPECT_THAT(NamesOf(Read({absl::StrCat("old:", folder_, "/a"), c}, "rest")),
              ElementsAre("old:a/1", "old:a/2", "rest:b/1"));
  EXPECT_THAT(NamesOf(Read({absl::StrCat(folder_, "/*/1.log")})), ElementsAre("a/1", "b/1"));
}

// A path is a path, whatever is in it.
TEST_F(InputsTest, MarksInPaths) {
  const std::string odd = WriteLog("lr=0.1:x/run.log");
  EXPECT_THAT(NamesOf(Read({odd})), ElementsAre("run"));
  fs::current_path(folder_);
  EXPECT_THAT(NamesOf(Read({"lr=0.1:x/run.log"})), ElementsAre("run"));
  EXPECT_THAT(NamesOf(Read({"lr=0.1:x/*.log"})), ElementsAre("run"));
  EXPECT_THAT(NamesOf(Read({"g:n=lr=0.1:x/run.log"})), ElementsAre("g:n"));
}

TEST_F(InputsTest, K2_20_APathThatExistsIsMeant) {
  WriteLog("muon:lr=0.035 wd=0.025-1.txt", 3.21);
  WriteLog("a,b.txt", 3.22);
  WriteLog("[x].txt", 3.23);
  fs::current_path(folder_);
  EXPECT_THAT(NamesOf(Read({"muon:lr=0.035 wd=0.025-1.txt", "a,b.txt", "[x].txt"})),
              ElementsAre("muon:lr=0.035 wd=0.025-1", "a,b", "[x]"));
  EXPECT_THAT(NamesOf(Read({"g:muon:lr=0.035 wd=0.025-1.txt", "g:n=a,b.txt", "m=[x].txt"})),
              ElementsAre("g:muon:lr=0.035 wd=0.025-1", "g:n", "m"));
  // One name, and not "t" and "1.json".
  Write("t,1.json", "{\"traceEvents\":[]}");
  EXPECT_THAT(std::string(ReadInputs({}, {"t,1.json"}, "").status().message()),
              HasSubstr("t,1.json: no traced step"));
}

TEST_F(InputsTest, K2_19_TrialsAreNamedByNumber) {
  const std::string one = "step:0/2 val_loss:10.8 train_time:0.000s\nstep:2/2 val_loss:3.2";
  Write("trials.txt", absl::StrCat(one, "1 train_time:1.5s\n", one, "2 train_time:1.6s\n"));
  EXPECT_THAT(NamesOf(Read({folder_ + "/trials.txt"})), ElementsAre("trials#1", "trials#2"));
  EXPECT_THAT(NamesOf(Read({absl::StrCat("g:n=", folder_, "/trials.txt")})),
              ElementsAre("g:n#1", "g:n#2"));
}

TEST_F(InputsTest, K2_21_CopiesAreRefusedAndLinksCountOnce) {
  const std::string log = WriteLog("run.log");
  fs::create_symlink("run.log", folder_ + "/latest.log");
  const Inputs linked = Read({log, folder_ + "/latest.log"});
  EXPECT_EQ(linked.runs.size(), 1);
  ASSERT_EQ(linked.notes.size(), 1);
  EXPECT_THAT(linked.notes[0], HasSubstr("latest.log is a link to"));
  WriteLog("copy.log");
  EXPECT_THAT(Refusal({folder_}), HasSubstr("are copies of one run"));
}

TEST_F(InputsTest, FoldersTellWhatTheyLeaveOut) {
  WriteLog("run.txt");
  Write("README.md", "text");
  const Inputs inputs = Read({folder_});
  EXPECT_EQ(inputs.runs.size(), 1);
  ASSERT_EQ(inputs.notes.size(), 1);
  EXPECT_THAT(inputs.notes[0], HasSubstr("not read, for their names: "));
  EXPECT_THAT(inputs.notes[0], HasSubstr("README.md"));
}

TEST_F(InputsTest, Refusals) {
  const std::string log = WriteLog("run.log");
  EXPECT_THAT(Refusal({}), HasSubstr("nothing to report"));
  EXPECT_THAT(Refusal({log, log}), HasSubstr("given twice"));
  EXPECT_THAT(Refusal({log, folder_}), HasSubstr("given twice"));
  EXPECT_THAT(Refusal({absl::StrCat(folder_, "/none.log")}), HasSubstr("none.log\": no such file"));
  EXPECT_THAT(Refusal({absl::StrCat("a=", folder_, "/none.log")}),
              HasSubstr("none.log\": no such file"));
  EXPECT_THAT(Refusal({absl::StrCat("x=", log), absl::StrCat("x=", WriteLog("other.log", 3.5))}),
              HasSubstr("both called x"));
  EXPECT_THAT(Refusal({Write("empty.log", "")}), HasSubstr("empty.log: the file is empty"));
  EXPECT_THAT(Refusal({Write("prose.txt", "Dear reader\n")}),
              HasSubstr("prose.txt: neither a printed log"));
  fs::create_directories(absl::StrCat(folder_, "/hollow"));
  EXPECT_THAT(Refusal({absl::StrCat(folder_, "/hollow")}), HasSubstr("no file ending in"));
}

}  // namespace
}  // namespace tools
