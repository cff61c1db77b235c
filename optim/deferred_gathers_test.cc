// Gathers that are in flight between steps: which, until when, and that nobody sees the difference.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/test_ranks.h"
#include "comm/tracing.h"
#include "gtest/gtest.h"
#include "kernels/testing/testing.h"
#include "optim/sharded_optimizer.h"
#include "optim/step_schedule.h"
#include "optim/toy_rails.h"

namespace optim {
namespace {

using Names = std::vector<std::string>;

constexpr int kAlways = 100;  // tied for longer than any test runs

OptimizerConfig Deferred(bool deferred = true) {
  OptimizerConfig config = ToyRailsConfig();
  for (ParamRow& row : config.table) row.defer_gather = row.defer_gather && deferred;
  return config;
}

// Collectives that were launched and not waited for, and all waits, as "all_gather qk_bank".
class Spy : public comm::CollectiveListener {
 public:
  int64_t Began(absl::string_view name, absl::string_view label, int64_t,
                kernels::Queue&) override {
    open_[next_] = absl::StrCat(name, " ", label);
    return next_++;
  }
  void Ended(int64_t collective, kernels::Queue&) override {
    waits_.push_back(open_.at(collective));
    open_.erase(collective);
  }
  Names Open() const {
    Names names;
    for (const auto& [id, name] : open_) names.push_back(name);
    return names;
  }
  Names TakeWaits() { return std::exchange(waits_, {}); }

 private:
  int64_t next_ = 0;
  std::map<int64_t, std::string> open_;
  Names waits_;
};

const Names kBankGathers = {"all_gather qk_bank", "all_gather vo_bank", "all_gather mlp_bank"};

TEST(DeferredGathers, AN28_ExactlyTheBanksAreInFlightAfterAStep) {
  for (int ranks : {2, 3, 8}) {
    comm::RunRanks(ranks, [&](comm::Communicator& inner, kernels::Queue& queue) {
      Spy spy;
      const std::unique_ptr<comm::Communicator> comm = comm::MakeTracing(inner, spy);
      ToyRailsRank rank(*comm, false, /*tied=*/3, Deferred());
      for (int step = 0; step < 6; ++step) {  // even, odd, tied, parted
        rank.optimizer->ClearGradients(queue);
        rank.toy.AddGradients(rank.run, step);
        ASSERT_TRUE(rank.Step(step, queue).ok());
        EXPECT_EQ(spy.Open(), kBankGathers) << "step " << step;
        EXPECT_TRUE(rank.optimizer->gathers_in_flight());
        spy.TakeWaits();
        ASSERT_TRUE(rank.optimizer->FinishGathers(queue).ok());
        EXPECT_EQ(spy.TakeWaits(), kBankGathers) << "step " << step;
        EXPECT_TRUE(spy.Open().empty());
        EXPECT_FALSE(rank.optimizer->gathers_in_flight());
        ASSERT_TRUE(rank.optimizer->FinishGathers(queue).ok());
        EXPECT_TRUE(spy.TakeWaits().empty()) << "nothing was in flight";
      }
    });
  }
}

TEST(DeferredGathers, ARankAloneLeavesNoneInFlight) {
  comm::RunRanks(1, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRailsRank rank(comm, false, kAlways, Deferred());
    for (int step = 0; step < 6; ++step) {  // op by op, recorded and replayed
      rank.optimizer->ClearGradients(queue);
      rank.toy.AddGradients(rank.run, step);
      ASSERT_TRUE(rank.Step(step, queue).ok());
      EXPECT_FALSE(rank.optimizer->gathers_in_flight());
    }
  });
}

TEST(DeferredGathers, TheScheduleAndThePlanSaySo) {
  const absl::StatusOr<StepLayout> layout = PlanStep(Deferred(), ToyRailsSpecs());
  ASSERT_TRUE(layout.ok()) << layout.status();
  for (int64_t step : {0, 1}) {
    std::vector<ScheduleEntry> schedule = MakeSchedule(*layout, KindOfStep(*layout, step, true));
    Names last;
    for (auto entry = schedule.end() - 3; entry != schedule.end(); ++entry) {
      EXPECT_EQ(entry->action, ScheduleEntry::Action::kFinishLater);
      last.push_back("all_gather " + layout->buffer(entry->buffer).label);
    }
    EXPECT_EQ(last, kBankGathers);
    schedule.resize(schedule.size() - 3);
    for (const ScheduleEntry& entry : schedule) {
      EXPECT_NE(entry.action, ScheduleEntry::Action::kFinishLater);
      if (entry.action != ScheduleEntry::Action::kFinish) continue;
      EXPECT_FALSE(layout->buffer(entry.buffer).defer_gather);
    }
  }
  const std::string text = DescribeStep(*layout, Deferred(), ToyRailsSpecs(), 8);
  EXPECT_NE(text.find("mlp_bank, waited for before the next step\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("lm_head, waited for"), std::string::npos) << text;
}

// Even and odd steps, tied and parted, along the slot tree and not, in the parameters' own memory
// and through a buffer that is copied back.
TEST(DeferredGathers, GiveTheSameBits) {
  constexpr int kSteps = 6, kTied = 3;
  for (int ranks : {1, 2, 3, 4, 8}) {
    for (bool deterministic : {false, true}) {
      for (bool with_room : {false, true}) {
        const auto run = [&](bool deferred) {
          return ContinueRails(ranks, nullptr, 0, kSteps, kTied, deterministic, Deferred(deferred),
                               with_room);
        };
        ExpectSameBits(run(true), run(false),
                       absl::StrCat(ranks, " ranks", deterministic ? ", deterministic" : "",
                                    with_room ? ", in place" : ""));
      }
    }
  }
}

TEST(DeferredGathers, GoOnFromACheckpoint) {
  const RailsSnapshot unbroken = ContinueRails(1, nullptr, 0, 6, 4, true, Deferred(false));
  for (int at : {1, 2, 5}) {
    const RailsSnapshot half = ContinueRails(3, nullptr, 0, at, 4, true, Deferred());
    for (int ranks : {1, 2, 8}) {
      ExpectSameBits(ContinueRails(ranks, &half, at, 6, 4, true, Deferred()), unbroken,
                     absl::StrCat("from ", at, " on ", ranks, " ranks"));
    }
  }
}

// The guard fell: the gathers bring what was there, and the flush leaves it.
TEST(DeferredGathers, ZeroGuardChangesNothing) {
  comm::RunRanks(3, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRailsRank rank(comm, false, kAlways, Deferred());
    ASSERT_TRUE(rank.Train(0, 3, queue).ok());
    const auto weights = rank.toy.Weights();
    for (const kernels::Parameter& parameter : rank.toy.parameters()) {
      std::fill_n(parameter.grad.f32(), parameter.grad.size(), NAN);
    }
    const kernels::testing::HostTensor guard(kernels::DType::kI32, {1});
    ASSERT_TRUE(rank.Step(3, queue, guard).ok());
    ASSERT_TRUE(rank.optimizer->FinishGathers(queue).ok());
    EXPECT_EQ(rank.toy.Weights(), weights);
  });
}

// What one rank's update has broken is found by all, once it has come.
TEST(DeferredGathers, TheCheckOfWeightsSeesWhatWasGathered) {
  comm::RunRanks(3, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRailsRank rank(comm, false, kAlways, Deferred());
    rank.toy.AddGradients(rank.run, 0);
    const kernels::ParameterSpec& qk = rank.toy.parameters()[0].spec;
    const int64_t matrix = qk.rows * qk.cols, last = (qk.matrices - 1) * matrix;  // rank 2's
    rank.toy.parameters()[0].grad.f32()[last] = NAN;
    ASSERT_TRUE(rank.Step(0, queue).ok());
    ASSERT_TRUE(rank.optimizer->FinishGathers(queue).ok());
    const std::optional<NonFinite> found = rank.optimizer->FirstNonFiniteWeight(queue);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->name, "qk_bank");
    EXPECT_EQ(found->index, last);
  });
}

