#include "tools/trainer/batch_source.h"

#include <utility>

#include "third_party/absl_compat/check.h"

namespace tools {

BatchSource::BatchSource(std::unique_ptr<data::TrainLoader> loader, int64_t first_step)
    : loader_(std::move(loader)),
      step_(first_step - 1),
      batch_(absl::InternalError("no batch yet")),
      before_(loader_->State()),
      after_(before_) {}

absl::StatusOr<BatchSource::Batch> BatchSource::Get(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (step != step_) {
    CHECK_EQ(step, step_ + 1) << "batches are asked for in order";
    before_ = after_;
    batch_ = loader_->Next();
    after_ = loader_->State();
    step_ = step;
  }
  return batch_;
}

absl::StatusOr<data::LoaderState> BatchSource::StateBefore(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  CHECK(step == step_ || step == step_ + 1) << "step " << step << " of a source at " << step_;
  return step == step_ ? before_ : after_;
}

data::LoaderStats BatchSource::Stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  return loader_->Stats();
}

}  // namespace tools
