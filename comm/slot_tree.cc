#include "comm/slot_tree.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <utility>

#include "kernels/ops/elementwise.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace comm {
namespace {

using kernels::Tensor;

constexpr int64_t kPieceElements = 1 << 16;  // bounds the scratch; any value gives the same bits

int Middle(SlotRange node) {
  return node.begin + static_cast<int>(std::bit_floor(static_cast<unsigned>(node.count() - 1)));
}

void CollectSubtrees(SlotRange node, SlotRange run, std::vector<SlotRange>* found) {
  if (node.end <= run.begin || run.end <= node.begin) return;
  if (run.begin <= node.begin && node.end <= run.end) {
    found->push_back(node);
    return;
  }
  CollectSubtrees({node.begin, Middle(node)}, run, found);
  CollectSubtrees({Middle(node), node.end}, run, found);
}

// Sums `node` into the tensor of its first slot, given the tensor of each slot or of each
// subtree that is summed already (keyed by its first slot).
void SumNode(SlotRange node, const std::function<bool(SlotRange)>& summed,
             const std::function<Tensor(int)>& at, kernels::Queue& queue) {
  if (summed(node)) return;
  const SlotRange left{node.begin, Middle(node)}, right{Middle(node), node.end};
  SumNode(left, summed, at, queue);
  SumNode(right, summed, at, queue);
  kernels::Sum(at(left.begin), at(right.begin), at(left.begin), queue);
}

int MaxSubtrees(int slots, int ranks) {
  size_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    most = std::max(most, MaximalSubtrees(slots, SlotsOfRank(slots, ranks, rank)).size());
  }
  return static_cast<int>(most);
}

}  // namespace

SlotRange SlotsOfRank(int slots, int ranks, int rank) {
  CHECK(ranks >= 1 && rank >= 0 && rank < ranks && slots >= 1);
  const int share = slots / ranks, longer = slots % ranks;
  const int begin = rank * share + std::min(rank, longer);
  return {begin, begin + share + (rank < longer ? 1 : 0)};
}

std::vector<SlotRange> MaximalSubtrees(int slots, SlotRange run) {
  std::vector<SlotRange> found;
  CollectSubtrees({0, slots}, run, &found);
  return found;
}

std::vector<int> SumSubtrees(int slots, SlotRange run, const std::vector<Tensor>& leaves,
                             kernels::Queue& queue) {
  CHECK_EQ(static_cast<int>(leaves.size()), run.count());
  std::vector<int> firsts;
  for (const SlotRange& node : MaximalSubtrees(slots, run)) {
    SumNode(
        node, [](SlotRange n) { return n.count() == 1; },
        [&](int slot) { return leaves[slot - run.begin]; }, queue);
    firsts.push_back(node.begin - run.begin);
  }
  return firsts;
}

int64_t DeterministicScratchElements(int slots, int ranks) {
  return int64_t{1 + ranks} * MaxSubtrees(slots, ranks) * kPieceElements;
}

absl::Status DeterministicReduceScatter(Communicator& comm, absl::string_view label, int slots,
                                        const std::vector<Tensor>& leaves, Tensor out,
                                        Tensor scratch, kernels::Queue& queue) {
  const int ranks = comm.size();
  const int64_t chunk = out.size(), total = chunk * ranks;
  CHECK_GE(scratch.size(), DeterministicScratchElements(slots, ranks)) << label;
  const std::vector<int> firsts =
      SumSubtrees(slots, SlotsOfRank(slots, ranks, comm.rank()), leaves, queue);
  if (ranks == 1) {  // its one subtree is the whole tree
    kernels::Copy(leaves[firsts[0]].Reshape({-1}).Slice(0, total), out.Reshape({-1}), queue);
    return absl::OkStatus();
  }
  const int64_t most = MaxSubtrees(slots, ranks);
  const Tensor flat = scratch.Reshape({-1});
  const Tensor mine = flat.Slice(0, most * kPieceElements);
  const Tensor all = flat.Slice(mine.size(), ranks * mine.size());

  // Where each subtree, known by its first slot, lies in `all`.
  std::map<int, std::pair<SlotRange, int64_t>> place;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t index = rank * most;
    for (SlotRange node : MaximalSubtrees(slots, SlotsOfRank(slots, ranks, rank))) {
      place[node.begin] = {node, index++};
    }
  }
  const int64_t own_begin = comm.rank() * chunk;
  for (int64_t begin = 0; begin < total; begin += kPieceElements) {
    const int64_t n = std::min(kPieceElements, total - begin);
    for (size_t i = 0; i < firsts.size(); ++i) {
      kernels::Copy(leaves[firsts[i]].Reshape({-1}).Slice(begin, n),
                    mine.Slice(static_cast<int64_t>(i) * kPieceElements, n), queue);
    }
    ABSL_RETURN_IF_ERROR(comm.AllGather(label, mine, all, queue).Wait(queue));
    const int64_t from = std::max(begin, own_begin);
    const int64_t to = std::min(begin + n, own_begin + chunk);
    if (from >= to) continue;
    const auto at = [&](int slot) {
      return all.Slice(place.at(slot).second * kPieceElements + (from - begin), to - from);
    };
    const auto summed = [&](SlotRange node) {
      const auto found = place.find(node.begin);
      return found != place.end() && found->second.first == node;
    };
    SumNode({0, slots}, summed, at, queue);
    kernels::Copy(at(0), out.Reshape({-1}).Slice(from - own_begin, to - from), queue);
  }
  return absl::OkStatus();
}

}  // namespace comm
