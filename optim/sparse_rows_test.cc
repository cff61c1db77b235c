// Tables of which few rows are read, on ranks that are threads: beside the same tables exchanged
// whole, bit for bit, as both add in rank order.
#include "optim/sparse_rows.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/test_ranks.h"
#include "comm/tracing.h"
#include "gtest/gtest.h"
#include "kernels/testing/testing.h"
#include "optim/sharded_optimizer.h"
#include "optim/toy.h"

namespace optim {
namespace {

using kernels::DType;
using kernels::ParameterSpec;
using Table = std::vector<double>;
using Weights = std::vector<Table>;

// 29 rows, which only one rank divides.
constexpr int64_t kRows = 29, kDim = 8;
constexpr int kTables = 2, kSteps = 13;
// Read in the first two steps and never again.
constexpr int64_t kEarlyRow = 28;

std::vector<ParameterSpec> Specs() {
  return {{"ve0", "ve0", {kRows, kDim}, DType::kBF16, 1, kRows, kDim},
          {"ve1", "ve1", {kRows, kDim}, DType::kF32, 1, kRows, kDim},
          {"scalars", "scalars", {7}, DType::kF32, 1, 1, 7}};
}

// Events at 1, 3 and 5, then at 7 and 11.
OptimizerConfig Config() {
  OptimizerConfig config;
  for (const char* label : {"ve0", "ve1", "scalars"}) {
    config.table.push_back({.label = label,
                            .lr = 0.02,
                            .weight_decay = 3,
                            .beta1 = 0.75,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .every = 2,
                            .cautious_decay = true});
    if (config.table.size() > kTables) continue;
    config.table.back().later = {.from_step = 6, .every = 4};
    config.table.back().sparse_rows = true;
  }
  return config;
}

bool IsEvent(int64_t step) { return IsDue(Config().table[0], step); }

// What a slot reads in a step, some of it twice.
std::vector<int64_t> TokensOf(int64_t step, int slot) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < 4; ++i) tokens.push_back((step * 11 + slot * 5 + i * i * 3) % 27);
  tokens.push_back(tokens.front());
  if (step < 2 && slot == 2) tokens.push_back(kEarlyRow);
  return tokens;
}

class ToyReads : public RowReads {
 public:
  absl::Status Add(int64_t step, std::vector<RowSet>* rows) override {
    if (step >= kSteps) return absl::OkStatus();
    const int ranks = static_cast<int>(rows->size());
    for (int rank = 0; rank < ranks; ++rank) {
      const comm::SlotRange run = comm::SlotsOfRank(kSlots, ranks, rank);
      for (int slot = run.begin; slot < run.end; ++slot) {
        for (const int64_t token : TokensOf(step, slot)) (*rows)[rank].Add(token);
      }
    }
    return absl::OkStatus();
  }
};

struct Rank {
  Rank(comm::Communicator& comm, RowReads* reads, bool with_room, bool deterministic = false)
      : run(comm::SlotsOfRank(kSlots, comm.size(), comm.rank())),
        toy(Specs(), deterministic ? run.count() : 1, with_room ? comm.size() : 1) {
    auto created = ShardedOptimizer::Create(Config(), toy.parameters(), comm, kSlots, run,
                                            deterministic, kernels::CpuBackend(), reads);
    CHECK(created.ok()) << created.status();
    optimizer = *std::move(created);
  }

