#include "tools/run_logs/run.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tools {
namespace {

// A point of the run whose time and tokens are known, or not.
struct Place {
  int64_t step = 0;
  std::optional<double> train_ms;
  std::optional<double> tokens;
};

// Of the rows before `step`, or at it if that is a validation's, the last. The run begins at 0.
class Trail {
 public:
  explicit Trail(const TrainingRun& run) : run_(run) {}

  // The validations before the step come first: they have the better clock.
  Place Before(int64_t step) {
    while (next_ < run_.validations.size() && run_.validations[next_].step < step) {
      const ValidationRow& row = run_.validations[next_++];
      if (row.step != last_.step) last_ = {row.step, std::nullopt, std::nullopt};
      if (row.train_ms.has_value()) last_.train_ms = row.train_ms;
    }
    return last_;
  }
  void Add(const StepRow& row) { last_ = {row.step, row.train_ms, row.tokens}; }

 private:
  const TrainingRun& run_;
  size_t next_ = 0;
  Place last_ = {0, 0.0, 0.0};
};

void CompleteStep(const Place& before, const std::optional<double>& run_batch, StepRow* row) {
  const double steps = static_cast<double>(row->step - before.step);
  if (!row->tokens.has_value() && run_batch.has_value()) {
    row->tokens = *run_batch * static_cast<double>(row->step);
  }
  if (!row->batch_tokens.has_value() && row->tokens.has_value() && before.tokens.has_value()) {
    row->batch_tokens = (*row->tokens - *before.tokens) / steps;
  }
  // The original's early programs set the clock back after ten steps.
  if (!row->step_ms.has_value() && row->train_ms.has_value() && before.train_ms.has_value() &&
      *row->train_ms >= *before.train_ms) {
    row->step_ms = (*row->train_ms - *before.train_ms) / steps;
  }
  // Of steps that no row tells of the time is unknown.
  if (!row->train_ms.has_value() && row->step_ms.has_value() && before.train_ms.has_value() &&
      steps == 1) {
    row->train_ms = *before.train_ms + *row->step_ms;
  }
  if (!row->tokens_per_s.has_value() && row->batch_tokens.has_value() && row->step_ms.has_value() &&
      *row->step_ms > 0) {
    row->tokens_per_s = 1000 * *row->batch_tokens / *row->step_ms;
  }
}

// "12, 13, 14 and 5 more"
std::string StepList(const std::vector<int64_t>& steps) {
  constexpr size_t kMost = 5;
  if (steps.size() <= kMost) return absl::StrJoin(steps, ", ");
  return absl::StrCat(absl::StrJoin(steps.begin(), steps.begin() + kMost, ", "), " and ",
                      steps.size() - kMost, " more");
}

void NoteEnd(TrainingRun* run) {
  const int64_t last = run->last_step();
  if (run->planned_steps.has_value() && last < *run->planned_steps) {
    run->notes.push_back(absl::StrCat("ends at step ", last, " of ", *run->planned_steps));
  } else if (run->final_validation() == nullptr) {
    run->notes.push_back(absl::StrCat("ends at step ", last, " without a validation after it"));
  }
}

void NoteNotFinite(TrainingRun* run) {
  std::vector<int64_t> trained, validated;
  for (const StepRow& row : run->steps) {
    if (row.loss.has_value() && std::isnan(*row.loss)) trained.push_back(row.step);
  }
  for (const ValidationRow& row : run->validations) {
    if (!std::isfinite(row.loss)) validated.push_back(row.step);
  }
  if (!trained.empty()) {
    run->notes.push_back(
        absl::StrCat("the training loss is not finite at step ", StepList(trained)));
  }
  if (!validated.empty()) {
    run->notes.push_back(
        absl::StrCat("the validation loss is not finite at step ", StepList(validated)));
  }
}

}  // namespace

int64_t TrainingRun::last_step() const {
  const int64_t trained = steps.empty() ? 0 : steps.back().step;
  return validations.empty() ? trained : std::max(trained, validations.back().step);
}

const ValidationRow* TrainingRun::final_validation() const {
  if (validations.empty() || validations.back().step != last_step()) return nullptr;
  if (planned_steps.has_value() && *planned_steps != last_step()) return nullptr;
  return &validations.back();
}

void Complete(TrainingRun* run) {
  Trail trail(*run);
  for (StepRow& row : run->steps) {
    CompleteStep(trail.Before(row.step), run->batch_tokens, &row);
    trail.Add(row);
  }
  const bool counted = std::any_of(run->steps.begin(), run->steps.end(),
                                   [](const StepRow& row) { return row.tokens.has_value(); });
  size_t next = 0;
  for (ValidationRow& row : run->validations) {
    while (next < run->steps.size() && run->steps[next].step < row.step) ++next;
    const bool trained = next < run->steps.size() && run->steps[next].step == row.step;
    if (run->batch_tokens.has_value()) {
      row.tokens = *run->batch_tokens * static_cast<double>(row.step);
    } else if (row.step == 0 && counted) {
      row.tokens = 0.0;
    } else if (trained) {
      row.tokens = run->steps[next].tokens;
    }
  }
}

void NoteGaps(TrainingRun* run) {
  NoteEnd(run);
  NoteNotFinite(run);
}

std::string RunText(const TrainingRun& run) {
  std::string text = absl::StrJoin(run.paths, " and ");
  if (run.trial > 0) absl::StrAppend(&text, "#", run.trial);
  return text;
}

absl::Status RunRows::GoBack(int64_t line, int64_t to_step) {
  if (to_step == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line, ": a second run begins here, after one that came to step ",
                     run_->last_step(), "; give each run a file of its own"));
  }
  const auto steps = std::find_if(run_->steps.begin(), run_->steps.end(),
                                  [&](const StepRow& row) { return row.step > to_step; });
  const auto dropped = run_->steps.end() - steps;
  run_->notes.push_back(absl::StrCat("line ", line, ": goes back from step ", run_->last_step(),
                                     " to step ", to_step,
                                     ", as a resumed run does; of the steps in between the later "
                                     "rows count, ",
                                     dropped, " earlier ones do not"));
  run_->steps.erase(steps, run_->steps.end());
  std::vector<ValidationRow>& validations = run_->validations;
  validations.erase(std::find_if(validations.begin(), validations.end(),
                                 [&](const ValidationRow& row) { return row.step > to_step; }),
                    validations.end());
  return absl::OkStatus();
}

absl::Status RunRows::Add(int64_t line, StepRow row) {
  if (!run_->steps.empty() && row.step <= run_->last_step()) {
    if (absl::Status back = GoBack(line, row.step - 1); !back.ok()) return back;
  }
  run_->steps.push_back(std::move(row));
  return absl::OkStatus();
}

absl::Status RunRows::Add(int64_t line, const ValidationRow& row) {
  std::vector<ValidationRow>& validations = run_->validations;
  const bool any = !run_->steps.empty() || !validations.empty();
  if (any && row.step < run_->last_step()) {
    if (absl::Status back = GoBack(line, row.step); !back.ok()) return back;
  }
  // A resumed run validates its checkpoint again, a finished one says its result again.
  if (!validations.empty() && validations.back().step == row.step) validations.pop_back();
  validations.push_back(row);
  return absl::OkStatus();
}

}  // namespace tools
