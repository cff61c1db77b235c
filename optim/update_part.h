// What a step does to the buffers of one kind of rule. When it does so is the step's own matter
// (see step_schedule.h).
#ifndef OPTIM_UPDATE_PART_H_
#define OPTIM_UPDATE_PART_H_

#include <vector>

#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "optim/sharded_buffer.h"

namespace optim {

class UpdatePart {
 public:
  virtual ~UpdatePart() = default;
  virtual int buffers() const = 0;
  virtual ShardedBuffer& buffer(int i) = 0;
  // Updates buffer i's own_value() by its own_gradient() and the rates of this step. `guard` as in
  // kernels/ops/optimizer.h.
  virtual void Update(int i, kernels::Tensor guard, kernels::Queue& queue) = 0;
  // What buffer i keeps between steps; all of it is zero at first.
  virtual std::vector<ShardedBuffer::Kept> KeptOf(int i) const = 0;
};

}  // namespace optim

#endif  // OPTIM_UPDATE_PART_H_
