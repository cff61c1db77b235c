// Grouping::kRoundRobin with matrices of three labels, all of one size.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/test_ranks.h"
#include "comm/tracing.h"
#include "gtest/gtest.h"
#include "optim/grouping.h"
#include "optim/step_layout.h"
#include "optim/toy.h"

namespace optim {
namespace {

using kernels::DType;
using kernels::ParameterSpec;

// 47 matrices, all with 4 dim^2 elements: of layer 7 two, of the other 15 layers three.
std::vector<ParameterSpec> ToyMatrices(int64_t dim, int64_t vocab) {
  std::vector<ParameterSpec> specs = {
      {"embed.weight", "embed", {vocab, dim}, DType::kBF16, 1, vocab, dim},
      {"lm_head_w", "lm_head", {vocab, dim}, DType::kF32, 1, vocab, dim},
      {"scalars", "scalars", {80}, DType::kF32, 1, 1, 80}};
  for (int i = 0; i < 16; ++i) {
    const std::string block = absl::StrCat("blocks.", i);
    if (i != 7) {
      specs.push_back({block + ".attn.qkvo_w", "attn", {4, dim, dim}, DType::kBF16, 4, dim, dim});
    }
    specs.push_back({block + ".mlp.fc_w", "fc", {4 * dim, dim}, DType::kBF16, 1, 4 * dim, dim});
    specs.push_back({block + ".mlp.proj_w", "proj", {dim, 4 * dim}, DType::kBF16, 1, dim, 4 * dim});
  }
  return specs;
}

OptimizerConfig ToyTable(Grouping grouping, int grouping_ranks = 8) {
  OptimizerConfig config;
  for (const char* label : {"lm_head", "embed", "scalars"}) {
    config.table.push_back({.label = label,
                            .rule = Rule::kAdam,
                            .lr = 0.01,
                            .beta1 = 0.8,
                            .beta2 = 0.95,
                            .eps = 1e-10,
                            .comms = Comms::kReplicated});
  }
  for (const char* label : {"fc", "proj", "attn"}) {
    config.table.push_back({.label = label, .rule = Rule::kMuon, .lr = 0.025});
  }
  config.grouping = grouping;
  config.grouping_ranks = grouping_ranks;
  config.orthogonalizer = "newton_schulz_tuned";
  return config;
}

StepLayout LayoutOf(Grouping grouping, int ranks = 8) {
  const auto layout = PlanStep(ToyTable(grouping, ranks), ToyMatrices(1024, 50257));
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *layout;
}

// What each rank owns, in the order of the groups.
std::vector<std::vector<std::string>> Owned(const StepLayout& layout, int ranks) {
  const std::vector<ParameterSpec> specs = ToyMatrices(1024, 50257);
  std::vector<std::vector<std::string>> owned(ranks);
  for (const Group& group : layout.groups) {
    const int64_t n = std::ssize(group.members);
    for (int64_t i = 0; i < n; ++i) {
      owned[OwnerOfMember(i, n, ranks)].push_back(specs[group.members[i]].name);
    }
  }
  return owned;
}

// With any number of ranks: groups of as many, rank r owns number base + r, the last group is
// padded. Groups mix labels where the number does not divide 16.
TEST(RoundRobin, AnyNumberOfRanks) {
  std::vector<std::string> all;  // in the order of the table
  for (const auto& [part, count] : {std::pair{"mlp.fc_w", 16}, {"mlp.proj_w", 16}}) {
    for (int i = 0; i < count; ++i) all.push_back(absl::StrCat("blocks.", i, ".", part));
  }
  for (int i = 0; i < 16; ++i) {
    if (i != 7) all.push_back(absl::StrCat("blocks.", i, ".attn.qkvo_w"));
  }
  ASSERT_EQ(all.size(), 47u);
  for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 47, 64}) {
    const StepLayout layout = LayoutOf(Grouping::kRoundRobin, ranks);
    EXPECT_EQ(std::ssize(layout.groups), (47 + ranks - 1) / ranks) << ranks;
    int64_t padding = 0;
    for (const Group& group : layout.groups) {
      padding += PaddingMembers(std::ssize(group.members), ranks);
      EXPECT_TRUE(MixedRanks(group, ToyMatrices(1024, 50257), ranks).empty()) << ranks;
    }
    EXPECT_EQ(padding, std::ssize(layout.groups) * ranks - 47) << ranks;
    const std::vector<std::vector<std::string>> owned = Owned(layout, ranks);
    for (int r = 0; r < ranks; ++r) {
      std::vector<std::string> want;
      for (int i = r; i < 47; i += ranks) want.push_back(all[i]);
      EXPECT_EQ(owned[r], want) << "rank " << r << " of " << ranks;
    }
  }
}

