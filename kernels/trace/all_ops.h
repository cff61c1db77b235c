// A call of every op, for tests that hold for all of them. An op that is declared in kernels/ops
// and has no case here fails all_ops_test.
#ifndef KERNELS_TRACE_ALL_OPS_H_
#define KERNELS_TRACE_ALL_OPS_H_

#include <functional>
#include <string>
#include <vector>

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"
#include "kernels/testing/testing.h"

namespace kernels {

// One op with arguments of its own, on the CPU. All values differ, those of outputs too, so that
// arguments that are swapped change the result.
struct OpCase {
  std::string op;    // the function's name
  std::string name;  // what a trace calls it: the same, but for MoveRows
  OpCost cost;
  std::vector<testing::HostTensor> tensors;    // all that the op reads or writes
  std::function<void(Queue& queue)> call;      // the function
  std::function<void(Queue& queue)> backends;  // the implementation alone, without the function
};

std::vector<OpCase> AllOps();

}  // namespace kernels

#endif  // KERNELS_TRACE_ALL_OPS_H_
