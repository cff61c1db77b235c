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
  Arena arena;
  arena.memory_ = backend.Allocate(std::max<int64_t>(plan.bytes(), 1));
  if (arena.memory_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", plan.bytes(), " bytes on ", backend.name(),
                     "; lower --batch_tokens, or run with more ranks"));
  }
  arena.backend_ = &backend;
  arena.plan_ = std::move(plan);
  return arena;
}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(plan_, other.plan_);
  std::swap(backend_, other.backend_);
  std::swap(memory_, other.memory_);
  return *this;
}

Arena::~Arena() {
  if (memory_ != nullptr) backend_->Free(memory_);
}

Tensor Arena::Get(TensorId id) const {
  CHECK(id.index >= 0 && id.index < static_cast<int>(plan_.entries().size()));
  const ArenaPlan::Entry& entry = plan_.entries()[id.index];
  return Tensor(static_cast<char*>(memory_) + entry.offset, entry.dtype, entry.dims,
                backend_->device());
}

}  // namespace kernels
