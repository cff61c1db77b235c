#include "tools/trainer/comm_plan.h"

#include <algorithm>
#include <bit>
#include <map>

#include "optim/step_schedule.h"
#include "third_party/absl_compat/check.h"

namespace tools {
namespace {

using Action = optim::ScheduleEntry::Action;

// The queue's clock and the link's.
class Clocks {
 public:
  Clocks(int ranks, const LinkModel& link, PredictedStep* step)
      : ranks_(ranks), link_(link), step_(*step) {}

  void Compute(double seconds) {
    queue_s_ += seconds;
    step_.compute_s += seconds;
  }
  // Answers with the number of the collective.
  size_t Launch(const std::string& collective, const std::string& label, int64_t bytes) {
    const double link_s = CollectiveSeconds(collective, bytes, ranks_, link_);
    link_s_ = std::max(link_s_, queue_s_) + link_s;
    launched_.push_back({.at_s = queue_s_, .ready_s = link_s_});
    step_.collectives.push_back({.collective = collective,
                                 .label = label,
                                 .bytes = bytes,
                                 .link_s = link_s,
                                 .total_s = 0,
                                 .exposed_s = 0});
    return launched_.size() - 1;
  }
  void Wait(size_t number) {
    const Launched& launched = launched_[number];
    PredictedCollective& collective = step_.collectives[number];
    collective.exposed_s = std::max(0.0, launched.ready_s - queue_s_);
    queue_s_ = std::max(queue_s_, launched.ready_s);
    collective.total_s = queue_s_ - launched.at_s;
    step_.end_s = queue_s_;
  }
  double now_s() const { return queue_s_; }

 private:
  struct Launched {
    double at_s, ready_s;
  };

  const int ranks_;
  const LinkModel& link_;
  PredictedStep& step_;
  double queue_s_ = 0, link_s_ = 0;
  std::vector<Launched> launched_;  // step_.collectives[i]
};

}  // namespace

double CollectiveSeconds(absl::string_view collective, int64_t bytes, int ranks,
                         const LinkModel& link) {
  CHECK(ranks >= 1 && bytes >= 0) << ranks << " ranks, " << bytes << " bytes";
  CHECK(link.gbps > 0 && link.latency_us >= 0)
      << link.gbps << " Gbit/s, " << link.latency_us << " us";
  const bool twice = collective == "all_reduce";
  CHECK(twice || collective == "reduce_scatter" || collective == "all_gather") << collective;
  if (ranks == 1) return 0;
  const int hops = link.shape == LinkShape::kRing
                       ? ranks - 1
                       : static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  const double moved = static_cast<double>(bytes) * (ranks - 1) / ranks;
  const double once = hops * link.latency_us * 1e-6 + moved * 8 / (link.gbps * 1e9);
  return twice ? 2 * once : once;
}

PredictedStep PredictStep(const optim::StepLayout& layout, const optim::StepKind& kind, int ranks,
                          const std::vector<BufferWork>& work, int64_t loss_bytes,
                          const LinkModel& link) {
  CHECK_EQ(static_cast<int>(work.size()), layout.buffers());
  PredictedStep step;
  Clocks clocks(ranks, link, &step);
  clocks.Wait(clocks.Launch("all_gather", "slot losses", loss_bytes));
  std::map<int, size_t> reductions, gathers;  // by buffer
  for (const optim::ScheduleEntry& entry : optim::MakeSchedule(layout, kind)) {
    const optim::BufferLayout& buffer = layout.buffer(entry.buffer);
    const BufferWork& times = work[entry.buffer];
    const int64_t elements = buffer.Padded(ranks);
    switch (entry.action) {
      case Action::kReduce:
        clocks.Compute(times.pack_s);
        reductions[entry.buffer] =
            clocks.Launch(buffer.replicated() ? "all_reduce" : "reduce_scatter", buffer.label,
                          elements * kernels::SizeOf(kernels::DType::kF32));
        break;
      case Action::kUpdate:
        clocks.Wait(reductions.at(entry.buffer));
        clocks.Compute(times.update_s);
        if (buffer.replicated()) break;
        gathers[entry.buffer] =
            clocks.Launch("all_gather", buffer.label, elements * kernels::SizeOf(buffer.dtype));
        break;
      case Action::kFinish:
      case Action::kFinishLater:  // where the next step would begin: nothing lies between
        if (!buffer.replicated()) clocks.Wait(gathers.at(entry.buffer));
        clocks.Compute(times.unpack_s);
        break;
      case Action::kAddTied:   // measured as part of the target's pack_s
      case Action::kCopyTied:  // and of its unpack_s
        break;
    }
  }
  step.end_s = clocks.now_s();
  return step;
}

}  // namespace tools
