// Custom sizing: groups whose size, not whose shape, is chosen.
#ifndef OPTIM_CUSTOM_SIZING_H_
#define OPTIM_CUSTOM_SIZING_H_

#include <vector>

#include "optim/grouping.h"

namespace optim {

// Neighbouring labels of equal storage size and dtype form one pool, whatever their views (a
// merged QKVO has the storage of an MLP matrix); a pool of one label is one group, so that the
// small parameters lead. A pool of several is cut into groups of some size s, the last one
// shorter, where s is the one with, in this order of importance,
//   1. the fewest ranks that hold two labels in one chunk,
//   2. the least padding,
//   3. the fewest groups, that is collectives,
//   4. the smallest s, that is the most equal groups
// at `ranks` ranks. From modded-nanogpt's "Muon Custom Sizing" record, where 10 attention and 22
// MLP matrices become two groups of 16.
std::vector<Group> CustomSizing(const std::vector<kernels::ParameterSpec>& specs,
                                const std::vector<int>& order, int ranks);

}  // namespace optim

#endif  // OPTIM_CUSTOM_SIZING_H_
