#include "tools/report/decimate.h"

#include <algorithm>
#include <cmath>

namespace tools {
namespace {

using Field = std::optional<double> StepRow::*;

// Marks the rows of [begin, end) that hold the least and the greatest value.
void KeepExtremes(const std::vector<StepRow>& rows, size_t begin, size_t end, Field field,
                  std::vector<bool>* keep) {
  std::optional<size_t> least, greatest;
  for (size_t i = begin; i < end; ++i) {
    const std::optional<double>& value = rows[i].*field;
    if (!value.has_value() || !std::isfinite(*value)) continue;
    if (!least.has_value() || *value < *(rows[*least].*field)) least = i;
    if (!greatest.has_value() || *value > *(rows[*greatest].*field)) greatest = i;
  }
  if (least.has_value()) (*keep)[*least] = true;
  if (greatest.has_value()) (*keep)[*greatest] = true;
}

// A corner of a schedule: it changes on one side of the row and not on the other. A slope has none.
bool IsCorner(const std::vector<StepRow>& rows, size_t i, Field field) {
  const bool changes = rows[i].*field != rows[i - 1].*field;
  const bool changed = i >= 2 && rows[i - 1].*field != rows[i - 2].*field;
  return i >= 2 ? changes != changed : changes;
}

}  // namespace

std::vector<size_t> RowsToDraw(const std::vector<StepRow>& rows, size_t most) {
  const size_t n = rows.size();
  std::vector<bool> keep(n, n <= most);
  if (n > most) {
    const size_t stretches = std::max<size_t>(most / 4, 1);
    for (size_t s = 0; s < stretches; ++s) {
      const size_t begin = s * n / stretches, end = (s + 1) * n / stretches;
      KeepExtremes(rows, begin, end, &StepRow::loss, &keep);
      KeepExtremes(rows, begin, end, &StepRow::step_ms, &keep);
    }
    keep.front() = keep.back() = true;
    for (size_t i = 0; i < n; ++i) {
      if (rows[i].loss.has_value() && std::isnan(*rows[i].loss)) keep[i] = true;
      for (const Field field : {&StepRow::window_tokens, &StepRow::batch_tokens, &StepRow::lr}) {
        if (i > 0 && IsCorner(rows, i, field)) keep[i] = keep[i - 1] = true;
      }
    }
  }
  std::vector<size_t> kept;
  for (size_t i = 0; i < n; ++i) {
    if (keep[i]) kept.push_back(i);
  }
  return kept;
}

Values Smooth(const Values& values, size_t reach) {
  const size_t n = values.size();
  std::vector<double> sums(n + 1, 0);  // of the finite values before
  std::vector<size_t> counts(n + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    const bool finite = values[i].has_value() && std::isfinite(*values[i]);
    sums[i + 1] = sums[i] + (finite ? *values[i] : 0);
    counts[i + 1] = counts[i] + (finite ? 1 : 0);
  }
  Values smooth(n);
  for (size_t i = 0; i < n; ++i) {
    if (!values[i].has_value() || !std::isfinite(*values[i])) {
      smooth[i] = values[i];
      continue;
    }
    const size_t half = std::min({reach, i, n - 1 - i});
    const size_t begin = i - half, end = i + half + 1;
    smooth[i] = (sums[end] - sums[begin]) / static_cast<double>(counts[end] - counts[begin]);
  }
  return smooth;
}

}  // namespace tools
