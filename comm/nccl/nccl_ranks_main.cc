// Tries the NCCL backend on real ranks, one process each:
//
//   mpirun -n 2 nccl_ranks            # at most as many ranks as there are GPUs
//
// or, without a launcher, all ranks from one shell:
//
//   export NANOSPEED_WORLD_SIZE=2
//   for r in 0 1; do NANOSPEED_RANK=$r NANOSPEED_LOCAL_RANK=$r nccl_ranks & done; wait
//
// Each rank prints "rank R: N passed, M failed" and what failed; exit code 1 if anything did.
// Takes about ten seconds. The last rank leaves without a word at the end, on purpose.
// Faults that end processes are nccl_faults_main.cc's.

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "comm/checking.h"
#include "comm/nccl/nccl.h"
#include "comm/process_rank.h"
#include "kernels/cuda/cuda_backend.h"
#include "third_party/absl_compat/check.h"

namespace comm {
namespace {

using kernels::BF16;
using kernels::DType;
using kernels::Tensor;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Rank {
 public:
  Rank(const ProcessRank& where, int device) : where_(where), device_(device) {
    const absl::StatusOr<kernels::Backend*> backend = kernels::CudaBackend(device);
    CHECK(backend.ok()) << backend.status();
    backend_ = *backend;
    absl::StatusOr<std::unique_ptr<kernels::Queue>> queue = kernels::MakeCudaQueue(device, {});
    CHECK(queue.ok()) << queue.status();
    queue_ = *std::move(queue);
  }

  void Collectives();
  void ManyAtOnce();
  void CallCheck();
  void ATimeout();
  void AReason();
  void ALostRank();
  int Report() const {
    std::printf("rank %d: %d passed, %d failed\n", rank(), passed_, failed_);
    std::fflush(stdout);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  using Value = std::function<double(int64_t)>;

  int rank() const { return where_.rank; }
  int size() const { return where_.size; }
  bool last() const { return rank() == size() - 1; }

  void Expect(bool good, const std::string& what) {
    ++(good ? passed_ : failed_);
    if (good) return;
    std::printf("rank %d: FAILED %s\n", rank(), what.c_str());
    std::fflush(stdout);
  }
  void ExpectStatus(const absl::Status& status, absl::StatusCode code, absl::string_view text,
                    const std::string& what) {
    Expect(status.code() == code && status.message().find(text) != absl::string_view::npos,
           absl::StrCat(what, ": ", status.ToString()));
  }
  std::unique_ptr<Communicator> Make(absl::Duration timeout) {
    absl::StatusOr<std::unique_ptr<Communicator>> made = MakeNccl(where_, device_, timeout);
    CHECK(made.ok()) << made.status();
    return *std::move(made);
  }

  Tensor Make(DType dtype, int64_t size, const Value& value);
  void ExpectValues(const Tensor& x, double relative, const Value& value, const std::string& what);
  void Free() {
    queue_->Synchronize();
    for (void* memory : memory_) backend_->Free(memory);
    memory_.clear();
  }
  void CollectivesOf(Communicator& comm, DType dtype, int64_t n);

  const ProcessRank where_;
  const int device_;
  kernels::Backend* backend_ = nullptr;
  std::unique_ptr<kernels::Queue> queue_;
  std::vector<void*> memory_;
  int passed_ = 0, failed_ = 0;
};

Tensor Rank::Make(DType dtype, int64_t size, const Value& value) {
  void* const memory = backend_->Allocate(size * kernels::SizeOf(dtype));
  CHECK(memory != nullptr) << size;
  memory_.push_back(memory);
  const Tensor x(memory, dtype, {size}, kernels::DeviceKind::kCuda);
  if (dtype == DType::kBF16) {
    std::vector<BF16> host(size);
    for (int64_t i = 0; i < size; ++i) host[i] = kernels::ToBF16(static_cast<float>(value(i)));
    queue_->Upload(host.data(), x);
  } else {
    std::vector<float> host(size);
    for (int64_t i = 0; i < size; ++i) host[i] = static_cast<float>(value(i));
    queue_->Upload(host.data(), x);
  }
  return x;
}

void Rank::ExpectValues(const Tensor& x, double relative, const Value& value,
                        const std::string& what) {
  std::vector<float> host(x.size());
  if (x.dtype() == DType::kBF16) {
    std::vector<BF16> narrow(x.size());
    queue_->Download(x, narrow.data());
    queue_->Synchronize();
    for (int64_t i = 0; i < x.size(); ++i) host[i] = kernels::ToFloat(narrow[i]);
  } else {
    queue_->Download(x, host.data());
    queue_->Synchronize();
  }
  for (int64_t i = 0; i < x.size(); ++i) {
    const double want = value(i);
    if (std::abs(host[i] - want) <= relative * std::abs(want)) continue;
    Expect(false, absl::StrCat(what, ", element ", i, ": ", host[i], ", not ", want));
    return;
  }
  Expect(true, what);
}

// Whole numbers below 256 for up to 13 ranks, so that sums are exact in bf16 in any order.
double Input(int rank, int64_t i) { return static_cast<double>(i % 11) + rank + 1; }
double Total(int size, int64_t i) {
  return static_cast<double>(size * (i % 11)) + size * (size + 1) / 2.0;
}

void Rank::CollectivesOf(Communicator& comm, DType dtype, int64_t n) {
  const std::string with = absl::StrCat(" of ", kernels::Name(dtype), " x ", n);
  const int64_t all = n * size(), own = n * rank();
  const Value input = [&](int64_t i) { return Input(rank(), i); };
  const Value nothing = [](int64_t) { return -1.0; };
  kernels::Queue& queue = *queue_;
  // Labels are this rank's own affair, of any length.
  const std::string label(static_cast<size_t>(rank() * 300), 'x');

  const Tensor in = Make(dtype, all, input), out = Make(dtype, n, nothing);
  Expect(comm.ReduceScatter(label, in, out, ReduceOp::kSum, queue).Wait(queue).ok(), "wait" + with);
  ExpectValues(
      out, 0, [&](int64_t i) { return Total(size(), own + i); }, "reduce_scatter" + with);
  ExpectValues(in, 0, input, "input of reduce_scatter" + with);
  Expect(comm.ReduceScatter(label, in, in.Slice(own, n), ReduceOp::kSum, queue).Wait(queue).ok(),
         "wait" + with);
  ExpectValues(
      in.Slice(own, n), 0, [&](int64_t i) { return Total(size(), own + i); },
      "reduce_scatter in place" + with);

  const Tensor gathered = Make(dtype, all, nothing);
  Expect(comm.AllGather(label, out, gathered, queue).Wait(queue).ok(), "wait" + with);
  const Value total = [&](int64_t i) { return Total(size(), i); };
  ExpectValues(gathered, 0, total, "all_gather" + with);
  Expect(comm.AllGather(label, in.Slice(own, n), in, queue).Wait(queue).ok(), "wait" + with);
  ExpectValues(in, 0, total, "all_gather in place" + with);

  const Tensor x = Make(dtype, n, input);
  Expect(comm.AllReduce(label, x, ReduceOp::kSum, queue).Wait(queue).ok(), "wait" + with);
  ExpectValues(x, 0, total, "all_reduce" + with);
  for (const int root : {0, size() - 1}) {
    const Tensor sent = Make(dtype, n, input);
    Expect(comm.Broadcast(label, sent, root, queue).Wait(queue).ok(), "wait" + with);
    ExpectValues(
        sent, 0, [&](int64_t i) { return Input(root, i); }, "broadcast" + with);
  }
  if (dtype == DType::kF32) {  // multiplied by a rounded 1 / size
    const Tensor mean = Make(dtype, n, input), part = Make(dtype, n, nothing);
    Expect(comm.AllReduce(label, mean, ReduceOp::kAvg, queue).Wait(queue).ok(), "wait" + with);
    ExpectValues(
        mean, 2e-7, [&](int64_t i) { return Total(size(), i) / size(); }, "average" + with);
    const Tensor wide = Make(dtype, all, input);
    Expect(comm.ReduceScatter(label, wide, part, ReduceOp::kAvg, queue).Wait(queue).ok(),
           "wait" + with);
    ExpectValues(
        part, 2e-7, [&](int64_t i) { return Total(size(), own + i) / size(); },
        "scattered average" + with);
  }
  Free();
}

void Rank::Collectives() {
  const std::unique_ptr<Communicator> comm = Make(absl::Seconds(60));
  Expect(comm->rank() == rank() && comm->size() == size() && comm->backend() == "nccl", "names");
  for (const int64_t n : {1, 3, 1024, 65537, 1 << 21}) {
    CollectivesOf(*comm, DType::kF32, n);
    CollectivesOf(*comm, DType::kBF16, n);
    Expect(comm->Barrier(absl::StrCat("after ", n)).ok(), "barrier");
  }
}

// Futures that are waited for in another order, and inputs that are still being made.
void Rank::ManyAtOnce() {
  const std::unique_ptr<Communicator> comm = Make(absl::Seconds(60));
  std::vector<Tensor> tensors;
  std::vector<Future> futures;
  for (int k = 0; k < 64; ++k) {
    tensors.push_back(
        Make(DType::kF32, 10'000 + k, [&](int64_t i) { return Input(rank(), i) + k; }));
    futures.push_back(comm->AllReduce(absl::StrCat(k), tensors[k], ReduceOp::kSum, *queue_));
  }
  for (int k = 63; k >= 0; --k) {
    Expect(futures[k].Wait(*queue_).ok(), "wait");
    ExpectValues(
        tensors[k], 0, [&](int64_t i) { return Total(size(), i) + size() * k; },
        absl::StrCat("number ", k));
  }
  Free();
}

// Each kind of difference, found before the call and with both sides named.
void Rank::CallCheck() {
  const Tensor x = Make(DType::kF32, 8, [](int64_t) { return 1.0; });
  const Tensor narrow = Make(DType::kBF16, 8, [](int64_t) { return 1.0; });
  kernels::Queue& queue = *queue_;
  const auto differ = [&](const std::string& what, const std::string& others,
                          const std::string& lasts,
                          const std::function<absl::Status(Communicator&)>& call) {
    const std::unique_ptr<Communicator> comm = MakeChecking(Make(absl::Seconds(60)));
    Expect(comm->AllReduce("same", x, ReduceOp::kSum, queue).Wait(queue).ok(), "same calls");
    Expect(comm->Barrier("same").ok(), "same barriers");
    const std::string text = absl::StrCat("collective 2: rank 0 calls ", others, ", rank ",
                                          size() - 1, " calls ", lasts);
    ExpectStatus(call(*comm), absl::StatusCode::kAborted, text, what);
  };
  const auto all_reduce = [&](Communicator& comm, absl::string_view label, const Tensor& tensor) {
    return comm.AllReduce(label, tensor, ReduceOp::kSum, queue).Wait(queue);
  };
  differ("C2 size", "all_reduce(g, f32 x 4, sum)", "all_reduce(g, f32 x 8, sum)",
         [&](Communicator& comm) { return all_reduce(comm, "g", last() ? x : x.Slice(0, 4)); });
  differ("C2 dtype", "all_reduce(g, f32 x 8, sum)", "all_reduce(g, bf16 x 8, sum)",
         [&](Communicator& comm) { return all_reduce(comm, "g", last() ? narrow : x); });
  differ("C2 label", "all_reduce(attn, f32 x 8, sum)", "all_reduce(mlp, f32 x 8, sum)",
         [&](Communicator& comm) { return all_reduce(comm, last() ? "mlp" : "attn", x); });
  differ("C2 op", "all_reduce(g, f32 x 8, sum)", "broadcast(g, f32 x 8, root 0)",
         [&](Communicator& comm) {
           return last() ? comm.Broadcast("g", x, 0, queue).Wait(queue) : all_reduce(comm, "g", x);
         });
  differ("C3 order", "all_reduce(g, f32 x 8, sum)", "barrier(checkpoint)", [&](Communicator& comm) {
    return last() ? comm.Barrier("checkpoint") : all_reduce(comm, "g", x);
  });
  Free();
}

// The last rank skips a collective. The host of the others is inside of CUDA meanwhile.
void Rank::ATimeout() {
  const std::unique_ptr<Communicator> comm = Make(absl::Seconds(2));
  Expect(comm->Barrier("together").ok(), "barrier");
  const auto start = std::chrono::steady_clock::now();
  if (last()) {
    std::this_thread::sleep_for(std::chrono::seconds(4));
    ExpectStatus(comm->Barrier("late"), absl::StatusCode::kUnavailable, "gave up", "late rank");
    return;
  }
  const Tensor x = Make(DType::kF32, 1000, [](int64_t) { return 1.0; });
  Future first = comm->AllReduce("skipped", x, ReduceOp::kSum, *queue_);
  Expect(first.Wait(*queue_).ok(), "enqueued");
  queue_->Synchronize();
  const absl::Status status = comm->AllReduce("next", x, ReduceOp::kSum, *queue_).Wait(*queue_);
  // With three ranks or more the others may hear of it before they notice.
  const bool heard = size() > 2 && absl::IsUnavailable(status);
  ExpectStatus(status, heard ? absl::StatusCode::kUnavailable : absl::StatusCode::kDeadlineExceeded,
               "skipped", "C3");
  ExpectStatus(status, status.code(),
               absl::StrCat("differs: rank ", size() - 1,
                            " is behind: it has not called collective 1, all_reduce(skipped"),
               "C3 report");
  Expect(comm->Barrier("b") == status, "barrier afterwards");
  const double seconds = SecondsSince(start);
  Expect(seconds > 1.5 && seconds < 6, absl::StrCat("timeout of 2 s after ", seconds, " s"));
  Free();
}

void Rank::AReason() {
  const std::unique_ptr<Communicator> comm = Make(absl::Seconds(60));
  Expect(comm->Barrier("together").ok(), "barrier");
  const auto start = std::chrono::steady_clock::now();
  if (last()) {
    comm->Abort(absl::DataLossError("shard 7 is torn"));
    ExpectStatus(comm->Barrier("b"), absl::StatusCode::kUnavailable, "shard 7", "own abort");
    return;
  }
  const absl::Status status = comm->Barrier("b");
  ExpectStatus(status, absl::StatusCode::kUnavailable, "shard 7 is torn", "another's abort");
  Expect(SecondsSince(start) < 10, "abort in time");
}

// The last rank's process ends in the midst of things.
void Rank::ALostRank() {
  const std::unique_ptr<Communicator> comm = Make(absl::Seconds(60));
  Expect(comm->Barrier("together").ok(), "barrier");
  if (last()) _exit(Report());
  const auto start = std::chrono::steady_clock::now();
  const Tensor x = Make(DType::kF32, 1000, [](int64_t) { return 1.0; });
  comm->AllReduce("x", x, ReduceOp::kSum, *queue_).Wait(*queue_).IgnoreError();
  queue_->Synchronize();
  ExpectStatus(comm->Barrier("b"), absl::StatusCode::kUnavailable,
               absl::StrCat("\n  rank ", size() - 1, " is lost"), "C4");
  Expect(SecondsSince(start) < 10, "lost rank in time");
  Free();
}

int Main() {
  const absl::StatusOr<ProcessRank> where = GetProcessRank();
  CHECK(where.ok()) << where.status();
  CHECK(where->size >= 2) << "start it with mpirun -n 2";
  const absl::StatusOr<int> device = DeviceOfRank(*where);
  CHECK(device.ok()) << device.status();
  Rank rank(*where, *device);
  rank.Collectives();
  rank.ManyAtOnce();
  rank.CallCheck();
  rank.ATimeout();
  rank.AReason();
  rank.ALostRank();
  return rank.Report();
}

}  // namespace
}  // namespace comm

int main() { return comm::Main(); }
