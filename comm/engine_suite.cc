#include "comm/engine_suite.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/checking.h"
#include "comm/engine_rows.h"
#include "comm/engine_tensors.h"
#include "comm/slot_tree.h"
#include "gtest/gtest.h"
#include "third_party/absl_compat/check.h"

namespace comm {
namespace {

using kernels::DType;
using kernels::Tensor;

// Whole numbers below 256 for up to 13 ranks, so that sums are exact in bf16 in any order.
double Input(int rank, int64_t i) { return static_cast<double>(i % 11) + rank + 1; }
double Total(int size, int64_t i) {
  return static_cast<double>(size * (i % 11)) + size * (size + 1) / 2.0;
}

// One dtype and size of each collective. A label may be of any length.
struct Sized {
  const EngineRank& rank;
  DType dtype;
  int64_t n;
  int r = rank.comm.rank(), size = rank.comm.size();
  std::string label = std::string(300, 'x');
  std::string with = absl::StrCat(" of ", kernels::Name(dtype), " x ", n);
  Value input = [this](int64_t i) { return Input(r, i); };
  Value total = [this](int64_t i) { return Total(size, i); };
  Value own_total = [this](int64_t i) { return Total(size, r * n + i); };
  Value nothing = [](int64_t) { return -1.0; };

  void ScatterAndGather() {
    Communicator& comm = rank.comm;
    const DeviceTensor in(rank, dtype, n * size, input), out(rank, dtype, n, nothing);
    ExpectOk(rank, comm.ReduceScatter(label, in, out, ReduceOp::kSum, rank.queue), with);
    ExpectValues(rank, out, own_total, "reduce_scatter" + with);
    ExpectValues(rank, in, input, "input of reduce_scatter" + with);
    const DeviceTensor all(rank, dtype, n * size, nothing);
    ExpectOk(rank, comm.AllGather(label, out, all, rank.queue), with);
    ExpectValues(rank, all, total, "all_gather" + with);
    ExpectValues(rank, out, own_total, "input of all_gather" + with);

    const Tensor own = in.Part(r * n, n);
    ExpectOk(rank, comm.ReduceScatter(label, in, own, ReduceOp::kSum, rank.queue), with);
    ExpectValues(rank, own, own_total, "reduce_scatter in place" + with);
    ExpectOk(rank, comm.AllGather(label, own, in, rank.queue), with);
    ExpectValues(rank, in, total, "all_gather in place" + with);
  }
  void ReduceAndBroadcast() {
    const DeviceTensor x(rank, dtype, n, input);
    ExpectOk(rank, rank.comm.AllReduce(label, x, ReduceOp::kSum, rank.queue), with);
    ExpectValues(rank, x, total, "all_reduce" + with);
    for (const int root : {0, size - 1}) {
      const DeviceTensor sent(rank, dtype, n, input);
      ExpectOk(rank, rank.comm.Broadcast(label, sent, root, rank.queue), with);
      ExpectValues(
          rank, sent, [&](int64_t i) { return Input(root, i); }, "broadcast" + with);
    }
  }
  // f32: an engine may multiply by a rounded 1 / size.
  void Average() {
    const DeviceTensor mean(rank, dtype, n, input);
    ExpectOk(rank, rank.comm.AllReduce(label, mean, ReduceOp::kAvg, rank.queue), with);
    ExpectValues(
        rank, mean, [&](int64_t i) { return Total(size, i) / size; }, "average" + with, 2e-7);
    const DeviceTensor in(rank, dtype, n * size, input), out(rank, dtype, n, nothing);
    ExpectOk(rank, rank.comm.ReduceScatter(label, in, out, ReduceOp::kAvg, rank.queue), with);
    ExpectValues(
        rank, out, [&](int64_t i) { return own_total(i) / size; }, "scattered average" + with,
        2e-7);
  }
};

// Sizes that no number of ranks divides, and more than one block of anything.
void EveryCollective(const EngineRank& rank) {
  for (const int64_t n : {1, 3, 1024, 65537}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Sized sized{.rank = rank, .dtype = dtype, .n = n};
      sized.ScatterAndGather();
      sized.ReduceAndBroadcast();
      if (dtype == DType::kF32) sized.Average();
    }
    const absl::Status status = rank.comm.Barrier(absl::StrCat("after ", n));
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Futures that are waited for in another order than they were made.
void ManyAtOnce(const EngineRank& rank) {
  const int size = rank.comm.size();
  std::vector<std::unique_ptr<DeviceTensor>> tensors;
  std::vector<Future> futures;
  for (int k = 0; k < 48; ++k) {
    const Value input = [&, k](int64_t i) { return Input(rank.comm.rank(), i) + k; };
    tensors.push_back(std::make_unique<DeviceTensor>(rank, DType::kF32, 5000 + k, input));
    futures.push_back(
        k % 3 == 2 ? rank.comm.Broadcast("b", *tensors[k], k % size, rank.queue)
                   : rank.comm.AllReduce(absl::StrCat(k), *tensors[k], ReduceOp::kSum, rank.queue));
  }
  for (int k = 47; k >= 0; --k) {
    ExpectOk(rank, std::move(futures[k]), absl::StrCat("number ", k));
    const Value want = [&](int64_t i) {
      return k % 3 == 2 ? Input(k % size, i) + k : Total(size, i) + size * k;
    };
    ExpectValues(rank, *tensors[k], want, absl::StrCat("number ", k));
  }
}

// Any value of a slot's gradient that shows the order of a sum.
double SlotValue(int slot, int64_t i) {
  return static_cast<float>(1.0 / (1 + (i * 7 + slot * 131) % 1009) * ((i + slot) % 3 ? 1 : -1));
}

// The same bits as for one rank: the sum along the tree, written down for 8 slots.
void TreeOfSlots(const EngineRank& rank) {
  constexpr int kSlots = 8;
  constexpr int64_t kElements = 70'001;  // more than one piece
  const int size = rank.comm.size();
  const int64_t chunk = (kElements + size - 1) / size;
  const SlotRange run = SlotsOfRank(kSlots, size, rank.comm.rank());
  std::vector<std::unique_ptr<DeviceTensor>> memory;
  std::vector<Tensor> leaves;
  for (int slot = run.begin; slot < run.end; ++slot) {
    memory.push_back(std::make_unique<DeviceTensor>(rank, DType::kF32, chunk * size,
                                                    [&](int64_t i) { return SlotValue(slot, i); }));
    leaves.push_back(*memory.back());
  }
  const Value zero = [](int64_t) { return 0.0; };
  const DeviceTensor out(rank, DType::kF32, chunk, zero);
  const DeviceTensor scratch(rank, DType::kF32, DeterministicScratchElements(kSlots, size), zero);
  const absl::Status status =
      DeterministicReduceScatter(rank.comm, "g", kSlots, leaves, out, scratch, rank.queue);
  ASSERT_TRUE(status.ok()) << status;
  const Value want = [&](int64_t i) {
    float x[kSlots];
    for (int slot = 0; slot < kSlots; ++slot) {
      x[slot] = static_cast<float>(SlotValue(slot, rank.comm.rank() * chunk + i));
    }
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
  };
  ExpectValues(rank, out, want, "tree of slots");
}

// The last rank calls something else; all are told what, and what the others call.
void DifferentCallsAreNamed(const EngineRank& rank) {
  if (rank.comm.size() == 1) return;
  const bool last = rank.comm.rank() == rank.comm.size() - 1;
  const DeviceTensor x(rank, DType::kF32, 8, [](int64_t) { return 1.0; });
  const auto expect_named = [&](const std::string& one, const std::string& other,
                                const std::function<Future(Communicator&)>& call) {
    const std::unique_ptr<Communicator> checking =
        MakeChecking(std::make_unique<Borrowed>(rank.comm));
    ExpectOk(rank, checking->AllReduce("same", x, ReduceOp::kSum, rank.queue), "same calls");
    const absl::Status status = call(*checking).Wait(rank.queue);
    const std::string text(status.message());
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_NE(text.find(one), std::string::npos) << text;
    EXPECT_NE(text.find(other), std::string::npos) << text;
    EXPECT_NE(text.find(absl::StrCat("rank ", rank.comm.size() - 1)), std::string::npos) << text;
  };
  expect_named("all_reduce(grads, f32 x 8", "all_reduce(grads, f32 x 4", [&](Communicator& comm) {
    return comm.AllReduce("grads", x.Part(0, last ? 4 : 8), ReduceOp::kSum, rank.queue);
  });
  expect_named("all_reduce(a", "all_reduce(b", [&](Communicator& comm) {
    return comm.AllReduce(last ? "b" : "a", x, ReduceOp::kSum, rank.queue);
  });
  const DeviceTensor narrow(rank, DType::kBF16, 8, [](int64_t) { return 1.0; });
  expect_named("f32 x 8", "bf16 x 8", [&](Communicator& comm) {
    return comm.AllReduce("grads", last ? narrow : x, ReduceOp::kSum, rank.queue);
  });
}

// In f32 the order shows: rank 0 is added first.
void AddsInRankOrder(const EngineRank& rank) {
  const int size = rank.comm.size(), own = rank.comm.rank();
  constexpr int64_t kElements = 1237;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    const Value want = [&](int64_t i) {
      float sum = 0;
      for (int r = 0; r < size; ++r) sum += static_cast<float>(SlotValue(r, i));
      return op == ReduceOp::kAvg ? sum / static_cast<float>(size) : sum;
    };
    const Value input = [&](int64_t i) { return SlotValue(own, i); };
    const DeviceTensor in(rank, DType::kF32, size * kElements, input);
    const DeviceTensor out(rank, DType::kF32, kElements, input);
    ExpectOk(rank, rank.comm.ReduceScatter("x", in, out, op, rank.queue), "scatter");
    ExpectValues(
        rank, out, [&](int64_t i) { return want(own * kElements + i); }, "sum in rank order");
    const DeviceTensor x(rank, DType::kF32, kElements, input);
    ExpectOk(rank, rank.comm.AllReduce("x", x, op, rank.queue), "all_reduce");
    ExpectValues(rank, x, want, "sum of all in rank order");
  }
}

// 256 swallows a single 1 in bf16; in f32 the ones add up first.
void Bf16IsRoundedOnce(const EngineRank& rank) {
  const int size = rank.comm.size();
  const Value input = [&](int64_t) { return rank.comm.rank() == 0 ? 256.0 : 1.0; };
  const Value want = [&](int64_t) {
    return kernels::RoundToBF16(256.0f + static_cast<float>(size - 1));
  };
  const DeviceTensor x(rank, DType::kBF16, 3, input), in(rank, DType::kBF16, 2 * size, input);
  ExpectOk(rank, rank.comm.AllReduce("x", x, ReduceOp::kSum, rank.queue), "all_reduce");
  ExpectValues(rank, x, want, "bf16 all_reduce");
  const Tensor own = in.Part(2 * rank.comm.rank(), 2);
  ExpectOk(rank, rank.comm.ReduceScatter("x", in, own, ReduceOp::kSum, rank.queue), "scatter");
  ExpectValues(rank, own, want, "bf16 reduce_scatter");
}

}  // namespace

const std::vector<EngineCase>& CollectiveCases() {
  static const auto* cases = new std::vector<EngineCase>{
      {"EveryCollective", EveryCollective},
      {"RowsOfDifferingNumbers", RowsOfDifferingNumbers},
      {"ManyAtOnce", ManyAtOnce},
      {"TreeOfSlots", TreeOfSlots},
  };
  return *cases;
}

const std::vector<EngineCase>& CheckingCases() {
  static const auto* cases =
      new std::vector<EngineCase>{{"C2_DifferentCallsAreNamed", DifferentCallsAreNamed},
                                  {"C2_DifferentCountsAreNamed", DifferentCountsAreNamed}};
  return *cases;
}

const std::vector<EngineCase>& RankOrderCases() {
  static const auto* cases = new std::vector<EngineCase>{
      {"AddsInRankOrder", AddsInRankOrder},
      {"Bf16IsRoundedOnce", Bf16IsRoundedOnce},
  };
  return *cases;
}

}  // namespace comm
