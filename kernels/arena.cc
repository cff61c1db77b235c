#include "kernels/arena.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kernels {
namespace {

constexpr int64_t kAlignment = 256;  // what vector loads and TMA descriptors like

}  // namespace

TensorId ArenaPlan::Add(std::string name, DType dtype, std::vector<int64_t> dims) {
  int64_t bytes = SizeOf(dtype);
  for (int64_t dim : dims) bytes *= dim;
  entries_.push_back({std::move(name), dtype, std::move(dims), bytes_});
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return TensorId{static_cast<int>(entries_.size()) - 1};
}

absl::StatusOr<Arena> Arena::Create(ArenaPlan plan, Backend& backend) {
  std::vector<ArenaPlan> plans;
  plans.push_back(std::move(plan));
  absl::StatusOr<std::vector<Arena>> arenas = CreateOverlapping(std::move(plans), backend);
  if (!arenas.ok()) return arenas.status();
  return std::move(arenas->front());
}

absl::StatusOr<std::vector<Arena>> Arena::CreateOverlapping(std::vector<ArenaPlan> plans,
                                                            Backend& backend) {
  int64_t bytes = 1;
  for (const ArenaPlan& plan : plans) bytes = std::max(bytes, plan.bytes());
  const std::shared_ptr<void> memory(backend.Allocate(bytes), [&backend](void* allocated) {
    if (allocated != nullptr) backend.Free(allocated);
  });
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", bytes, " bytes on ", backend.name(),
                     "; lower --batch_tokens, or run with more ranks"));
  }
  std::vector<Arena> arenas(plans.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    arenas[i].plan_ = std::move(plans[i]);
    arenas[i].device_ = backend.device();
    arenas[i].memory_ = memory;
  }
  return arenas;
}

Tensor Arena::Get(TensorId id) const {
  CHECK(id.index >= 0 && id.index < static_cast<int>(plan_.entries().size()));
  const ArenaPlan::Entry& entry = plan_.entries()[id.index];
  return Tensor(static_cast<char*>(memory_.get()) + entry.offset, entry.dtype, entry.dims, device_);
}

}  // namespace kernels
