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
  if (metrics_.file != nullptr) std::fclose(metrics_.file);
}

void RunLog::Output::Line(absl::string_view text) {
  if (file == nullptr) return;
  const bool written =
      std::fprintf(file, "%.*s\n", static_cast<int>(text.size()), text.data()) >= 0 &&
      std::fflush(file) == 0;
  if (written || !error.empty()) return;
  error = std::strerror(errno);
  std::fprintf(stderr,
               "warning: %s: cannot write: %s; training goes on, and will end with an error\n",
               name.c_str(), error.c_str());
}

void RunLog::Text(absl::string_view text) { out_.Line(text); }

void RunLog::Begin(int64_t first_step) {
  // What earlier runs have of step `first_step` is true of this one, too, except of a new run.
  if (events_ != nullptr) events_->Start(first_step == 0 ? 0 : first_step + 1);
}

void RunLog::Step(const StepRecord& record, double train_ms) {
  out_.Line(absl::StrFormat("step:%d/%d train_time:%.0fms step_avg:%.2fms", record.step,
                            total_steps_, train_ms, train_ms / std::max<int64_t>(record.step, 1)));
  if (events_ != nullptr) {
    events_->Write(record.step, {{"train/loss", record.loss},
                                 {"train/lr", record.lr},
                                 {"train/momentum", record.momentum},
                                 {"train/window_tokens", 1.0 * record.window_tokens},
                                 {"train/tokens", 1.0 * record.tokens},
                                 {"train/step_ms", record.step_ms},
                                 {"train/tokens_per_s", record.tokens_per_s}});
  }
  metrics_.Line(absl::StrCat(
      "{\"step\":", record.step, ",\"loss\":", Number(record.loss), ",\"lr\":", Number(record.lr),
      ",\"momentum\":", Number(record.momentum), ",\"window_tokens\":", record.window_tokens,
      ",\"tokens\":", record.tokens, ",\"step_ms\":", Number(record.step_ms),
      ",\"tokens_per_s\":", Number(record.tokens_per_s), "}"));
}

void RunLog::Skipped(int64_t step, absl::string_view why, int64_t skipped) {
  Text(absl::StrCat("step ", step, " was left out (", skipped, " so far): ", why));
  if (events_ != nullptr) events_->Write(step, {{"train/skipped", 1.0 * skipped}});
  // `why` is made of tensors' names and numbers.
  metrics_.Line(absl::StrCat("{\"step\":", step, ",\"loss\":null,\"skipped\":", skipped,
                             ",\"why\":\"", why, "\"}"));
}

void RunLog::Validation(int64_t step, double val_loss, double train_ms) {
  out_.Line(absl::StrFormat("step:%d/%d val_loss:%.4f train_time:%.0fms step_avg:%.2fms", step,
                            total_steps_, val_loss, train_ms,
                            train_ms / std::max<int64_t>(step, 1)));
  if (events_ != nullptr) {
    events_->Write(step, {{"val/loss", val_loss}, {"val/train_ms", train_ms}});
  }
  metrics_.Line(absl::StrCat("{\"step\":", step, ",\"val_loss\":", Number(val_loss),
                             ",\"train_ms\":", Number(train_ms), "}"));
}

absl::Status RunLog::Close() {
  std::FILE* const metrics = std::exchange(metrics_.file, nullptr);
  if (metrics != nullptr && std::fclose(metrics) != 0 && metrics_.error.empty()) {
    metrics_.error = std::strerror(errno);
  }
  std::string lost;
  for (const Output* output : {&out_, &metrics_}) {
    if (output->error.empty()) continue;
    absl::StrAppend(&lost, lost.empty() ? "" : "; ", output->name,
                    ": was not written in full: ", output->error);
  }
  const absl::Status events = events_ == nullptr ? absl::OkStatus() : events_->Close();
  if (!events.ok()) absl::StrAppend(&lost, lost.empty() ? "" : "; ", events.message());
  return lost.empty() ? absl::OkStatus() : absl::UnavailableError(lost);
}

}  // namespace tools
