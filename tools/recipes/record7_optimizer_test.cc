// Facts of track 2's record of 2025-04-16 about owners and collectives.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/grouping.h"
#include "optim/step_layout.h"
#include "tools/recipes/recipe.h"

namespace tools {
namespace {

using optim::GradientWire;
using optim::Group;
using optim::OwnerOfMember;
using optim::PlanCollectives;
using optim::PlannedCollective;
using optim::PlanStep;
using optim::StepLayout;

Recipe Record() { return FindRecipe("record7", "full", 50304).value(); }
std::vector<kernels::ParameterSpec> Specs() { return model::ParameterSpecs(Record().model); }

StepLayout Layout() {
  const auto layout = PlanStep(Record().optimizer, Specs());
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *layout;
}

// What each rank owns, in the order of the groups.
std::vector<std::vector<std::string>> Owned(const StepLayout& layout) {
  const std::vector<kernels::ParameterSpec> specs = Specs();
  std::vector<std::vector<std::string>> owned(8);
  for (const Group& group : layout.groups) {
    const int64_t n = std::ssize(group.members);
    for (int64_t i = 0; i < n; ++i) {
      owned[OwnerOfMember(i, n, 8)].push_back(specs[group.members[i]].name);
    }
  }
  return owned;
}

TEST(Record7Optimizer, T2_36_Ownership) {
  const StepLayout layout = Layout();
  ASSERT_EQ(layout.groups.size(), 6u);
  const char* names[] = {"fc", "fc 2", "proj", "proj 2", "attn", "attn 2"};
  for (int g = 0; g < 6; ++g) {
    EXPECT_EQ(layout.groups[g].name, names[g]);
    EXPECT_EQ(layout.groups[g].members.size(), g < 5 ? 8u : 7u);
    EXPECT_EQ(layout.muon[g].member_size, 4'194'304);
    EXPECT_EQ(layout.muon[g].unit, 4'194'304);
    EXPECT_EQ(layout.muon[g].Padded(8) * 2, 8 * 8'388'608);  // bytes of bf16
  }
  const std::vector<std::vector<std::string>> owned = Owned(layout);
  for (int r = 0; r < 8; ++r) {
    std::vector<std::string> want;
    for (const char* matrix : {"fc_w", "proj_w"}) {
      want.push_back(absl::StrCat("blocks.", r, ".mlp.", matrix));
      want.push_back(absl::StrCat("blocks.", r + 8, ".mlp.", matrix));
    }
    want.push_back(absl::StrCat("blocks.", r < 7 ? r : 8, ".attn.qkvo_w"));
    if (r < 7) want.push_back(absl::StrCat("blocks.", r + 9, ".attn.qkvo_w"));
    EXPECT_EQ(owned[r], want) << "rank " << r;
  }
}

// Adam's parameters first; then all reductions, group after group, then each group's gather.
TEST(Record7Optimizer, T2_36_Collectives) {
  const std::vector<PlannedCollective> planned =
      PlanCollectives(Layout(), 8, GradientWire::kWeightDType);
  std::vector<std::string> calls;
  int64_t gathered = 0;
  for (const PlannedCollective& call : planned) {
    calls.push_back(absl::StrCat(call.op, " ", call.label));
    if (call.op == "all_gather") gathered += call.bytes;
  }
  EXPECT_EQ(calls,
            (std::vector<std::string>{
                "all_reduce lm_head_w", "all_reduce embed.weight",
                "all_reduce value_embeds.0.weight", "all_reduce value_embeds.1.weight",
                "all_reduce value_embeds.2.weight", "all_reduce scalars", "reduce_scatter fc",
                "reduce_scatter fc 2", "reduce_scatter proj", "reduce_scatter proj 2",
                "reduce_scatter attn", "reduce_scatter attn 2", "all_gather fc", "all_gather fc 2",
                "all_gather proj", "all_gather proj 2", "all_gather attn", "all_gather attn 2"}));
  EXPECT_EQ(gathered, 402'653'184);  // 48 slots, one of them padding
}

}  // namespace
}  // namespace tools
