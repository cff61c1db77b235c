// Notes every op that a queue is given, and when it ran:
//
//   OpTrace trace(queue);
//   ... ops on `queue`, also those called by model and optim ...
//   for (const TracedOp& op : trace.Take()) ...   // the host waits here
#ifndef KERNELS_TRACE_TRACING_H_
#define KERNELS_TRACE_TRACING_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops/attention.h"
#include "kernels/ops/op_cost.h"
#include "kernels/ops/trace_scope.h"
#include "kernels/queue.h"

namespace kernels {

struct TracedOp {
  std::string name;  // as in kernels/ops: "MatMul", "AttentionGrad"
  OpCost cost;
  // Time stamps of the queue around the op, in seconds since the queue's first mark.
  double begin_s = 0;
  double end_s = 0;
};

// One at a time per queue, on the queue's thread; the queue runs untraced again after it. Ops
// are enqueued as ever, with a time stamp before and after each: recording them into a graph is
// not possible meanwhile.
//
// On a GPU an op begins when the one before it has ended, so where the host enqueues more slowly
// than the device works, the time of waiting for the host counts as the op's.
class OpTrace : private OpListener {
 public:
  explicit OpTrace(Queue& queue);
  ~OpTrace() override;
  OpTrace(const OpTrace&) = delete;
  OpTrace& operator=(const OpTrace&) = delete;

  // Query-key pairs of one slot (mean over the slots) for a window. The boundaries of
  // documents lie in device memory, so only the caller can tell; without this a slot counts as
  // one document, which is the upper bound.
  using PairsOfWindow = std::function<double(const AttentionWindow& window)>;
  void SetAttentionPairs(PairsOfWindow pairs);
  // Files all following ops under `phase`, whatever they are: the optimizer's products are its
  // own. Nothing restores the op's own phase.
  void SetPhase(std::optional<OpPhase> phase);

  // Waits for the device. What has run since the last Take, in order.
  std::vector<TracedOp> Take();
  // As Take, with all marks that were set on the queue since: the caller's own are among them.
  std::vector<TracedOp> Take(std::vector<double>* marks);

 private:
  struct Marked {
    TracedOp op;
    int64_t begin = 0, end = 0;  // marks
  };

  void Begin(const char* name, OpCost cost) override;
  void End() override;
  double AttentionPairs(const AttentionArgs& args) const override;

  Queue& queue_;
  PairsOfWindow pairs_;
  std::optional<OpPhase> phase_;
  std::vector<Marked> ops_;
  int depth_ = 0;  // scopes that are open: an op's calls of other ops are part of it
};

}  // namespace kernels

#endif  // KERNELS_TRACE_TRACING_H_
