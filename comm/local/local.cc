#include "comm/local/local.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/alone.h"
#include "comm/flight_record.h"
#include "comm/local/reduce.h"
#include "third_party/absl_compat/check.h"

namespace comm {
namespace {

using kernels::Tensor;

// What one rank brings to a collective.
struct Part {
  bool arrived = false;
  std::string call;   // for messages: "reduce_scatter(group 3, f32 x 1024, sum)"
  int64_t bytes = 0;  // of the larger of in and out
  Tensor in = {}, out = {};
  RowCounts rows = {};  // kAllToAllRows
};

struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::vector<Part> parts;
  int arrived = 0;
  int left_to_leave = 0;  // ranks that have not seen the end yet
  bool running = false;   // a thread is moving data: buffers are in use
  bool done = false;
};

class Group : public LocalGroup, public std::enable_shared_from_this<Group> {
 public:
  Group(int size, absl::Duration timeout, FailureListener on_failure)
      : size_(size),
        timeout_(std::min(timeout, absl::Hours(24 * 365))),
        on_failure_(std::move(on_failure)),
        gone_(size, false) {
    for (int rank = 0; rank < size; ++rank) records_.emplace_back(rank);
  }

  std::unique_ptr<Communicator> Join(int rank) override;
  int size() const { return size_; }

  // Registers `part` as the rank's next collective and returns its number; the last rank to arrive
  // moves the data on its own thread.
  int64_t Post(int rank, CollectiveKind kind, ReduceOp op, int root, Part part) {
    Collective* ready = nullptr;
    int64_t number = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      number = records_[rank].Start(part.call, part.bytes);
      Collective& collective = pending_[number];
      if (collective.parts.empty()) {
        collective.parts.resize(size_);
        collective.kind = kind;
        collective.op = op;
        collective.root = root;
        collective.left_to_leave = size_;
      }
      for (int other = 0; other < size_ && failure_.ok(); ++other) {
        const Part& first = collective.parts[other];
        if (first.arrived && first.call != part.call) {
          Fail(absl::AbortedError(absl::StrCat("ranks disagree in collective ", number, ": rank ",
                                               other, " calls ", first.call, ", rank ", rank,
                                               " calls ", part.call)));
        }
      }
      collective.parts[rank] = std::move(part);
      collective.parts[rank].arrived = true;
      ++collective.arrived;
      if (collective.arrived == size_ && failure_.ok()) CheckCounts(number, collective);
      if (collective.arrived == size_ && failure_.ok()) {
        collective.running = true;
        ready = &collective;
      }
    }
    if (ready != nullptr) {
      Move(*ready);
      std::lock_guard<std::mutex> lock(mutex_);
      ready->running = false;
      ready->done = true;
      for (FlightRecord& record : records_) record.Finish(number);
    }
    changed_.notify_all();
    return number;
  }

