#include "tools/trainer/run_log.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tools {
namespace {

// JSON has no NaN or infinity; null says "not a number" there.
std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null";
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunLog>> RunLog::Create(const std::string& metrics_path, bool append,
                                                       int64_t total_steps, std::FILE* out,
                                                       std::unique_ptr<EventFile> events) {
  std::FILE* metrics = nullptr;
  if (!metrics_path.empty()) {
    metrics = std::fopen(metrics_path.c_str(), append ? "a" : "w");
    if (metrics == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--metrics=", metrics_path, ": cannot open for writing: ", std::strerror(errno)));
    }
  }
  return std::unique_ptr<RunLog>(
      new RunLog(metrics, metrics_path, total_steps, out, std::move(events)));
}

RunLog::~RunLog() {
  if (metrics_ != nullptr) std::fclose(metrics_);
}

void RunLog::Text(absl::string_view text) {
  if (out_ == nullptr) return;
  std::fprintf(out_, "%.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(out_);
}

void RunLog::Begin(int64_t first_step) {
  // What earlier runs have of step `first_step` is true of this one, too, except of a new run.
  if (events_ != nullptr) events_->Start(first_step == 0 ? 0 : first_step + 1);
}

void RunLog::Step(const StepRecord& record, double train_ms) {
  std::fprintf(out_, "step:%lld/%lld train_time:%.0fms step_avg:%.2fms\n",
               static_cast<long long>(record.step), static_cast<long long>(total_steps_), train_ms,
               train_ms / std::max<int64_t>(record.step, 1));
  std::fflush(out_);
  if (events_ != nullptr) {
    events_->Write(record.step, {{"train/loss", record.loss},
                                 {"train/lr", record.lr},
                                 {"train/momentum", record.momentum},
                                 {"train/window_tokens", 1.0 * record.window_tokens},
                                 {"train/tokens", 1.0 * record.tokens},
                                 {"train/step_ms", record.step_ms},
                                 {"train/tokens_per_s", record.tokens_per_s}});
  }
  if (metrics_ == nullptr) return;
  std::fprintf(metrics_, "%s\n",
               absl::StrCat("{\"step\":", record.step, ",\"loss\":", Number(record.loss),
                            ",\"lr\":", Number(record.lr), ",\"momentum\":",
                            Number(record.momentum), ",\"window_tokens\":", record.window_tokens,
                            ",\"tokens\":", record.tokens, ",\"step_ms\":", Number(record.step_ms),
                            ",\"tokens_per_s\":", Number(record.tokens_per_s), "}")
                   .c_str());
  std::fflush(metrics_);
}

void RunLog::Skipped(int64_t step, absl::string_view why, int64_t skipped) {
  Text(absl::StrCat("step ", step, " was left out (", skipped, " so far): ", why));
  if (events_ != nullptr) events_->Write(step, {{"train/skipped", 1.0 * skipped}});
  if (metrics_ == nullptr) return;
  // `why` is made of tensors' names and numbers.
  std::fprintf(metrics_, "%s\n",
               absl::StrCat("{\"step\":", step, ",\"loss\":null,\"skipped\":", skipped,
                            ",\"why\":\"", why, "\"}")
                   .c_str());
  std::fflush(metrics_);
}

void RunLog::Validation(int64_t step, double val_loss, double train_ms) {
  std::fprintf(out_, "step:%lld/%lld val_loss:%.4f train_time:%.0fms step_avg:%.2fms\n",
               static_cast<long long>(step), static_cast<long long>(total_steps_), val_loss,
               train_ms, train_ms / std::max<int64_t>(step, 1));
  std::fflush(out_);
  if (events_ != nullptr) {
    events_->Write(step, {{"val/loss", val_loss}, {"val/train_ms", train_ms}});
  }
  if (metrics_ == nullptr) return;
  std::fprintf(metrics_, "%s\n",
               absl::StrCat("{\"step\":", step, ",\"val_loss\":", Number(val_loss),
                            ",\"train_ms\":", Number(train_ms), "}")
                   .c_str());
  std::fflush(metrics_);
}

absl::Status RunLog::Close() {
  const absl::Status metrics = CloseMetrics();
  const absl::Status events = events_ == nullptr ? absl::OkStatus() : events_->Close();
  return metrics.ok() ? events : metrics;
}

absl::Status RunLog::CloseMetrics() {
  if (metrics_ == nullptr) return absl::OkStatus();
  const bool failed = std::ferror(metrics_) != 0;
  const bool closed = std::fclose(std::exchange(metrics_, nullptr)) == 0;
  if (failed || !closed) {
    return absl::DataLossError(
        absl::StrCat(path_, ": the metrics were not written in full; is the disk full?"));
  }
  return absl::OkStatus();
}

}  // namespace tools
