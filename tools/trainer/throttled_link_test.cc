// The prediction of comm_plan.h against real steps on a link that is made as slow as the model
// says.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/test_ranks.h"
#include "comm/tracing.h"
#include "data/loader.h"
#include "gtest/gtest.h"
#include "model/parameters.h"
#include "optim/step_layout.h"
#include "tools/trainer/batch_source.h"
#include "tools/trainer/comm_plan.h"
#include "tools/trainer/comm_times.h"
#include "tools/trainer/device.h"
#include "tools/trainer/rank_trace.h"
#include "tools/trainer/rank_trainer.h"
#include "tools/trainer/step_phases.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;

// Every collective takes as long as CollectiveSeconds says, after those launched before it.
class ThrottledCommunicator : public comm::Communicator {
 public:
  using Tensor = kernels::Tensor;
  using Queue = kernels::Queue;

  ThrottledCommunicator(comm::Communicator& inner, const LinkModel& link)
      : inner_(inner), link_(link) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::string_view backend() const override { return inner_.backend(); }
  comm::Future ReduceScatter(absl::string_view label, Tensor in, Tensor out, comm::ReduceOp op,
                             Queue& queue) override {
    return Slow("reduce_scatter", in.bytes(), inner_.ReduceScatter(label, in, out, op, queue));
  }
  comm::Future AllGather(absl::string_view label, Tensor in, Tensor out, Queue& queue) override {
    return Slow("all_gather", out.bytes(), inner_.AllGather(label, in, out, queue));
  }
  comm::Future AllReduce(absl::string_view label, Tensor x, comm::ReduceOp op,
                         Queue& queue) override {
    return Slow("all_reduce", x.bytes(), inner_.AllReduce(label, x, op, queue));
  }
  comm::Future Broadcast(absl::string_view label, Tensor x, int root, Queue& queue) override {
    return inner_.Broadcast(label, x, root, queue);
  }
  comm::Future AllToAllRows(absl::string_view label, Tensor in,
                            absl::Span<const int64_t> send_counts, Tensor out,
                            absl::Span<const int64_t> receive_counts, Queue& queue) override {
    return inner_.AllToAllRows(label, in, send_counts, out, receive_counts, queue);
  }
  absl::Status Barrier(absl::string_view label) override { return inner_.Barrier(label); }
  void Abort(const absl::Status& reason) override { inner_.Abort(reason); }

 private:
  comm::Future Slow(const char* collective, int64_t bytes, comm::Future future) {
    const auto takes = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(CollectiveSeconds(collective, bytes, size(), link_)));
    free_ = std::max(free_, Clock::now()) + takes;
    const auto shared = std::make_shared<comm::Future>(std::move(future));
    return comm::Future([shared, ready = free_](Queue& queue) {
      const absl::Status status = shared->Wait(queue);
      std::this_thread::sleep_until(ready);
      return status;
    });
  }

  comm::Communicator& inner_;
  const LinkModel link_;
  Clock::time_point free_ = Clock::now();  // when the link has nothing to do any more
};

// Two steps on two ranks behind such a link; the second is traced.
RunTrace& Traced(const TrainConfig& config, const LinkModel& link, RunTrace& run) {
  data::LoaderOptions options;
  options.files = config.train_files;
  options.stages = config.loader_stages();
  options.token_map = config.token_map;
  absl::StatusOr<std::unique_ptr<data::TrainLoader>> loader =
      data::TrainLoader::Create(options, {}, 0);
  CHECK(loader.ok()) << loader.status();
  BatchSource batches(*std::move(loader), 0);
  absl::StatusOr<Device> device = OpenDevice("cpu");
  CHECK(device.ok()) << device.status();
  comm::RunRanks(
      config.world_size,
      [&](comm::Communicator& comm, kernels::Queue& queue) {
        ThrottledCommunicator slow(comm, link);
        RankTrace trace(&run, comm.rank(), queue);
        const std::unique_ptr<comm::Communicator> traced = comm::MakeTracing(slow, trace);
        absl::StatusOr<std::unique_ptr<RankTrainer>> trainer = RankTrainer::Create(
            config, *traced, *device->backend, queue, batches, nullptr, nullptr, trace);
        CHECK(trainer.ok()) << trainer.status();
        const absl::Status status = (*trainer)->Run();
        CHECK(status.ok()) << status;
      },
      absl::Minutes(2));
  return run;
}

class ThrottledLink : public testing::TestWithParam<const char*> {};

// The link takes about half a second a step, computing a few milliseconds. Of gathers that a step
// leaves in flight a traced step waits for those of the step before. The predicted times are
// those of this run's own phases. Being busy with other things, the machine lets ranks come late,
// which is not the link's, and wakes them late, for which 300 ms are allowed.
TEST_P(ThrottledLink, ExposedTimeIsWhatThePlanPredicts) {
  TrainConfig config =
      TestConfig(FreshFolder(std::string("throttled_") + GetParam()), 2, {}, GetParam());
  config.deterministic = false;
  config.world_size = 2;
  const std::vector<kernels::ParameterSpec> specs = model::ParameterSpecs(config.recipe.model);
  const absl::StatusOr<optim::StepLayout> layout = optim::PlanStep(config.recipe.optimizer, specs);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const bool tied = sched::PlanStep(config.recipe.schedules, 1).tied;
  const optim::StepKind kind = optim::KindOfStep(*layout, 1, tied);
  int64_t bytes = 0;
  for (const auto& planned : optim::PlanCollectives(*layout, kind, 2, optim::GradientWire::kF32)) {
    bytes += planned.bytes;
  }
  // Half of the bytes leave each rank.
  const LinkModel link{.shape = LinkShape::kRing,
                       .gbps = static_cast<double>(bytes) / 2 * 8 / 1e9 / 0.5,
                       .latency_us = 100};
  RunTrace run({.skip = 1, .steps = 1});
  const std::vector<TracedStep> steps = Traced(config, link, run).steps();
  ASSERT_EQ(steps.size(), 2u);
  const CollectiveTimes measured = SumCollectives(steps).Total();
  const StepPhases phases = PhasesOf(steps, {});
  std::vector<BufferWork> work(layout->buffers());
  for (int i = 0; i < layout->buffers(); ++i) {
    for (const BufferPhases& row : phases.buffers) {
      if (row.label != layout->buffer(i).label) continue;
      work[i] = {row.pack_ms / 1e3, row.update_ms / 1e3, row.unpack_ms / 1e3};
    }
  }
  const PredictedStep predicted = PredictStep(*layout, kind, 2, work, 2 * (4 + 2) * 4, link);
  const std::vector<CollectiveSpan>& spans = steps[0].collectives;
  const auto own = std::count_if(spans.begin(), spans.end(),
                                 [](const CollectiveSpan& span) { return !span.continued; });
  EXPECT_EQ(static_cast<int64_t>(predicted.collectives.size()), own);
  const double predicted_ms = 1e3 * predicted.exposed_s();
  EXPECT_GT(predicted_ms, 100);
  EXPECT_GT(measured.exposed_ms, 0.75 * predicted_ms);
  EXPECT_LT(measured.exposed_ms - measured.late_ms, predicted_ms + 300);
  std::printf("%s: exposed %.1f ms, predicted %.1f ms; late %.1f ms, computing %.1f ms\n",
              GetParam(), measured.exposed_ms, predicted_ms, measured.late_ms,
              1e3 * predicted.compute_s);
}

INSTANTIATE_TEST_SUITE_P(Records, ThrottledLink, AllRecords(), RecordName);

}  // namespace
}  // namespace tools
