#include "tools/trainer/rank_trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ops/attention.h"

namespace tools {
namespace {

// Query-key pairs of one of the rank's slots, on average.
double MeanPairs(const data::GlobalBatch& batch, comm::SlotRange run,
                 const kernels::AttentionWindow& window) {
  double pairs = 0;
  for (int slot = run.begin; slot < run.end; ++slot) {
    pairs += kernels::AttentionPairs(batch.slots[slot].boundaries, window);
  }
  return pairs / run.count();
}

}  // namespace

void RankTrace::BeginStep(int64_t step) {
  if (run_ == nullptr) return;
  EndPhase();
  const bool traced = run_->Covers(steps_done_++);
  in_untraced_step_ = !traced;
  if (!traced) return;
  // Host and device clocks meet here, where the device is idle: its first mark is now.
  queue_.Synchronize();
  queue_.TakeTimes();
  ops_ = std::make_unique<kernels::OpTrace>(queue_);
  step_ = TracedStep();
  step_.rank = rank_;
  step_.step = step;
  step_.begin_s = run_->Now();
  begin_mark_ = queue_.MarkTime();
}

void RankTrace::EndStep() {
  if (run_ == nullptr) return;
  EndPhase();
  in_untraced_step_ = false;
  if (ops_ == nullptr) return;
  const int64_t end = queue_.MarkTime();
  std::vector<double> marks;
  step_.ops = ops_->Take(&marks);
  ops_ = nullptr;
  for (kernels::TracedOp& op : step_.ops) {
    op.begin_s += step_.begin_s;
    op.end_s += step_.begin_s;
  }
  for (Collective& collective : collectives_) {
    const auto at = [&](int64_t mark) { return step_.begin_s + marks[mark < 0 ? end : mark]; };
    collective.span.begin_s = at(collective.begin);
    collective.span.launched_s = at(collective.launched);
    collective.span.wait_s = at(collective.wait);
    collective.span.end_s = at(collective.end);
    step_.collectives.push_back(collective.span);
    if (collective.end >= 0) continue;
    // Still under way: it belongs to this step only so far.
    collective.span.called_s = collective.span.call_s();
    under_way_.push_back(std::move(collective));
  }
  collectives_.clear();
  step_.end_s = step_.begin_s + marks[end];
  run_->Add(
      rank_,
      {.name = absl::StrCat("step ", step_.step), .begin_s = step_.begin_s, .end_s = run_->Now()});
  run_->Add(std::move(step_));
}

void RankTrace::SetBatch(std::shared_ptr<const data::GlobalBatch> batch, comm::SlotRange run) {
  if (ops_ == nullptr || run.count() == 0) return;
  for (int slot = run.begin; slot < run.end; ++slot) {
    step_.tokens += static_cast<int64_t>(batch->slots[slot].inputs.size());
  }
  ops_->SetAttentionPairs([batch = std::move(batch), run](const kernels::AttentionWindow& window) {
    return MeanPairs(*batch, run, window);
  });
}

void RankTrace::Phase(const char* name, std::optional<kernels::OpPhase> ops) {
  if (run_ == nullptr) return;
  EndPhase();
  if (in_untraced_step_) return;
  phase_ = name;
  phase_begin_s_ = run_->Now();
  if (ops_ != nullptr) ops_->SetPhase(ops);
}

void RankTrace::EndPhase() {
  if (phase_.empty()) return;
  run_->Add(rank_, {.name = std::move(phase_), .begin_s = phase_begin_s_, .end_s = run_->Now()});
  phase_.clear();
  if (ops_ != nullptr) ops_->SetPhase(std::nullopt);
}

int64_t RankTrace::Began(absl::string_view name, absl::string_view label, int64_t bytes,
                         kernels::Queue& queue) {
  const int64_t id = next_collective_++;
  if (run_ == nullptr) return id;
  Collective collective;
  collective.span.name = std::string(name);
  collective.span.label = std::string(label);
  collective.span.bytes = bytes;
  collective.id = id;
  if (ops_ == nullptr) {
    collective.span.called_s = run_->Now();
    under_way_.push_back(std::move(collective));
    return id;
  }
  collective.begin = queue.MarkTime();
  collectives_.push_back(std::move(collective));
  return id;
}

RankTrace::Collective* RankTrace::Find(int64_t id) {
  for (Collective& collective : collectives_) {
    if (collective.id == id) return &collective;
  }
  return nullptr;  // began before this traced step
}

RankTrace::Collective* RankTrace::Continue(int64_t id) {
  const auto found =
      std::find_if(under_way_.begin(), under_way_.end(),
                   [id](const Collective& collective) { return collective.id == id; });
  if (found == under_way_.end()) return nullptr;
  Collective& collective = collectives_.emplace_back(std::move(*found));
  under_way_.erase(found);
  collective.span.continued = true;
  collective.begin = collective.launched = begin_mark_;
  return &collective;
}

void RankTrace::Launched(int64_t id, kernels::Queue& queue) {
  if (Collective* const collective = Find(id)) collective->launched = queue.MarkTime();
}

void RankTrace::Waiting(int64_t id, kernels::Queue& queue) {
  Collective* collective = Find(id);
  if (collective == nullptr && ops_ != nullptr) collective = Continue(id);
  if (collective != nullptr) collective->wait = queue.MarkTime();
}

void RankTrace::Ended(int64_t id, kernels::Queue& queue) {
  if (Collective* const collective = Find(id)) collective->end = queue.MarkTime();
  const auto ended = [id](const Collective& collective) { return collective.id == id; };
  under_way_.erase(std::remove_if(under_way_.begin(), under_way_.end(), ended), under_way_.end());
}

}  // namespace tools
