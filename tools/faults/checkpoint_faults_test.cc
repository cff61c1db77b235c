// Every call that saving a checkpoint makes on files, with every fault that can happen to it.
#include <cstdio>
#include <filesystem>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/checkpoint/checkpoint.h"
#include "tools/faults/example_checkpoint.h"
#include "tools/faults/faulty_save.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

FaultPrograms programs;  // set by main()

struct Scenario {
  const char* name;
  std::vector<int64_t> existing;
  bool leftovers;  // of an earlier kill
  int64_t step;
  int keep;
  std::set<int64_t> expected;  // after a save without faults
};

const Scenario kScenarios[] = {
    {"First", {}, false, 30, 1, {30}},
    {"DeletesTheOldest", {10, 20}, true, 30, 2, {20, 30}},
    {"ReplacesTheOnlyOne", {20}, false, 20, 1, {20}},
};

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

std::string StepName(const std::string& prefix, int64_t step) {
  char number[24];
  std::snprintf(number, sizeof(number), "%08d", static_cast<int>(step));
  return prefix + number;
}

// One save, its fault, and what has to hold after it.
class Faults : public testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    // Folders of one case do not meet those of another that runs beside it.
    const std::string base = testing::TempDir() + "/" + GetParam().name;
    before_ = base + "_before";
    root_ = base + "/run/checkpoints";
    fs::remove_all(base);
    fs::remove_all(before_);
    for (const int64_t step : GetParam().existing) {
      std::string warning;
      ASSERT_TRUE(SaveCheckpoint(before_, ExampleCheckpoint(step), 9, &warning).ok());
    }
    if (GetParam().leftovers) {
      for (const char* leftover : {"/.tmp-step-00000025", "/.old-step-00000020"}) {
        fs::copy(before_ + "/step-00000020", before_ + leftover);
      }
    }
  }

  void StartAfresh() {
    const fs::path run = fs::path(root_).parent_path();
    fs::remove_all(run);
    fs::create_directories(run.parent_path());
    if (!fs::exists(before_)) return;
    fs::create_directories(run);
    fs::copy(before_, root_, fs::copy_options::recursive);
  }

  SaveResult Save(const std::string& fault, std::vector<FileCall>* calls = nullptr) {
    StartAfresh();
    return FaultySave(programs, root_, GetParam().step, GetParam().keep, fault, before_ + "_said",
                      calls);
  }

  // The steps under final names; each has to be whole and what was saved.
  std::set<int64_t> WholeSteps() {
    std::set<int64_t> steps;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(root_, none)) {
      const std::string name = entry.path().filename().string();
      if (name[0] == '.') continue;
      const absl::StatusOr<Checkpoint> loaded = LoadCheckpoint(entry.path().string());
      EXPECT_TRUE(loaded.ok()) << "incomplete: " << loaded.status();
      if (!loaded.ok()) continue;
      EXPECT_TRUE(SameCheckpoint(*loaded, ExampleCheckpoint(loaded->step))) << name;
      steps.insert(loaded->step);
    }
    return steps;
  }

  // Whether the new checkpoint is there; else the latest of before has to be.
  bool NewIsThere() {
    const int64_t step = GetParam().step;
    const std::set<int64_t> steps = WholeSteps();
    const absl::StatusOr<Checkpoint> latest = LoadLatestCheckpoint(root_);
    if (GetParam().existing.empty() && !latest.ok()) {
      EXPECT_EQ(latest.status().code(), absl::StatusCode::kNotFound) << latest.status();
      return false;
    }
    EXPECT_TRUE(latest.ok()) << latest.status();
    if (!latest.ok()) return false;
    EXPECT_TRUE(SameCheckpoint(*latest, ExampleCheckpoint(latest->step)));
    if (steps.count(step) > 0) {
      EXPECT_EQ(latest->step, step);
      return true;
    }
    EXPECT_EQ(latest->step, GetParam().existing.back()) << "the last good one is gone";
    return latest->step == step;  // its predecessor of the same step, under its other name
  }

  // Once the fault is gone: another save works, and leaves nothing but checkpoints.
  void SaveAgain() {
    std::string warning;
    const int64_t next = GetParam().step + 1;
    const absl::Status saved = SaveCheckpoint(root_, ExampleCheckpoint(next), 1, &warning);
    EXPECT_TRUE(saved.ok()) << saved;
    EXPECT_EQ(warning, "");
    EXPECT_EQ(WholeSteps(), std::set<int64_t>{next});
    const auto entries = std::distance(fs::directory_iterator(root_), fs::directory_iterator());
    EXPECT_EQ(entries, 1) << "something is left behind";
  }

  void ExpectTheTruth(const std::string& kind, const SaveResult& result) {
    static const std::map<std::string, std::string> kWords = {{"EACCES", "Permission denied"},
                                                              {"EIO", "Input/output error"},
                                                              {"EMFILE", "Too many open files"},
                                                              {"ENOSPC", "No space left on device"},
                                                              {"EROFS", "Read-only file system"}};
    const bool saved = NewIsThere();
    if (kind.rfind("kill", 0) == 0) {
      EXPECT_EQ(result.code, 128 + 9);
    } else if (kind == "short" || kind == "EINTR") {
      EXPECT_EQ(result.code, 0) << result.error;
      EXPECT_EQ(result.warning, "");
    } else if (result.code != 0) {
      EXPECT_EQ(result.code, 2);
      EXPECT_NE(result.error.find(root_.substr(0, root_.rfind('/'))), std::string::npos)
          << "no path in: " << result.error;
      EXPECT_NE(result.error.find(kWords.at(kind)), std::string::npos)
          << "no cause in: " << result.error;
    } else if (!result.warning.empty()) {
      EXPECT_NE(result.warning.find(kWords.at(kind)), std::string::npos) << result.warning;
    }
    if (result.code == 0) {
      EXPECT_TRUE(saved) << "code 0, and nothing was saved";
    }
  }

  std::string before_;
  std::string root_;
};