  // As backward does: rows of the tokens only, each as often as it was read.
  void AddGradients(int64_t step) {
    for (size_t i = 0; i < toy.parameters().size(); ++i) {
      const kernels::Parameter& parameter = toy.parameters()[i];
      const int leaves = static_cast<int>(parameter.grad.dim(0));
      for (int slot = run.begin; slot < run.end; ++slot) {
        float* leaf = parameter.grad.f32();
        if (leaves > 1) leaf += (slot - run.begin) * parameter.spec.size();
        const std::vector<double> g =
            Toy::SlotGradient(parameter.spec, i, static_cast<int>(step), slot);
        const bool table = i < kTables;
        for (const int64_t token : table ? TokensOf(step, slot) : std::vector<int64_t>{0}) {
          const int64_t count = table ? kDim : parameter.spec.size();
          for (int64_t j = token * count; j < (token + 1) * count; ++j) {
            leaf[j] += static_cast<float>(g[j]);
          }
        }
      }
    }
  }
  void Train(int64_t step, kernels::Queue& queue, kernels::Tensor guard = {}) {
    optimizer->ClearGradients(queue);
    queue.Synchronize();
    AddGradients(step);
    const absl::Status status = optimizer->Step(
        {.lr_multiplier = 1.0 - 0.05 * static_cast<double>(step), .step = step}, guard, queue);
    CHECK(status.ok()) << status;
    queue.Synchronize();
  }
  void Gather(kernels::Queue& queue) {
    const absl::Status status = optimizer->GatherTables(queue);
    CHECK(status.ok()) << status;
    queue.Synchronize();
  }
  OptimizerState State(kernels::Queue& queue) { return *optimizer->GatherState(queue); }

  comm::SlotRange run;
  Toy toy;
  std::unique_ptr<ShardedOptimizer> optimizer;
};

void ExpectSameState(const OptimizerState& got, const OptimizerState& want) {
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (const StateTensor& tensor : want.tensors) {
    const StateTensor* other = FindState(got, tensor.name);
    ASSERT_TRUE(other != nullptr) << tensor.name;
    EXPECT_EQ(other->bytes, tensor.bytes) << tensor.name;
  }
}

Table RowOfTable(const Table& table, int64_t row) {
  return {table.begin() + row * kDim, table.begin() + (row + 1) * kDim};
}

// What a forward pass reads is up to date, and moments and weights are those of the dense exchange:
// so the merged gradient is the reduce-scatter's.
TEST(SparseRows, AN_23_AsADenseExchange) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    for (const bool with_room : {false, true}) {
      comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
        ToyReads reads;
        Rank sparse(comm, &reads, with_room), dense(comm, nullptr, with_room);
        for (int64_t step = 0; step < kSteps; ++step) {
          const Weights got = sparse.toy.Weights(), want = dense.toy.Weights();
          for (int slot = sparse.run.begin; slot < sparse.run.end; ++slot) {
            for (const int64_t row : TokensOf(step, slot)) {
              for (int i = 0; i < kTables; ++i) {
                EXPECT_EQ(RowOfTable(got[i], row), RowOfTable(want[i], row))
                    << "row " << row << " before step " << step;
              }
            }
          }
          sparse.Train(step, queue);
          dense.Train(step, queue);
          ExpectSameState(sparse.State(queue), dense.State(queue));
        }
        sparse.Gather(queue);
        EXPECT_EQ(sparse.toy.Weights(), dense.toy.Weights());
        EXPECT_EQ(sparse.toy.PaddingInUse(), 0);
      });
    }
  }
}

// The owner updates a row that nobody reads any more.
TEST(SparseRows, AN_22_UntouchedRowsMove) {
  comm::RunRanks(3, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyReads reads;
    Rank rank(comm, &reads, true);
    Weights before;
    for (int64_t step = 0; step < kSteps; ++step) {
      rank.Gather(queue);
      before = rank.toy.Weights();
      rank.Train(step, queue);
      rank.Gather(queue);
      const Weights after = rank.toy.Weights();
      for (int i = 0; i < kTables; ++i) {
        EXPECT_EQ(RowOfTable(after[i], kEarlyRow) != RowOfTable(before[i], kEarlyRow),
                  IsEvent(step))
            << step;
      }
    }
  });
}

