// Banks and replicated parameters in the step of three phases: where they lie, what travels, and
// that the number of ranks does not show.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "comm/test_ranks.h"
#include "comm/tracing.h"
#include "gtest/gtest.h"
#include "kernels/ops/trace_scope.h"
#include "kernels/testing/bf16.h"
#include "kernels/testing/testing.h"
#include "optim/sharded_optimizer.h"
#include "optim/toy_banks.h"

namespace optim {
namespace {

using kernels::Tensor;
using kernels::testing::WithinBf16Steps;

// Counts the copies on a queue.
class CopyCounter : public kernels::OpListener {
 public:
  explicit CopyCounter(kernels::Queue& queue) : queue_(queue) { queue_.SetListener(this); }
  ~CopyCounter() override { queue_.SetListener(nullptr); }
  int copies() const { return copies_; }

  void Begin(const char* name, kernels::OpCost) override {
    copies_ += absl::string_view(name) == "Copy";
  }
  void End() override {}
  double AttentionPairs(const kernels::AttentionArgs&) const override { return 0; }

 private:
  kernels::Queue& queue_;
  int copies_ = 0;
};

// Of steps that are tied and of steps that are not, on the rank with most.
int CopiesOfSteps(int ranks, bool with_room) {
  std::vector<int> copies(ranks);
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyBanksRank rank(comm, false, 2, ToyBanksConfig(), with_room);
    rank.optimizer->set_recording(false);
    {
      const CopyCounter counting(queue);
      ASSERT_TRUE(rank.Train(0, 2, queue).ok());
      copies[comm.rank()] += counting.copies();
    }
    // Here, once in a run, the embedding gets moments of its own.
    ASSERT_TRUE(rank.Train(2, 3, queue).ok());
    const CopyCounter counting(queue);
    ASSERT_TRUE(rank.Train(3, 6, queue).ok());
    copies[comm.rank()] += counting.copies();
  });
  return *std::max_element(copies.begin(), copies.end());
}

TEST(Banks, NothingIsCopiedWhereThereIsRoom) {
  for (int ranks : {1, 2, 3, 4, 5, 8}) EXPECT_EQ(CopiesOfSteps(ranks, true), 0) << ranks;
  // Without room, padding needs a stage: copies are counted.
  EXPECT_GT(CopiesOfSteps(5, false), 0);
}

TEST(Banks, UO_02_UO_03_SameBitsForAnyNumberOfRanks) {
  const Weights one = TrainBanks(1, 6, 4, true);
  for (int ranks : {2, 3, 4, 5, 7, 8}) EXPECT_EQ(TrainBanks(ranks, 6, 4, true), one) << ranks;
  EXPECT_EQ(TrainBanks(5, 6, 4, true, ToyBanksConfig(), false), one) << "without room";
}

// Without fixed sums the gradients differ in the last bits of f32, now and then by one rounding to
// bf16: 2^-8 of an update of at most 3 lr, and one bf16 step of a weight.
TEST(Banks, NumbersOfRanksAgreeToRounding) {
  const Weights one = TrainBanks(1, 2, 2, false);
  for (int ranks : {2, 3, 4, 8}) {
    const Weights got = TrainBanks(ranks, 2, 2, false);
    for (size_t i = 0; i < one.size(); ++i) {
      for (size_t j = 0; j < one[i].size(); ++j) {
        EXPECT_TRUE(WithinBf16Steps(got[i][j], one[i][j], 1, 3e-3))
            << ranks << " ranks, parameter " << i << ", element " << j;
      }
    }
  }
}