  absl::Status Wait(int64_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    Collective& collective = pending_.at(number);
    const auto settled = [&] {
      return collective.done ||
             (!collective.running && (!failure_.ok() || LostRank(collective) >= 0));
    };
    if (!changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout_), settled)) {
      if (collective.running) {  // data is moving: that ends by itself
        changed_.wait(lock, settled);
      } else {
        Fail(absl::DeadlineExceededError(absl::StrCat(
            "timeout after ", absl::FormatDuration(timeout_), " in collective ", number, ", ",
            AnyCall(collective), ": not called by rank ", Missing(collective),
            "; is that rank stuck, or slower than --comm_timeout?\n", Report())));
      }
    }
    absl::Status status;
    if (!collective.done) {
      if (failure_.ok()) {
        Fail(absl::UnavailableError(absl::StrCat("rank ", LostRank(collective),
                                                 " is gone, in collective ", number, ", ",
                                                 AnyCall(collective), "\n", Report())));
      }
      status = failure_;
    }
    if (--collective.left_to_leave == 0) pending_.erase(number);
    return status;
  }

  void Abort(int rank, const absl::Status& reason) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return;
    Fail(absl::UnavailableError(absl::StrCat("rank ", rank, " gave up: ", reason.ToString())));
  }

  void Leave(int rank) {
    std::lock_guard<std::mutex> lock(mutex_);
    gone_[rank] = true;
    changed_.notify_all();
  }

 private:
  void Fail(const absl::Status& status) {
    failure_ = status;
    if (on_failure_) on_failure_(status);
    changed_.notify_all();
  }

  // Whether what each rank sends is what the other expects.
  void CheckCounts(int64_t number, const Collective& collective) {
    if (collective.kind != CollectiveKind::kAllToAllRows) return;
    for (int from = 0; from < size_; ++from) {
      for (int to = 0; to < size_; ++to) {
        const absl::Status status = CompareCounts(number, collective.parts[from].call, from,
                                                  collective.parts[from].rows.send[to], to,
                                                  collective.parts[to].rows.receive[from]);
        if (!status.ok()) return Fail(status);
      }
    }
  }

  // Of all ranks, without the last line's end.
  std::string Report() const {
    std::vector<RankState> states;
    for (int rank = 0; rank < size_; ++rank) {
      states.push_back({.kind = gone_[rank] ? RankState::kLeft : RankState::kHere,
                        .progress = records_[rank].Now()});
    }
    std::string text = ReportText(states);
    text.pop_back();
    return text;
  }

  // The lowest rank that has not called, as text.
  std::string Missing(const Collective& collective) const {
    for (int rank = 0; rank < size_; ++rank) {
      if (!collective.parts[rank].arrived) return absl::StrCat(rank);
    }
    return "?";
  }

  std::string AnyCall(const Collective& collective) const {
    for (const Part& part : collective.parts) {
      if (part.arrived) return part.call;
    }
    return "?";
  }

  // The lowest rank that left without calling, or -1.
  int LostRank(const Collective& collective) const {
    for (int rank = 0; rank < size_; ++rank) {
      if (gone_[rank] && !collective.parts[rank].arrived) return rank;
    }
    return -1;
  }

  void Move(const Collective& collective) const {
    std::vector<Tensor> in, out;
    std::vector<RowCounts> rows;
    for (const Part& part : collective.parts) {
      in.push_back(part.in);
      out.push_back(part.out);
      rows.push_back(part.rows);
    }
    if (collective.kind == CollectiveKind::kAllToAllRows) return MoveRows(rows, in, out);
    MoveData(collective.kind, collective.op, collective.root, in, out);
  }

  const int size_;
  const absl::Duration timeout_;
  const FailureListener on_failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Collective> pending_;
  std::vector<bool> gone_;
  std::deque<FlightRecord> records_;  // by rank; a deque, as they do not move
  absl::Status failure_;              // once set, it stays: ranks are no longer in step
};

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~LocalCommunicator() override { group_->Leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  absl::string_view backend() const override { return "local"; }

  Future ReduceScatter(absl::string_view label, Tensor in, Tensor out, ReduceOp op,
                       kernels::Queue& queue) override {
    CHECK_EQ(in.size(), out.size() * size()) << label;
    CHECK_EQ(in.dtype(), out.dtype()) << label;
    if (!IsCpu(queue)) return size() == 1 ? alone_->ReduceScatter(label, in, out, op, queue) : No();
    return Post("reduce_scatter", label, Name(op), CollectiveKind::kReduceScatter, in, out, op, 0,
                queue);
  }
  Future AllGather(absl::string_view label, Tensor in, Tensor out, kernels::Queue& queue) override {
    CHECK_EQ(out.size(), in.size() * size()) << label;
    CHECK_EQ(in.dtype(), out.dtype()) << label;
    if (!IsCpu(queue)) return size() == 1 ? alone_->AllGather(label, in, out, queue) : No();
    return Post("all_gather", label, "", CollectiveKind::kAllGather, in, out, ReduceOp::kSum, 0,
                queue);
  }
  Future AllReduce(absl::string_view label, Tensor x, ReduceOp op, kernels::Queue& queue) override {
    if (!IsCpu(queue)) return size() == 1 ? alone_->AllReduce(label, x, op, queue) : No();
    return Post("all_reduce", label, Name(op), CollectiveKind::kAllReduce, x, x, op, 0, queue);
  }
  Future Broadcast(absl::string_view label, Tensor x, int root, kernels::Queue& queue) override {
    CHECK(root >= 0 && root < size()) << label << ": root " << root;
    if (!IsCpu(queue)) return size() == 1 ? alone_->Broadcast(label, x, root, queue) : No();
    return Post("broadcast", label, absl::StrCat("root ", root), CollectiveKind::kBroadcast, x, x,
                ReduceOp::kSum, root, queue);
  }
  Future AllToAllRows(absl::string_view label, Tensor in, absl::Span<const int64_t> send_counts,
                      Tensor out, absl::Span<const int64_t> receive_counts,
                      kernels::Queue& queue) override {
    CheckRows(label, size(), in, send_counts, out, receive_counts);
    if (!IsCpu(queue)) {
      return size() == 1 ? alone_->AllToAllRows(label, in, send_counts, out, receive_counts, queue)
                         : No();
    }
    const int64_t rows = std::max(SumOfCounts(send_counts), SumOfCounts(receive_counts));
    return Post(CollectiveKind::kAllToAllRows, ReduceOp::kSum, 0,
                Part{.call = DescribeRows(label, in),
                     .bytes = rows * RowBytes(in),
                     .in = in,
                     .out = out,
                     .rows = {.send = {send_counts.begin(), send_counts.end()},
                              .receive = {receive_counts.begin(), receive_counts.end()}}},
                queue);
  }
  absl::Status Barrier(absl::string_view label) override {
    return group_->Wait(group_->Post(rank_, CollectiveKind::kBarrier, ReduceOp::kSum, 0,
                                     Part{.call = absl::StrCat("barrier(", label, ")")}));
  }
  void Abort(const absl::Status& reason) override {
    group_->Abort(rank_, reason);
    alone_->Abort(reason);
  }

 private:
  static bool IsCpu(const kernels::Queue& queue) {
    return queue.device() == kernels::DeviceKind::kCpu;
  }
  static Future No() {
    return Future([](kernels::Queue&) {
      return absl::FailedPreconditionError(
          "the local backend moves CPU tensors only; build with --config=nccl for several GPUs");
    });
  }

  Future Post(absl::string_view name, absl::string_view label, absl::string_view detail,
              CollectiveKind kind, Tensor in, Tensor out, ReduceOp op, int root,
              kernels::Queue& queue) {
    return Post(kind, op, root,
                Part{.call = DescribeCall(name, label, in, detail),
                     .bytes = std::max(in.bytes(), out.bytes()),
                     .in = in,
                     .out = out},
                queue);
  }
  Future Post(CollectiveKind kind, ReduceOp op, int root, Part part, kernels::Queue& queue) {
    CHECK(queue.device() == kernels::DeviceKind::kCpu) << "the local backend moves CPU tensors";
    queue.Synchronize();  // the inputs exist before another thread may read them
    const int64_t number = group_->Post(rank_, kind, op, root, std::move(part));
    return Future([group = group_, number](kernels::Queue&) { return group->Wait(number); });
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  // A queue of another device, possible with one rank only.
  const std::unique_ptr<Communicator> alone_ = MakeAlone("local");
};

std::unique_ptr<Communicator> Group::Join(int rank) {
  CHECK(rank >= 0 && rank < size_) << "rank " << rank << " of " << size_;
  return std::make_unique<LocalCommunicator>(shared_from_this(), rank);
}

}  // namespace

std::shared_ptr<LocalGroup> LocalGroup::Create(int size, absl::Duration timeout,
                                               FailureListener on_failure) {
  CHECK_GE(size, 1);
  return std::make_shared<Group>(size, timeout, std::move(on_failure));
}

}  // namespace comm
