// Which matrices are reduced, updated and gathered together, and which rank owns each.
//
// A group holds n members of equal storage size. On W ranks each rank owns a chunk of
// ceil(n / W) consecutive members; the last ranks may own fewer or none, and what is missing is
// padding. All kinds of grouping give the same update, since each matrix is orthogonalised by
// its own view; they differ in padding, in the number of collectives and in balance.
//
// Round robin deals the members out: neighbours of equal storage size and dtype, whatever their
// labels and views, are cut into groups of `ranks`, the last one shorter. On that many ranks, rank
// r owns the r-th member of each group, members r, r + ranks, ... in all, and the gather of one
// group runs beside the update of the next. (A last group of one member is cut between the matrices
// of its view, as any such group.) On fewer ranks it is chunks of a group, as above. From
// modded-nanogpt's track 2.
#ifndef OPTIM_GROUPING_H_
#define OPTIM_GROUPING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/parameter.h"
#include "optim/param_table.h"

namespace optim {

struct Group {
  std::string name;          // labels of its members, "attn+mlp"; unique among the groups
  std::vector<int> members;  // indices of specs, in order
  std::string reason;        // why it is cut like this, for --plan
};

// Groups for specs[order[0]], specs[order[1]], ...: the Muon parameters, sorted by the rows of
// the param table. `ranks` is what custom sizing derives its sizes for, and the size of round
// robin's groups.
std::vector<Group> PlanGroups(Grouping grouping, const std::vector<kernels::ParameterSpec>& specs,
                              const std::vector<int>& order, int ranks);

// Members, or padding, of each chunk when n members go to `ranks` ranks.
inline int64_t ChunkMembers(int64_t n, int ranks) { return (n + ranks - 1) / ranks; }
inline int64_t PaddingMembers(int64_t n, int ranks) { return ChunkMembers(n, ranks) * ranks - n; }
inline int OwnerOfMember(int64_t member, int64_t n, int ranks) {
  return static_cast<int>(member / ChunkMembers(n, ranks));
}

// The ranks whose chunk holds more than one label. They run one batched orthogonalisation for
// each view instead of one in all.
std::vector<int> MixedRanks(const Group& group, const std::vector<kernels::ParameterSpec>& specs,
                            int ranks);

}  // namespace optim

#endif  // OPTIM_GROUPING_H_
