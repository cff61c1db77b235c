#include "comm/mpi/mpi.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/alone.h"
#include "comm/flight_record.h"
#include "comm/local/reduce.h"
#include "comm/mpi/mpi_link.h"
#include "comm/mpi/mpi_moves.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace comm {
namespace {

using kernels::DeviceKind;
using kernels::DType;
using kernels::Tensor;

Future Failed(const absl::Status& status) {
  return Future([status](kernels::Queue&) { return status; });
}

// Tensors of `size` ranks that lie one after the other.
std::vector<Tensor> Parts(void* memory, DType dtype, int64_t elements, int size) {
  std::vector<Tensor> parts;
  for (int rank = 0; rank < size; ++rank) {
    char* const begin = static_cast<char*>(memory) + rank * elements * kernels::SizeOf(dtype);
    parts.emplace_back(begin, dtype, std::vector<int64_t>{elements});
  }
  return parts;
}

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiLink> link, int64_t piece)
      : link_(std::move(link)), piece_(piece) {}
  ~MpiCommunicator() override { link_->Close(); }

  int rank() const override { return link_->rank(); }
  int size() const override { return link_->size(); }
  absl::string_view backend() const override { return "mpi"; }

  Future ReduceScatter(absl::string_view label, Tensor in, Tensor out, ReduceOp op,
                       kernels::Queue& queue) override {
    CHECK_EQ(in.size(), out.size() * size()) << label;
    CHECK_EQ(in.dtype(), out.dtype()) << label;
    CheckReducible(label, in);
    const auto operation = std::make_shared<MpiOperation>();
    operation->call = DescribeCall("reduce_scatter", label, in, Name(op));
    return Start(operation, in, queue, [&] {
      char* const received = Scratch(*operation, in.bytes());
      operation->first = AllToAll(in.data(), received, out.bytes(), piece_);
      operation->after_first = [=, parts = Parts(received, in.dtype(), out.size(), size())] {
        AddInRankOrder(parts, op, out);
      };
    });
  }

  Future AllGather(absl::string_view label, Tensor in, Tensor out, kernels::Queue& queue) override {
    CHECK_EQ(out.size(), in.size() * size()) << label;
    CHECK_EQ(in.dtype(), out.dtype()) << label;
    const auto operation = std::make_shared<MpiOperation>();
    operation->call = DescribeCall("all_gather", label, in, "");
    return Start(operation, out, queue, [&] {
      operation->first = comm::AllGather(in.data(), out.data(), in.bytes(), piece_);
    });
  }

  // Each rank sums its share of the elements, which are padded with zeros to equal shares.
  Future AllReduce(absl::string_view label, Tensor x, ReduceOp op, kernels::Queue& queue) override {
    CheckReducible(label, x);
    const auto operation = std::make_shared<MpiOperation>();
    operation->call = DescribeCall("all_reduce", label, x, Name(op));
    return Start(operation, x, queue, [&] {
      const int64_t share = (x.size() + size() - 1) / size();
      const int64_t share_bytes = share * kernels::SizeOf(x.dtype());
      char* const padded = Scratch(*operation, size() * share_bytes);
      char* const received = Scratch(*operation, size() * share_bytes);
      std::memcpy(padded, x.data(), x.bytes());
      std::memset(padded + x.bytes(), 0, size() * share_bytes - x.bytes());
      operation->first = AllToAll(padded, received, share_bytes, piece_);
      const Tensor own = Parts(padded, x.dtype(), share, size())[rank()];
      operation->after_first = [=, parts = Parts(received, x.dtype(), share, size())] {
        AddInRankOrder(parts, op, own);
      };
      operation->second = comm::AllGather(own.data(), padded, share_bytes, piece_);
      operation->after_second = [=] { std::memcpy(x.data(), padded, x.bytes()); };
    });
  }

  Future Broadcast(absl::string_view label, Tensor x, int root, kernels::Queue& queue) override {
    CHECK(root >= 0 && root < size()) << label << ": root " << root;
    const auto operation = std::make_shared<MpiOperation>();
    operation->call = DescribeCall("broadcast", label, x, absl::StrCat("root ", root));
    return Start(operation, x, queue,
                 [&] { operation->first = comm::Broadcast(x.data(), x.bytes(), root, piece_); });
  }

  Future AllToAllRows(absl::string_view label, Tensor in, absl::Span<const int64_t> send_counts,
                      Tensor out, absl::Span<const int64_t> receive_counts,
                      kernels::Queue& queue) override {
    CheckRows(label, size(), in, send_counts, out, receive_counts);
    const auto operation = std::make_shared<MpiOperation>();
    operation->call = DescribeRows(label, in);
    const int64_t rows = std::max(SumOfCounts(send_counts), SumOfCounts(receive_counts));
    // A rank without rows takes part as well: the others cannot know.
    return Launch(operation, rows * RowBytes(in), queue, [&] {
      operation->first =
          comm::AllToAllRows(in.data(), {send_counts.begin(), send_counts.end()}, out.data(),
                             {receive_counts.begin(), receive_counts.end()}, RowBytes(in));
    });
  }

  absl::Status Barrier(absl::string_view label) override {
    const auto operation = std::make_shared<MpiOperation>();
    operation->call = absl::StrCat("barrier(", label, ")");
    operation->first = comm::Barrier();
    link_->Launch(operation, 0);
    return link_->Wait(*operation);
  }

  void Abort(const absl::Status& reason) override { link_->Abort(reason); }

 private:
  static void CheckReducible(absl::string_view label, const Tensor& x) {
    CHECK(x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) << label << ": reduction of " << x;
  }

  char* Scratch(MpiOperation& operation, int64_t bytes) {
    operation.scratch.push_back(link_->Scratch(bytes));
    return operation.scratch.back()->data();
  }

  // Launches what `compose` completes; `larger` is the larger of input and output.
  template <typename Compose>
  Future Start(const std::shared_ptr<MpiOperation>& operation, const Tensor& larger,
               kernels::Queue& queue, Compose compose) {
    if (larger.size() == 0 && queue.device() == DeviceKind::kCpu) {
      return Future([](kernels::Queue&) { return absl::OkStatus(); });
    }
    return Launch(operation, larger.bytes(), queue, compose);
  }
  template <typename Compose>
  Future Launch(const std::shared_ptr<MpiOperation>& operation, int64_t bytes,
                kernels::Queue& queue, Compose compose) {
    if (queue.device() != DeviceKind::kCpu) {
      return Failed(absl::FailedPreconditionError(
          "several ranks of the mpi backend compute on CPUs; build with --config=nccl for several "
          "GPUs"));
    }
    queue.Synchronize();  // the inputs exist before another thread may read them
    compose();
    link_->Launch(operation, bytes);
    return Future([link = link_, operation](kernels::Queue&) { return link->Wait(*operation); });
  }

  const std::shared_ptr<MpiLink> link_;
  const int64_t piece_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeMpi(const ProcessRank& where,
                                                      absl::Duration timeout,
                                                      FailureListener on_failure,
                                                      int64_t piece_bytes) {
  CHECK(piece_bytes > 0 && piece_bytes <= kMpiPieceBytes) << piece_bytes;
  if (where.size == 1) return MakeAlone("mpi");
  ABSL_ASSIGN_OR_RETURN(std::shared_ptr<MpiLink> link,
                        MpiLink::Connect(where, timeout, std::move(on_failure)));
  return std::make_unique<MpiCommunicator>(std::move(link), piece_bytes);
}

}  // namespace comm