// The optimizer's end waits, and so its futures are not dropped.
TEST(DeferredGathers, TheDestructorWaits) {
  comm::RunRanks(3, [&](comm::Communicator& inner, kernels::Queue& queue) {
    Spy spy;
    const std::unique_ptr<comm::Communicator> comm = comm::MakeTracing(inner, spy);
    {
      ToyRailsRank rank(*comm, false, kAlways, Deferred());
      ASSERT_TRUE(rank.Step(0, queue).ok());
      EXPECT_EQ(spy.Open(), kBankGathers);
    }
    EXPECT_TRUE(spy.Open().empty());
  });
}

// The gather of one bank comes to nothing.
class LosesOne : public comm::Communicator {
 public:
  explicit LosesOne(comm::Communicator& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::string_view backend() const override { return inner_.backend(); }
  comm::Future ReduceScatter(absl::string_view label, kernels::Tensor in, kernels::Tensor out,
                             comm::ReduceOp op, kernels::Queue& queue) override {
    return inner_.ReduceScatter(label, in, out, op, queue);
  }
  comm::Future AllGather(absl::string_view label, kernels::Tensor in, kernels::Tensor out,
                         kernels::Queue& queue) override {
    const auto future = std::make_shared<comm::Future>(inner_.AllGather(label, in, out, queue));
    return comm::Future([future, lost = label == "vo_bank"](kernels::Queue& waiting) {
      const absl::Status status = future->Wait(waiting);
      return lost ? absl::UnavailableError("lost") : status;
    });
  }
  comm::Future AllReduce(absl::string_view label, kernels::Tensor x, comm::ReduceOp op,
                         kernels::Queue& queue) override {
    return inner_.AllReduce(label, x, op, queue);
  }
  comm::Future Broadcast(absl::string_view label, kernels::Tensor x, int root,
                         kernels::Queue& queue) override {
    return inner_.Broadcast(label, x, root, queue);
  }
  comm::Future AllToAllRows(absl::string_view label, kernels::Tensor in,
                            absl::Span<const int64_t> send_counts, kernels::Tensor out,
                            absl::Span<const int64_t> receive_counts,
                            kernels::Queue& queue) override {
    return inner_.AllToAllRows(label, in, send_counts, out, receive_counts, queue);
  }
  absl::Status Barrier(absl::string_view label) override { return inner_.Barrier(label); }
  void Abort(const absl::Status& reason) override { inner_.Abort(reason); }

 private:
  comm::Communicator& inner_;
};

// The flush says so, and waits for the others all the same.
TEST(DeferredGathers, AFailedGatherFailsTheFlushAndNoneStaysInFlight) {
  comm::RunRanks(3, [&](comm::Communicator& inner, kernels::Queue& queue) {
    LosesOne loses(inner);
    Spy spy;
    const std::unique_ptr<comm::Communicator> comm = comm::MakeTracing(loses, spy);
    ToyRailsRank rank(*comm, false, kAlways, Deferred());
    ASSERT_TRUE(rank.Step(0, queue).ok());
    const absl::Status status = rank.optimizer->FinishGathers(queue);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(spy.Open().empty());
    EXPECT_FALSE(rank.optimizer->gathers_in_flight());
  });
}

// Another collective fails within the step: what it had left in flight by then is waited for too.
TEST(DeferredGathers, AFailedStepLeavesNoneInFlight) {
  OptimizerConfig config = Deferred();
  for (ParamRow& row : config.table) row.defer_gather = row.label == "qk_bank";
  comm::RunRanks(3, [&](comm::Communicator& inner, kernels::Queue& queue) {
    LosesOne loses(inner);
    Spy spy;
    const std::unique_ptr<comm::Communicator> comm = comm::MakeTracing(loses, spy);
    ToyRailsRank rank(*comm, false, kAlways, config);
    EXPECT_EQ(rank.Step(0, queue).code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(spy.Open().empty());
    EXPECT_FALSE(rank.optimizer->gathers_in_flight());
  });
}

TEST(DeferredGathersDeathTest, NobodyReadsWeightsThatAreOnTheirWay) {
  comm::RunRanks(2, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyRailsRank rank(comm, false, kAlways, Deferred());
    ASSERT_TRUE(rank.Step(0, queue).ok());
    if (comm.rank() == 0) {
      ShardedOptimizer& optimizer = *rank.optimizer;
      const char* text = "before FinishGathers: the gather of qk_bank is in flight";
      EXPECT_DEATH(rank.Step(1, queue).IgnoreError(), text);
      EXPECT_DEATH(optimizer.LaunchFiniteCheck(queue), text);
      EXPECT_DEATH(optimizer.FirstNonFiniteWeight(queue), text);
      EXPECT_DEATH(optimizer.ForgetUpdates(1), text);
      EXPECT_DEATH(optimizer.SkipUpdate(queue), text);
      EXPECT_DEATH(optimizer.Reset(queue), text);
      EXPECT_DEATH(optimizer.GatherState(queue).IgnoreError(), text);
      EXPECT_DEATH(optimizer.LoadState({}, queue).IgnoreError(), text);
      optimizer.ClearGradients(queue);
    }
    ASSERT_TRUE(rank.optimizer->FinishGathers(queue).ok());
  });
}

TEST(DeferredGathers, RowsThatCannotAreRefused) {
  const auto refused = [](const std::function<void(OptimizerConfig*)>& change, const char* text) {
    OptimizerConfig config = Deferred();
    change(&config);
    const absl::Status status = PlanStep(config, ToyRailsSpecs()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
  };
  const auto defer = [](const char* label) {
    return [label](OptimizerConfig* config) {
      for (ParamRow& row : config->table) row.defer_gather = row.label == label;
    };
  };
  refused(defer("scalars"), "label scalars: defer_gather, but replicated");
  refused(defer("lm_head"), "label embed: tied to lm_head, and one of them has defer_gather");
  refused(defer("embed"), "label embed: tied to lm_head, and one of them has defer_gather");
  refused(
      [](OptimizerConfig* config) {
        config->scatter_order.clear();
        config->work_order.clear();
      },
      "label qk_bank: defer_gather needs scatter_order and work_order");
}

}  // namespace
}  // namespace optim