// Rows beyond the cycle's are not kept up; after the gather all ranks have the same bits.
TEST(SparseRows, AN_24_OtherRowsAreStaleUntilTheGather) {
  constexpr int kRanks = 4;
  std::vector<Weights> stale(kRanks), whole(kRanks);
  comm::RunRanks(kRanks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyReads reads;
    Rank rank(comm, &reads, true);
    const Weights start = rank.toy.Weights();
    for (int64_t step = 0; step < 2; ++step) rank.Train(step, queue);
    stale[comm.rank()] = rank.toy.Weights();
    rank.Gather(queue);
    whole[comm.rank()] = rank.toy.Weights();
    EXPECT_NE(whole[comm.rank()][0], start[0]);
    EXPECT_NE(stale[comm.rank()][0], whole[comm.rank()][0]) << "rank " << comm.rank();
    EXPECT_NE(stale[comm.rank()][1], whole[comm.rank()][1]) << "rank " << comm.rank();
  });
  for (const Weights& weights : whole) EXPECT_EQ(weights, whole[0]);
}

struct Saved {
  Weights weights;
  OptimizerState state;
};

Saved Continue(int ranks, bool sparse, const Saved* from, int64_t begin, int64_t end) {
  Saved saved;
  comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
    ToyReads reads;
    Rank rank(comm, sparse ? &reads : nullptr, true);
    if (from != nullptr) {
      const absl::Status loaded = rank.optimizer->LoadState(from->state, queue);
      ASSERT_TRUE(loaded.ok()) << loaded;
      rank.toy.SetWeights(from->weights);
    }
    for (int64_t step = begin; step < end; ++step) rank.Train(step, queue);
    rank.Gather(queue);
    const OptimizerState state = rank.State(queue);
    if (comm.rank() == 0) saved = {rank.toy.Weights(), state};
  });
  return saved;
}

// In the middle of a cycle the sum of all ranks' gradients waits, and goes on on rank 0, which
// never read most of its rows: as with the dense exchange.
TEST(SparseRows, ResumesWithinACycleOnOtherRanks) {
  for (const int64_t at : {1, 2, 6, 7, 9, 10, 12}) {
    const Saved half = Continue(3, true, nullptr, 0, at);
    for (const int ranks : {1, 2, 4}) {
      const Saved got = Continue(ranks, true, &half, at, kSteps);
      const Saved want = Continue(ranks, false, &half, at, kSteps);
      EXPECT_EQ(got.weights, want.weights) << "from " << at << " on " << ranks;
      ExpectSameState(got.state, want.state);
    }
  }
}

// A step that is left out, whether or not it is an event.
TEST(SparseRows, ASkippedStepIsThatOfTheDenseExchange) {
  for (const int64_t bad : {2, 3, 8, 11}) {
    comm::RunRanks(3, [&](comm::Communicator& comm, kernels::Queue& queue) {
      ToyReads reads;
      Rank sparse(comm, &reads, true), dense(comm, nullptr, true);
      const kernels::testing::HostTensor off(DType::kI32, {1});
      for (int64_t step = 0; step < kSteps; ++step) {
        for (Rank* rank : {&sparse, &dense}) {
          rank->Train(step, queue, step == bad ? off.get() : kernels::Tensor());
          if (step == bad) rank->optimizer->SkipUpdate(queue);
        }
      }
      sparse.Gather(queue);
      EXPECT_EQ(sparse.toy.Weights(), dense.toy.Weights()) << bad;
      ExpectSameState(sparse.State(queue), dense.State(queue));
    });
  }
}

class Calls : public comm::CollectiveListener {
 public:
  int64_t Began(absl::string_view name, absl::string_view label, int64_t bytes,
                kernels::Queue&) override {
    if (label != "scalars") lines.push_back(absl::StrCat(name, " ", label, " ", bytes));
    return 0;
  }
  void Ended(int64_t, kernels::Queue&) override {}
  std::vector<std::string> lines;
};

