#include "tools/trainer/batch_source.h"

#include <utility>

#include "third_party/absl_compat/check.h"

namespace tools {
namespace {

constexpr int64_t kRemembered = 4;

}  // namespace

BatchSource::BatchSource(std::unique_ptr<data::TrainLoader> loader, int64_t first_step)
    : loader_(std::move(loader)),
      step_(first_step - 1),
      batch_(absl::InternalError("no batch yet")),
      previous_(batch_.status()) {
  before_[first_step] = loader_->State();
}

absl::StatusOr<BatchSource::Batch> BatchSource::Get(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (step != step_) {
    CHECK_EQ(step, step_ + 1) << "batches are asked for in order";
    previous_ = std::move(batch_);
    batch_ = loader_->Next();
    before_[step + 1] = loader_->State();
    before_.erase(step - kRemembered);
    step_ = step;
  }
  return batch_;
}

absl::StatusOr<BatchSource::Batch> BatchSource::Peek(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  CHECK_GE(step, step_ - 1) << "batches that are over are not kept";
  if (step == step_ - 1) return previous_;
  return step == step_ ? batch_ : loader_->Peek(step - step_ - 1);
}

absl::StatusOr<data::LoaderState> BatchSource::StateBefore(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = before_.find(step);
  CHECK(found != before_.end()) << "step " << step << " of a source at " << step_;
  return found->second;
}

data::LoaderStats BatchSource::Stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  return loader_->Stats();
}

}  // namespace tools