// The other kinds have fewer, larger groups (32 and 15; 16, 16 and 15), of which a rank owns
// neighbours: rank 0 the layers 0 and 1.
TEST(RoundRobin, OtherKindsOwnNeighbours) {
  for (Grouping grouping : {Grouping::kCustomSizing, Grouping::kByShape, Grouping::kByLabel}) {
    const StepLayout layout = LayoutOf(grouping);
    EXPECT_EQ(layout.groups.size(), grouping == Grouping::kCustomSizing ? 2u : 3u)
        << Name(grouping);
    const std::vector<std::string> first = Owned(layout, 8)[0];
    EXPECT_EQ(first[0], "blocks.0.mlp.fc_w") << Name(grouping);
    EXPECT_EQ(first[1], "blocks.1.mlp.fc_w") << Name(grouping);
  }
}

// Members of one buffer have one size and dtype.
TEST(RoundRobin, NeverJoinsUnlikeNeighbours) {
  std::vector<ParameterSpec> specs;
  for (const auto& [dtype, rows] : {std::pair{DType::kBF16, 8},
                                    {DType::kBF16, 8},
                                    {DType::kBF16, 4},
                                    {DType::kBF16, 4},
                                    {DType::kF32, 4},
                                    {DType::kBF16, 4}}) {
    specs.push_back({absl::StrCat("w", specs.size()), "w", {rows, 8}, dtype, 1, rows, 8});
  }
  std::vector<std::vector<int>> members;
  for (const Group& group : PlanGroups(Grouping::kRoundRobin, specs, {0, 1, 2, 3, 4, 5}, 3)) {
    members.push_back(group.members);
  }
  EXPECT_EQ(members, (std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4}, {5}}));
}

// Beginnings and ends of the collectives of a real step.
class Listener : public comm::CollectiveListener {
 public:
  int64_t Began(absl::string_view name, absl::string_view label, int64_t,
                kernels::Queue&) override {
    names_.push_back(absl::StrCat(name, " ", label));
    events.push_back("launch " + names_.back());
    return std::ssize(names_) - 1;
  }
  void Ended(int64_t collective, kernels::Queue&) override {
    events.push_back("wait " + names_[collective]);
  }
  std::vector<std::string> events;

 private:
  std::vector<std::string> names_;
};

// A group's gather is launched before the next group's gradient is waited for, let alone its
// update: it travels while that one computes. All gathers are waited for at the end.
TEST(RoundRobin, GatherRunsBesideTheNextUpdate) {
  for (int ranks : {2, 3, 8}) {
    comm::RunRanks(ranks, [&](comm::Communicator& inner, kernels::Queue& queue) {
      Listener listener;
      const std::unique_ptr<comm::Communicator> comm = comm::MakeTracing(inner, listener);
      ToyRank rank(ToyTable(Grouping::kRoundRobin), ToyMatrices(4, 16), *comm, false);
      ASSERT_TRUE(rank.Train(0, 1, queue).ok());
      std::vector<std::string> want;
      const char* adam[] = {"lm_head_w", "embed.weight", "scalars"};
      for (const char* name : adam) want.push_back(absl::StrCat("launch all_reduce ", name));
      for (const char* name : adam) want.push_back(absl::StrCat("wait all_reduce ", name));
      const char* groups[] = {"fc", "fc 2", "proj", "proj 2", "attn", "attn 2"};
      for (const char* name : groups) want.push_back(absl::StrCat("launch reduce_scatter ", name));
      for (const char* name : groups) {
        want.push_back(absl::StrCat("wait reduce_scatter ", name));
        want.push_back(absl::StrCat("launch all_gather ", name));
      }
      for (const char* name : groups) want.push_back(absl::StrCat("wait all_gather ", name));
      EXPECT_EQ(listener.events, want) << ranks << " ranks";
    });
  }
}

std::vector<std::vector<double>> Trained(int ranks, const OptimizerConfig& config) {
  std::vector<std::vector<std::vector<double>>> weights(ranks);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRank rank(config, ToyMatrices(4, 16), comm, true);
    ASSERT_TRUE(rank.Train(0, 2, queue).ok());
    weights[comm.rank()] = rank.toy.Weights();
  });
  for (int rank = 1; rank < ranks; ++rank) EXPECT_EQ(weights[rank], weights[0]) << rank;
  return weights[0];
}

// Whatever the size of the groups and the number of ranks; 23 leaves a last group of one.
TEST(RoundRobin, ChangesNoBit) {
  const auto want = Trained(1, ToyTable(Grouping::kByLabel));
  for (const auto& [ranks, grouping_ranks] :
       {std::pair{1, 1}, {1, 8}, {2, 2}, {3, 8}, {5, 5}, {8, 8}, {4, 23}}) {
    EXPECT_EQ(Trained(ranks, ToyTable(Grouping::kRoundRobin, grouping_ranks)), want)
        << ranks << " ranks, groups of " << grouping_ranks;
  }
}

}  // namespace
}  // namespace optim
