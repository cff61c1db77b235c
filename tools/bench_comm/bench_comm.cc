// Times the collectives of this build's communication engine, and fits the link that --plan
// --ranks takes:
//
//   bazel run -c opt //tools/bench_comm -- --world_size=4
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm/communicator.h"
#include "kernels/arena.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/bench_comm/link_fit.h"
#include "tools/command_line.h"
#include "tools/composition.h"
#include "tools/trainer/device.h"
#include "tools/trainer/ranks.h"
#include "tools/trainer/train_config.h"

ABSL_FLAG(int64_t, world_size, 0, "Ranks, at least 2. 0: as many as were started.");
ABSL_FLAG(std::string, device, "", "cpu or cuda. Empty: the best that this program has.");
ABSL_FLAG(int64_t, max_mib, 16, "The largest buffer.");
ABSL_FLAG(int64_t, repeats, 20, "Collectives timed of each size; the median counts.");

namespace tools {
namespace {

constexpr int64_t kSmallest = 4096;  // bytes

// The middle one of `repeats` times of one collective, waited for by the host, from a barrier on.
absl::StatusOr<double> MedianSeconds(comm::Communicator& comm, const std::string& collective,
                                     kernels::Tensor x, int64_t repeats, kernels::Queue& queue) {
  const int64_t chunk = x.size() / comm.size();
  const kernels::Tensor own = x.Slice(comm.rank() * chunk, chunk);
  std::vector<double> seconds;
  for (int64_t i = 0; i < repeats + 2; ++i) {  // two to warm up
    queue.Synchronize();
    ABSL_RETURN_IF_ERROR(comm.Barrier("bench"));
    const auto begin = std::chrono::steady_clock::now();
    comm::Future done = collective == "reduce_scatter"
                            ? comm.ReduceScatter("bench", x, own, comm::ReduceOp::kSum, queue)
                        : collective == "all_gather"
                            ? comm.AllGather("bench", own, x, queue)
                            : comm.AllReduce("bench", x, comm::ReduceOp::kSum, queue);
    ABSL_RETURN_IF_ERROR(done.Wait(queue));
    queue.Synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (i >= 2) seconds.push_back(took.count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

std::string Report(const std::vector<TimedCollective>& timed, int ranks) {
  std::string text =
      absl::StrFormat("%-16s %12s %12s %16s\n", "collective", "bytes", "us", "Gbit/s a rank");
  for (const TimedCollective& t : timed) {
    const double gbps = 8e-9 * static_cast<double>(t.bytes) * (ranks - 1) / ranks / t.seconds *
                        (t.collective == "all_reduce" ? 2 : 1);
    absl::StrAppendFormat(&text, "%-16s %12d %12.1f %16.2f\n", t.collective, t.bytes,
                          t.seconds * 1e6, gbps);
  }
  for (const auto& [name, shape] :
       {std::pair("ring", LinkShape::kRing), {"tree", LinkShape::kTree}}) {
    const LinkFit fit = FitLink(timed, ranks, shape);
    absl::StrAppendFormat(
        &text,
        "--link_shape=%s --link_gbps=%.2f --latency_us=%.1f  off by a factor of %.2f at most\n",
        name, fit.link.gbps, fit.link.latency_us, fit.worst_ratio);
  }
  return text;
}

absl::Status RunRank(const TrainConfig& config, comm::Communicator& comm, int gpu) {
  const int64_t ranks = comm.size();
  const int64_t largest = absl::GetFlag(FLAGS_max_mib) << 20;
  ABSL_ASSIGN_OR_RETURN(const Device device, OpenDevice(config.device, gpu));
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Queue> queue,
                        device.make_queue({.threads = 1, .deterministic = false}));
  kernels::ArenaPlan plan;
  // Buffers are cut into equal chunks: a whole number of elements for each rank.
  const kernels::TensorId id =
      plan.Add("bench", kernels::DType::kF32, {(largest / 4 + ranks - 1) / ranks * ranks});
  ABSL_ASSIGN_OR_RETURN(const kernels::Arena arena, kernels::Arena::Create(plan, *device.backend));
  std::vector<TimedCollective> timed;
  for (int64_t bytes = kSmallest; bytes <= largest; bytes *= 4) {
    const int64_t elements = (bytes / 4 + ranks - 1) / ranks * ranks;
    const kernels::Tensor x = arena.Get(id).Slice(0, elements);
    for (const char* collective : {"reduce_scatter", "all_gather", "all_reduce"}) {
      ABSL_ASSIGN_OR_RETURN(
          const double seconds,
          MedianSeconds(comm, collective, x, absl::GetFlag(FLAGS_repeats), *queue));
      timed.push_back({collective, x.bytes(), seconds});
    }
  }
  if (comm.rank() == 0) {
    std::fputs(absl::StrCat(CompositionText("bench_comm"), "\n", device.description, ", ", ranks,
                            " ranks by ", std::string(comm.backend()), "\n",
                            Report(timed, static_cast<int>(ranks)))
                   .c_str(),
               stdout);
  }
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& arguments) {
  ABSL_RETURN_IF_ERROR(NoArguments(arguments));
  ABSL_ASSIGN_OR_RETURN(const Processes processes, ProcessesOfRun());
  TrainConfig config;
  const int64_t world_size = absl::GetFlag(FLAGS_world_size);
  config.world_size = world_size == 0 ? processes.size : static_cast<int>(world_size);
  config.device = absl::GetFlag(FLAGS_device);
  config.gpu = processes.gpu;
  const struct {
    const char* flag;
    int64_t value, low, high;
  } ranges[] = {{"world_size", config.world_size, 2, 4096},
                {"max_mib", absl::GetFlag(FLAGS_max_mib), 1, 16384},
                {"repeats", absl::GetFlag(FLAGS_repeats), 1, 100000}};
  for (const auto& range : ranges) {
    if (range.value >= range.low && range.value <= range.high) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", range.flag, "=", range.value, ": must be from ", range.low, " to ", range.high));
  }
  return RunRanks(config,
                  [&](comm::Communicator& comm, int gpu) { return RunRank(config, comm, gpu); });
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "bench_comm",
      .summary = "times collectives, and fits the link's rate and latency that --plan takes.",
      .usage = "bazel run [--config=nccl|mpi] //tools/bench_comm -- [flags]",
      .examples = {{"ranks that are threads", "bazel run //tools/bench_comm -- --world_size=4"}},
      .groups = {{"Ranks", {"world_size", "device"}}, {"Measurement", {"max_mib", "repeats"}}}};
  return tools::RunTool(argc, argv, help, tools::Run);
}