// A slot of the bank without a layer has no gradient; it only decays, and its neighbours do not
// notice what is in it.
TEST(Banks, UO_38_SlotWithoutALayerDecays) {
  const std::vector<kernels::ParameterSpec> specs = ToyBanksSpecs();
  const int64_t live = 4 * specs[kToyMlp].rows * specs[kToyMlp].cols;
  const auto train = [&](int ranks, bool empty_slot) {
    Weights weights;
    comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
      ToyBanksRank rank(comm, true, 9);
      Weights start = rank.toy.Weights();
      if (empty_slot) std::fill(start[kToyMlp].begin() + live, start[kToyMlp].end(), 0.5);
      rank.toy.SetWeights(start);
      for (int step = 0; step < 3; ++step) {
        rank.optimizer->ClearGradients(queue);
        queue.Synchronize();
        rank.toy.AddGradients(rank.run, step);
        if (empty_slot) {
          const Tensor grad = rank.toy.parameters()[kToyMlp].grad;
          for (int64_t leaf = 0; leaf < grad.dim(0); ++leaf) {
            std::fill(grad.At(leaf).f32() + live, grad.At(leaf).f32() + grad.dim(1), 0.0f);
          }
        }
        StepRates rates = ToyRank::RatesAt(step);
        rates.tied = true;
        ASSERT_TRUE(rank.optimizer->Step(rates, {}, queue).ok());
        queue.Synchronize();
      }
      if (comm.rank() == 0) weights = rank.toy.Weights();
    });
    return weights;
  };
  const Weights with = train(3, true), without = train(1, false);
  double want[2] = {0.5, 0.5};  // c_fc, c_proj
  for (int step = 0; step < 3; ++step) {
    const double eta = ToyRank::RatesAt(step).lr_multiplier;
    for (int i : {0, 1}) want[i] -= want[i] * 0.0276 * eta * (i + 1) * 0.023 * std::sqrt(2) * eta;
  }
  for (int64_t j = live; j < specs[kToyMlp].size(); ++j) {
    // bf16 truncated: one ulp below 0.5.
    const double exact = want[(j - live) / (specs[kToyMlp].rows * specs[kToyMlp].cols)];
    EXPECT_LE(with[kToyMlp][j], exact);
    EXPECT_GE(with[kToyMlp][j], exact - std::ldexp(1.0, -9));
  }
  for (int64_t j = 0; j < live; ++j) EXPECT_EQ(with[kToyMlp][j], without[kToyMlp][j]);
}

// The collectives that are really called, step by step.
class Listener : public comm::CollectiveListener {
 public:
  struct Call {
    std::string name, label;
    int64_t bytes;
    friend bool operator==(const Call&, const Call&) = default;
  };
  int64_t Began(absl::string_view name, absl::string_view label, int64_t bytes,
                kernels::Queue&) override {
    calls.push_back({std::string(name), std::string(label), bytes});
    return 0;
  }
  void Ended(int64_t, kernels::Queue&) override {}
  std::vector<Call> calls;
};

TEST(Banks, UO_40_CollectivesOfEachKindOfStep) {
  using Counts = std::map<std::string, int>;
  const Counts even = {{"reduce_scatter", 2}, {"all_gather", 2}};
  const Counts want[] = {even,
                         {{"reduce_scatter", 6}, {"all_gather", 6}, {"all_reduce", 6}},
                         even,
                         {{"reduce_scatter", 7}, {"all_gather", 7}, {"all_reduce", 6}},
                         even};
  constexpr int kTied = 2;
  for (int ranks : {2, 3, 8}) {
    comm::RunRanks(ranks, [&](comm::Communicator& inner, kernels::Queue& queue) {
      Listener listener;
      const std::unique_ptr<comm::Communicator> comm = comm::MakeTracing(inner, listener);
      ToyBanksRank rank(*comm, false, kTied);
      const StepLayout& layout = rank.optimizer->layout();
      for (int step = 0; step < 5; ++step) {
        listener.calls.clear();
        ASSERT_TRUE(rank.Train(step, step + 1, queue).ok());
        // The two gathers of the head's moments, once in a run.
        if (step == kTied) {
          ASSERT_GE(listener.calls.size(), 2u);
          EXPECT_EQ(listener.calls[0].label, "adam.m/lm_head.weight");
          EXPECT_EQ(listener.calls[1].label, "adam.v/lm_head.weight");
          listener.calls.erase(listener.calls.begin(), listener.calls.begin() + 2);
        }
        Counts counts;
        for (const Listener::Call& call : listener.calls) ++counts[call.name];
        EXPECT_EQ(counts, want[step]) << "step " << step << ", " << ranks << " ranks";
        // And they are the planned ones, in order.
        const std::vector<PlannedCollective> planned = PlanCollectives(
            layout, KindOfStep(layout, step, step < kTied), ranks, GradientWire::kF32);
        ASSERT_EQ(planned.size(), listener.calls.size());
        for (size_t i = 0; i < planned.size(); ++i) {
          EXPECT_EQ(listener.calls[i],
                    (Listener::Call{planned[i].op, planned[i].label, planned[i].bytes}));
        }
      }
    });
  }
}

}  // namespace
}  // namespace optim
