#include "tools/flag_names.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tools {
namespace {

// Levenshtein's distance.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

bool Exists(absl::string_view name) {
  if (absl::FindCommandLineFlag(name) != nullptr) return true;
  if (!absl::StartsWith(name, "no")) return false;
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name.substr(2));
  return flag != nullptr && flag->IsOfType<bool>();
}

std::string Nearest(absl::string_view name) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const auto& [other, flag] : absl::GetAllFlags()) {
    const size_t distance = Distance(name, other);
    const bool nearer = distance < best_distance;
    // Of equally near ones the first by name, whatever order the table has.
    if (nearer || (distance == best_distance && !best.empty() && other < best)) {
      best = std::string(other.data(), other.size());
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace

absl::Status CheckFlagNames(int argc, char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view name = argv[i];
    if (name == "--") break;
    if (name.size() < 2 || name[0] != '-') continue;
    name.remove_prefix(absl::StartsWith(name, "--") ? 2 : 1);
    name = name.substr(0, name.find('='));
    if (Exists(name)) continue;
    const std::string nearest = Nearest(name);
    return absl::InvalidArgumentError(absl::StrCat(
        "--", name, ": no such flag",
        nearest.empty() ? "; --help lists them" : absl::StrCat("; did you mean --", nearest, "?")));
  }
  return absl::OkStatus();
}

}  // namespace tools
