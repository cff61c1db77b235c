// How ops are traced: each free function of this folder opens a TraceScope between its checks and
// its dispatch, and whoever listens on the queue is told the op's name and cost.
#ifndef KERNELS_OPS_TRACE_SCOPE_H_
#define KERNELS_OPS_TRACE_SCOPE_H_

#include "kernels/ops/op_cost.h"
#include "kernels/queue.h"

namespace kernels {

struct AttentionArgs;

// Is told of each op of one queue, on the queue's thread; see Queue::SetListener.
// kernels/trace/tracing.h is the one that notes times.
class OpListener {
 public:
  virtual ~OpListener() = default;
  // Surround what the op enqueues. An op that calls other ops has their scopes inside of its own.
  virtual void Begin(const char* name, OpCost cost) = 0;
  virtual void End() = 0;
  // Query-key pairs of one slot and head, which AttentionCost needs. They depend on the documents'
  // boundaries, which lie in device memory, so the op itself cannot count them.
  virtual double AttentionPairs(const AttentionArgs& args) const = 0;
};

// Without a listener a scope is two comparisons with null: `cost`, a function that returns an
// OpCost, is not called.
class TraceScope {
 public:
  template <typename Cost>
  TraceScope(const char* name, const Queue& queue, const Cost& cost) : listener_(queue.listener()) {
    if (listener_ != nullptr) [[unlikely]] {
      listener_->Begin(name, cost());
    }
  }
  ~TraceScope() {
    if (listener_ != nullptr) [[unlikely]] {
      listener_->End();
    }
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  OpListener* const listener_;
};

}  // namespace kernels

#endif  // KERNELS_OPS_TRACE_SCOPE_H_
