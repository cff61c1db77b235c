// What holds for every op: its function hands all arguments on, a trace changes no bit of what it
// computes, and notes it once, under its name, with its cost.
#include "kernels/trace/all_ops.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/trace/tracing.h"

namespace kernels {
namespace {

const std::vector<OpCase>& EveryOp() {
  static const auto& cases = *new std::vector<OpCase>(AllOps());
  return cases;
}

// Contents of all tensors of a case.
using Contents = std::vector<std::string>;

Contents ContentsOf(const OpCase& c) {
  Contents contents;
  for (const Tensor tensor : c.tensors) {
    contents.emplace_back(static_cast<const char*>(tensor.data()), tensor.bytes());
  }
  return contents;
}

class AllOpsTest : public ::testing::TestWithParam<size_t> {
 protected:
  // What `call` makes of the tensors, which then are as before.
  Contents Run(const std::function<void(Queue&)>& call) {
    call(*queue_);
    Contents after = ContentsOf(case_);
    for (size_t i = 0; i < before_.size(); ++i) {
      std::memcpy(case_.tensors[i].get().data(), before_[i].data(), before_[i].size());
    }
    return after;
  }

  const OpCase& case_ = EveryOp()[GetParam()];
  const Contents before_ = ContentsOf(case_);
  const std::unique_ptr<Queue> queue_ = MakeCpuQueue(1);
};

TEST_P(AllOpsTest, HandsItsArgumentsOn) {
  const Contents want = Run(case_.backends);
  EXPECT_NE(want, before_) << "a case in which nothing happens shows nothing";
  EXPECT_EQ(Run(case_.call), want);
}

TEST_P(AllOpsTest, IsTheSameTracedAndNotedOnce) {
  const Contents want = Run(case_.call);
  OpTrace trace(*queue_);
  EXPECT_EQ(Run(case_.call), want);
  const std::vector<TracedOp> ops = trace.Take();
  ASSERT_EQ(ops.size(), 1u) << "kernels/ops: no TraceScope in " << case_.op;
  EXPECT_EQ(ops[0].name, case_.name);
  EXPECT_EQ(ops[0].cost.phase, case_.cost.phase);
  EXPECT_EQ(ops[0].cost.shape, case_.cost.shape);
  EXPECT_EQ(ops[0].cost.flops, case_.cost.flops);
  EXPECT_EQ(ops[0].cost.fp8, case_.cost.fp8);
  EXPECT_EQ(ops[0].cost.bytes, case_.cost.bytes);
  EXPECT_GT(ops[0].cost.bytes, 0);
  EXPECT_FALSE(ops[0].cost.shape.empty());
}

INSTANTIATE_TEST_SUITE_P(Ops, AllOpsTest, ::testing::Range<size_t>(0, EveryOp().size()),
                         [](const auto& info) { return EveryOp()[info.param].name; });

// The names that `pattern` finds in the headers of kernels/ops.
std::set<std::string> Declared(const char* pattern) {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator("kernels/ops")) {
    if (file.path().extension() != ".h") continue;
    std::ostringstream text;
    text << std::ifstream(file.path()).rdbuf();
    const std::string header = text.str();
    const std::regex regex(pattern);
    for (std::sregex_iterator found(header.begin(), header.end(), regex), end; found != end;
         ++found) {
      names.insert((*found)[1]);
    }
  }
  return names;
}

TEST(AllOps, EachHasACaseHere) {
  std::set<std::string> cases;
  for (const OpCase& c : EveryOp()) cases.insert(c.op);
  EXPECT_GE(cases.size(), 49u);
  EXPECT_EQ(Declared("\nvoid (\\w+)\\([^;{}]*Queue& queue\\);"), cases);
  EXPECT_EQ(Declared("\n  virtual void (\\w+)\\([^;{}]*Queue& queue\\) const"), cases);
}

}  // namespace
}  // namespace kernels