// At events, and then no more than the lists say: f32 gradients to the owners, weights back.
TEST(SparseRows, WhatIsExchanged) {
  constexpr int kRanks = 4;
  comm::RunRanks(kRanks, [&](comm::Communicator& inner, kernels::Queue& queue) {
    Calls calls;
    const std::unique_ptr<comm::Communicator> comm = comm::MakeTracing(inner, calls);
    ToyReads reads;
    Rank rank(*comm, &reads, true);
    const auto rows = [&](int64_t begin, int64_t end) {
      std::vector<RowSet> sets(kRanks, RowSet(kRows));
      for (int64_t step = begin; step < end; ++step) CHECK(reads.Add(step, &sets).ok());
      std::vector<std::vector<int32_t>> wanted;
      for (const RowSet& set : sets) wanted.push_back(set.Ascending());
      const RowMoves moves = MovesOf(wanted, (kRows + kRanks - 1) / kRanks, comm->rank());
      return static_cast<int64_t>(std::max(moves.wanted.size(), moves.owned.size()));
    };
    int64_t begin = 0;
    for (int64_t step = 0; step < kSteps; ++step) {
      calls.lines.clear();
      rank.Train(step, queue);
      if (!IsEvent(step)) {
        EXPECT_TRUE(calls.lines.empty()) << step;
        continue;
      }
      int64_t next = step + 1;
      while (!IsEvent(next)) ++next;
      const int64_t there = rows(begin, step + 1) * kDim * 4,
                    back = rows(step + 1, next + 1) * kDim;
      EXPECT_EQ(calls.lines,
                (std::vector<std::string>{absl::StrCat("all_to_all_rows ve0 ", there),
                                          absl::StrCat("all_to_all_rows ve1 ", there),
                                          absl::StrCat("all_to_all_rows ve0 ", 2 * back),
                                          absl::StrCat("all_to_all_rows ve1 ", 4 * back)}))
          << step;
      begin = step + 1;
    }
  });
}

// Leaves of slots are added along the tree, as whole tables; --plan says so.
TEST(SparseRows, NotWithTheSlotTree) {
  std::string why;
  EXPECT_FALSE(RowsAsRun(Config(), 4, true, &why).table[0].sparse_rows);
  EXPECT_NE(why.find("(ve0, ve1): exchanged whole, as the slot tree adds"), std::string::npos)
      << why;
  EXPECT_FALSE(RowsAsRun(Config(), 1, false, &why).table[0].sparse_rows);
  EXPECT_NE(why.find("one rank"), std::string::npos) << why;
  why.clear();
  EXPECT_TRUE(RowsAsRun(Config(), 4, false, &why).table[0].sparse_rows);
  EXPECT_EQ(why, "");
  const auto layout = PlanStep(Config(), Specs());
  ASSERT_TRUE(layout.ok()) << layout.status();
  const std::string plan = DescribeStep(*layout, Config(), Specs(), 4);
  EXPECT_NE(plan.find("all_to_all_rows f32            1024 B  ve0, at most"), std::string::npos)
      << plan;
  std::vector<Weights> weights;
  for (const int ranks : {1, 3}) {
    comm::RunRanks(ranks, [&](comm::Communicator& comm, kernels::Queue& queue) {
      ToyReads reads;
      Rank rank(comm, &reads, true, /*deterministic=*/true);
      for (int64_t step = 0; step < kSteps; ++step) rank.Train(step, queue);
      if (comm.rank() == 0) weights.push_back(rank.toy.Weights());
    });
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(SparseRows, TablesThatCannotBe) {
  const auto expect_refused = [](void (*change)(OptimizerConfig*), const std::string& want) {
    OptimizerConfig config = Config();
    change(&config);
    const auto layout = PlanStep(config, Specs());
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string text(layout.status().message());
    EXPECT_NE(text.find(want), std::string::npos) << text;
  };
  expect_refused([](OptimizerConfig* c) { c->table[1].comms = Comms::kReplicated; },
                 "label ve1: sparse_rows are for adam's sharded tables [V, D] that are not tied");
  expect_refused([](OptimizerConfig* c) { c->table[2].sparse_rows = true; },
                 "scalars [7] is adam's, sharded");
  expect_refused([](OptimizerConfig* c) { c->table[1].every = 1; },
                 "ve1 has 29 every 1 steps, ve0 29 every 2");
  expect_refused([](OptimizerConfig* c) { c->table[1].later = {}; }, "one cadence");
}

}  // namespace
}  // namespace optim
