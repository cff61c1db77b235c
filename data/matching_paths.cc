#include "data/matching_paths.h"

#include <glob.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "third_party/absl_compat/check.h"

namespace data {
namespace {

// The folder that glob() could not read; its callback takes no argument.
thread_local std::string unreadable_folder;

int OnGlobError(const char* path, int error) {
  if (error == ENOENT) return 0;  // matches nothing
  unreadable_folder = absl::StrCat(path, ": cannot read this folder: ", std::strerror(error));
  return 1;
}

bool Exists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

absl::StatusOr<std::vector<std::string>> Glob(const std::string& pattern) {
  glob_t matches = {};
  const int result = glob(pattern.c_str(), 0, &OnGlobError, &matches);
  std::vector<std::string> paths;
  if (result == 0) paths.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  globfree(&matches);
  if (result == GLOB_NOMATCH) {
    return absl::NotFoundError(absl::StrCat(pattern, ": matches no file"));
  }
  if (result == GLOB_ABORTED) return absl::InvalidArgumentError(unreadable_folder);
  CHECK_EQ(result, 0) << "glob of " << pattern;  // out of memory
  return paths;
}

// How many of the first pieces of a list are one name or pattern, and what that means.
struct Head {
  size_t pieces = 0;
  std::vector<std::string> paths;
};

absl::StatusOr<Head> HeadOf(absl::Span<const std::string> pieces) {
  const auto joined = [&](size_t n) { return absl::StrJoin(pieces.subspan(0, n), ","); };
  for (size_t n = pieces.size(); n > 0; --n) {
    std::string path = joined(n);
    if (Exists(path)) return Head{n, {std::move(path)}};
  }
  absl::StatusOr<std::vector<std::string>> first = MatchingPaths(pieces[0]);
  if (first.ok()) return Head{1, *std::move(first)};
  for (size_t n = 2; n <= pieces.size(); ++n) {
    absl::StatusOr<std::vector<std::string>> found = Glob(joined(n));
    if (found.ok()) return Head{n, *std::move(found)};
  }
  return first.status();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MatchingPaths(const std::string& text) {
  if (text.empty()) return absl::InvalidArgumentError("an empty name in a list of files");
  if (Exists(text)) return std::vector<std::string>{text};
  return Glob(text);
}

absl::StatusOr<std::vector<std::string>> MatchingPathsOfList(const std::string& list) {
  const std::vector<std::string> pieces = absl::StrSplit(list, ',');
  std::vector<std::string> paths;
  for (size_t next = 0; next < pieces.size();) {
    absl::StatusOr<Head> head = HeadOf(absl::MakeSpan(pieces).subspan(next));
    if (!head.ok()) return head.status();
    paths.insert(paths.end(), std::make_move_iterator(head->paths.begin()),
                 std::make_move_iterator(head->paths.end()));
    next += head->pieces;
  }
  return paths;
}

std::string EscapedForGlob(absl::string_view path) {
  std::string pattern;
  for (const char c : path) {
    if (absl::string_view("*?[]\\").find(c) != absl::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace data
