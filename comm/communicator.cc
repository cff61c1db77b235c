#include "comm/communicator.h"

#include <numeric>

#include "third_party/absl_compat/check.h"

namespace comm {

Future& Future::operator=(Future&& other) noexcept {
  CHECK(!valid()) << "a future was overwritten before it was waited for";
  wait_ = std::exchange(other.wait_, nullptr);
  return *this;
}

Future::~Future() { CHECK(!valid()) << "a future was dropped before it was waited for"; }

absl::Status Future::Wait(kernels::Queue& queue) {
  CHECK(valid()) << "a future was waited for twice";
  return std::exchange(wait_, nullptr)(queue);
}

int64_t SumOfCounts(absl::Span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t RowBytes(const kernels::Tensor& x) { return x.bytes() / x.dim(0); }

void CheckRows(absl::string_view label, int size, const kernels::Tensor& in,
               absl::Span<const int64_t> send_counts, const kernels::Tensor& out,
               absl::Span<const int64_t> receive_counts) {
  CHECK(in.rank() > 0 && out.rank() > 0 && in.dim(0) > 0 && out.dim(0) > 0)
      << label << ": in " << in << ", out " << out;
  CHECK_EQ(in.dtype(), out.dtype()) << label;
  CHECK_EQ(RowBytes(in), RowBytes(out)) << label;
  CHECK_EQ(static_cast<int>(send_counts.size()), size) << label;
  CHECK_EQ(static_cast<int>(receive_counts.size()), size) << label;
  for (const absl::Span<const int64_t> counts : {send_counts, receive_counts}) {
    for (const int64_t count : counts) CHECK_GE(count, 0) << label;
  }
  CHECK_LE(SumOfCounts(send_counts), in.dim(0)) << label;
  CHECK_LE(SumOfCounts(receive_counts), out.dim(0)) << label;
}

}  // namespace comm
