#include "comm/local/reduce.h"

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

// Element i of the sum, divided, goes to element i of each tensor in `to`.
template <typename T>
void Reduce(const std::vector<const T*>& from, const std::vector<T*>& to, int64_t n,
            float divisor) {
  for (int64_t i = 0; i < n; ++i) {
    float sum = Load(from[0] + i);
    for (size_t rank = 1; rank < from.size(); ++rank) sum += Load(from[rank] + i);
    for (T* p : to) Store(sum / divisor, p + i);
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

}  // namespace

void MoveData(CollectiveKind kind, ReduceOp op, int root, const std::vector<Tensor>& in,
              const std::vector<Tensor>& out) {
  const float divisor = op == ReduceOp::kAvg ? static_cast<float>(in.size()) : 1.0f;
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
    case CollectiveKind::kBarrier:
      break;
  }
}

}  // namespace comm
