// "Same bits on any number of ranks": sums over slots along one fixed binary tree.
//
// The tree over slots [0, n) splits at the largest power of two below n. A rank owns a
// contiguous run of slots; the largest subtrees inside the run are what it can sum alone.
#ifndef COMM_SLOT_TREE_H_
#define COMM_SLOT_TREE_H_

#include <vector>

#include "comm/communicator.h"

namespace comm {

// Slots [begin, end) of the global batch.
struct SlotRange {
  int begin = 0;
  int end = 0;
  int count() const { return end - begin; }
  friend bool operator==(SlotRange, SlotRange) = default;
};

// Rank r's run of slots: contiguous, in rank order, sizes differ by at most one (longer first).
SlotRange SlotsOfRank(int slots, int ranks, int rank);

// The maximal subtrees of the tree over [0, slots) that lie inside `run`, in slot order.
std::vector<SlotRange> MaximalSubtrees(int slots, SlotRange run);

// Sums leaves[i] (f32 [n], slot run.begin + i) along the tree, in place: the sum of each
// maximal subtree ends up in the leaf of its first slot. Returns these leaves' indices.
std::vector<int> SumSubtrees(int slots, SlotRange run, const std::vector<kernels::Tensor>& leaves,
                             kernels::Queue& queue);

// Where DeterministicReduceScatter keeps gathered pieces: f32 elements it needs.
int64_t DeterministicScratchElements(int slots, int ranks);

// out = chunk `comm.rank()` of the sum over all slots, added along the tree: the same bits for
// every number of ranks.
//
//   leaves   f32 [size() * chunk] per slot of this rank; overwritten (SumSubtrees)
//   out      f32 [chunk]
//   scratch  f32, at least DeterministicScratchElements()
//
// Moves size() times the data of a ReduceScatter, piece by piece: for proofs, not for speed.
absl::Status DeterministicReduceScatter(Communicator& comm, absl::string_view label, int slots,
                                        const std::vector<kernels::Tensor>& leaves,
                                        kernels::Tensor out, kernels::Tensor scratch,
                                        kernels::Queue& queue);

}  // namespace comm

#endif  // COMM_SLOT_TREE_H_
