#include "comm/local/reduce.h"

#include <algorithm>
#include <cstring>

#include "third_party/absl_compat/check.h"

namespace comm {
namespace {

using kernels::BF16;
using kernels::DType;
using kernels::Tensor;

float Load(const float* p) { return *p; }
float Load(const BF16* p) { return kernels::ToFloat(*p); }
void Store(float v, float* p) { *p = v; }
void Store(float v, BF16* p) { *p = kernels::ToBF16(v); }

// Element i of the sum, divided, goes to element i of each tensor in `to`. By blocks, in which the
// compiler adds several elements at once; each is added in the same order.
template <typename T>
void Reduce(const std::vector<const T*>& from, const std::vector<T*>& to, int64_t n,
            float divisor) {
  constexpr int64_t kBlock = 512;
  float sums[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    for (int64_t i = 0; i < count; ++i) sums[i] = Load(from[0] + begin + i);
    for (size_t rank = 1; rank < from.size(); ++rank) {
      for (int64_t i = 0; i < count; ++i) sums[i] += Load(from[rank] + begin + i);
    }
    for (T* p : to) {
      for (int64_t i = 0; i < count; ++i) Store(sums[i] / divisor, p + begin + i);
    }
  }
}

template <typename T>
void ReduceScatterAs(const std::vector<Tensor>& in, const std::vector<Tensor>& out, float divisor) {
  const int64_t n = out[0].size();
  for (size_t owner = 0; owner < out.size(); ++owner) {
    std::vector<const T*> from;
    for (const Tensor& t : in) from.push_back(static_cast<const T*>(t.data()) + owner * n);
    Reduce<T>(from, {static_cast<T*>(out[owner].data())}, n, divisor);
  }
}

template <typename T>
void AllReduceAs(const std::vector<Tensor>& x, float divisor) {
  std::vector<const T*> from;
  std::vector<T*> to;
  for (const Tensor& t : x) {
    from.push_back(static_cast<const T*>(t.data()));
    to.push_back(static_cast<T*>(t.data()));
  }
  Reduce<T>(from, to, x[0].size(), divisor);
}

void CopyBytes(const Tensor& from, char* to) {
  if (to != from.data()) std::memcpy(to, from.data(), from.bytes());
}

template <typename T>
void AddAs(const std::vector<Tensor>& parts, float divisor, const Tensor& out) {
  std::vector<const T*> from;
  for (const Tensor& part : parts) from.push_back(static_cast<const T*>(part.data()));
  Reduce<T>(from, {static_cast<T*>(out.data())}, out.size(), divisor);
}

float Divisor(ReduceOp op, size_t ranks) {
  return op == ReduceOp::kAvg ? static_cast<float>(ranks) : 1.0f;
}

}  // namespace

void AddInRankOrder(const std::vector<Tensor>& parts, ReduceOp op, Tensor out) {
  CHECK(out.dtype() == DType::kF32 || out.dtype() == DType::kBF16) << "reduction of " << out;
  const float divisor = Divisor(op, parts.size());
  out.dtype() == DType::kF32 ? AddAs<float>(parts, divisor, out) : AddAs<BF16>(parts, divisor, out);
}

void MoveData(CollectiveKind kind, ReduceOp op, int root, const std::vector<Tensor>& in,
              const std::vector<Tensor>& out) {
  const float divisor = Divisor(op, in.size());
  const bool f32 = in[0].dtype() == DType::kF32;
  if (kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce) {
    CHECK(f32 || in[0].dtype() == DType::kBF16) << "reduction of " << in[0];
  }
  switch (kind) {
    case CollectiveKind::kReduceScatter:
      f32 ? ReduceScatterAs<float>(in, out, divisor) : ReduceScatterAs<BF16>(in, out, divisor);
      break;
    case CollectiveKind::kAllReduce:
      f32 ? AllReduceAs<float>(in, divisor) : AllReduceAs<BF16>(in, divisor);
      break;
    case CollectiveKind::kAllGather:
      for (const Tensor& to : out) {
        for (size_t rank = 0; rank < in.size(); ++rank) {
          CopyBytes(in[rank], static_cast<char*>(to.data()) + rank * in[rank].bytes());
        }
      }
      break;
    case CollectiveKind::kBroadcast:
      for (const Tensor& to : out) CopyBytes(in[root], static_cast<char*>(to.data()));
      break;
    case CollectiveKind::kAllToAllRows:
      CHECK(false) << "rows are MoveRows'";
      break;
    case CollectiveKind::kBarrier:
      break;
  }
}

void MoveRows(const std::vector<RowCounts>& counts, const std::vector<Tensor>& in,
              const std::vector<Tensor>& out) {
  const size_t size = counts.size();
  for (size_t from = 0; from < size; ++from) {
    const int64_t row = RowBytes(in[from]);
    const char* source = static_cast<const char*>(in[from].data());
    for (size_t to = 0; to < size; ++to) {
      const int64_t bytes = counts[from].send[to] * row;
      // Behind the rows of the ranks before.
      const int64_t before =
          SumOfCounts(absl::MakeConstSpan(counts[to].receive).subspan(0, from)) * row;
      if (bytes > 0) std::memcpy(static_cast<char*>(out[to].data()) + before, source, bytes);
      source += bytes;
    }
  }
}

}  // namespace comm
