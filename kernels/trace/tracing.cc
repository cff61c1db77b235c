#include "kernels/trace/tracing.h"

#include <utility>

#include "third_party/absl_compat/check.h"

namespace kernels {

OpTrace::OpTrace(Queue& queue) : queue_(queue) {
  CHECK(queue.listener() == nullptr) << "two traces of one queue";
  queue_.SetListener(this);
}

OpTrace::~OpTrace() { queue_.SetListener(nullptr); }

void OpTrace::SetAttentionPairs(PairsOfWindow pairs) { pairs_ = std::move(pairs); }

void OpTrace::SetPhase(std::optional<OpPhase> phase) { phase_ = phase; }

void OpTrace::Begin(const char* name, OpCost cost) {
  if (depth_++ > 0) return;
  if (phase_.has_value()) cost.phase = *phase_;
  ops_.push_back({.op = {.name = name, .cost = std::move(cost)}, .begin = queue_.MarkTime()});
}

void OpTrace::End() {
  if (--depth_ == 0) ops_.back().end = queue_.MarkTime();
}

double OpTrace::AttentionPairs(const AttentionArgs& args) const {
  const AttentionWindow window(args);
  return pairs_ ? pairs_(window) : kernels::AttentionPairs(args.q.dim(1), window);
}

std::vector<TracedOp> OpTrace::Take() {
  std::vector<double> marks;
  return Take(&marks);
}

std::vector<TracedOp> OpTrace::Take(std::vector<double>* marks) {
  *marks = queue_.TakeTimes();
  std::vector<TracedOp> ops;
  ops.reserve(ops_.size());
  for (Marked& marked : ops_) {
    marked.op.begin_s = marks->at(marked.begin);
    marked.op.end_s = marks->at(marked.end);
    ops.push_back(std::move(marked.op));
  }
  ops_.clear();
  return ops;
}

}  // namespace kernels