TEST_P(Faults, X2_NothingIsLostInAnyCall) {
  std::vector<FileCall> calls;
  const SaveResult clean = Save("", &calls);
  ASSERT_EQ(clean.code, 0) << clean.error;
  ASSERT_GT(calls.size(), 40u);
  EXPECT_EQ(WholeSteps(), GetParam().expected);
  // Which call it was that made the new checkpoint visible.
  size_t published = 0;
  for (const FileCall& call : calls) {
    if (call.to == StepName(root_ + "/step-", GetParam().step)) published = call.number;
  }
  ASSERT_GT(published, 0u);

  std::map<std::string, std::pair<int, int>> tried;  // by kind: times, of which ended with 0
  for (const FileCall& call : calls) {
    for (const std::string& kind : FaultsOf(call)) {
      SCOPED_TRACE(std::to_string(call.number) + " " + call.name + " " + call.path + ": " + kind);
      const SaveResult result = Save(std::to_string(call.number) + ":" + kind);
      ExpectTheTruth(kind, result);
      // Not saved, or the folder's sync says it may not be.
      if (result.code == 2 && call.number > static_cast<int>(published)) {
        EXPECT_NE(result.error.find("the folder"), std::string::npos) << result.error;
      }
      const bool error = kind[0] == 'E' && kind != "EINTR";
      if (error && call.name.rfind("unlink", 0) == 0) {
        EXPECT_TRUE(result.code == 2 || !result.warning.empty()) << "kept in silence";
      }
      SaveAgain();
      ++tried[kind].first;
      tried[kind].second += result.code == 0 ? 1 : 0;
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
  }
  for (const auto& [kind, times] : tried) {
    std::printf("%s: %-11s in %3d calls, of which %3d saved all the same\n", GetParam().name,
                kind.c_str(), times.first, times.second);
  }
  std::printf("%s: %zu calls\n", GetParam().name, calls.size());
}

// A full disk stays full, and a read-only one read-only.
TEST_P(Faults, X2_NothingIsLostWhenAllLaterCallsFailToo) {
  std::vector<FileCall> calls;
  ASSERT_EQ(Save("", &calls).code, 0);
  ASSERT_GT(calls.size(), 40u);
  for (const FileCall& call : calls) {
    for (const char* kind : {"ENOSPC", "EROFS", "EMFILE", "EIO"}) {
      SCOPED_TRACE(std::to_string(call.number) + "+ " + call.name + " " + call.path + ": " + kind);
      const SaveResult result = Save(std::to_string(call.number) + "+:" + kind);
      ExpectTheTruth(kind, result);
      SaveAgain();
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
  }
}

// Kills cannot show what a power cut does, for the kernel still has all that was written. The order
// of the calls can: a name is given away only after its content is on the disk.
TEST_P(Faults, TheOrderOutlivesAPowerCut) {
  std::vector<FileCall> calls;
  ASSERT_EQ(Save("", &calls).code, 0);
  ASSERT_GT(calls.size(), 40u);
  const std::string path = StepName(root_ + "/step-", GetParam().step);
  const std::string temporary = StepName(root_ + "/.tmp-step-", GetParam().step);
  std::set<std::string> unsynced;  // files with bytes, folders with names that are not on the disk
  bool published = false, durable = false;
  int files = 0;
  for (const FileCall& call : calls) {
    SCOPED_TRACE(std::to_string(call.number) + " " + call.name + " " + call.path);
    const std::string parent = fs::path(call.path).parent_path().string();
    if (call.name == "write" || call.name == "create") unsynced.insert(call.path);
    if (call.name == "create" || call.name == "mkdir" || call.name == "rename") {
      unsynced.insert(parent);
    }
    if (call.name == "fsync") unsynced.erase(call.path);
    if (call.name == "rename" && parent == temporary) {
      EXPECT_EQ(unsynced.count(call.path), 0u) << "its bytes may be lost";
      ++files;
    }
    if (call.to == path && call.path == temporary) {
      EXPECT_EQ(unsynced.count(temporary), 0u) << "the names in it may be lost";
      EXPECT_EQ(files, 4);
      published = true;
    }
    if (published && call.name == "fsync" && call.path == root_) durable = true;
    // What is deleted was old, and the new one is there. Leftovers go at any time.
    const bool deletes = call.name.rfind("unlink", 0) == 0 || call.name == "rename";
    for (const int64_t step : GetParam().existing) {
      const std::string old = StepName(root_ + "/step-", step);
      if (!deletes || call.path.rfind(old, 0) != 0) continue;
      const bool steps_aside = call.to == StepName(root_ + "/.old-step-", step);
      EXPECT_TRUE(durable || steps_aside);
      EXPECT_EQ(call.name, "rename") << "half a checkpoint under a final name";
    }
  }
  EXPECT_TRUE(durable);
}

INSTANTIATE_TEST_SUITE_P(All, Faults, testing::ValuesIn(kScenarios),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) return 1;
  tools::programs = {std::filesystem::absolute(argv[1]), std::filesystem::absolute(argv[2])};
  return RUN_ALL_TESTS();
}
