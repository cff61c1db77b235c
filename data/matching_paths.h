// The files that a user's text means: names, glob patterns, and lists of them.
#ifndef DATA_MATCHING_PATHS_H_
#define DATA_MATCHING_PATHS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace data {

// Returns `text` itself if a path of that name exists, whatever characters it holds (a dangling
// link exists), else the paths that it matches as a pattern of glob(7), in alphabetical order.
// Folders may be among them.
//
// NotFound, "TEXT: matches no file", if there are none. InvalidArgument if `text` is empty or a
// folder on the way cannot be read.
absl::StatusOr<std::vector<std::string>> MatchingPaths(const std::string& text);

// As above for names and patterns with commas between them, in the list's order. A path that exists
// is meant, so that a name may itself hold commas: the list is read from its beginning, and the
// longest piece that exists is taken first, then one without commas that matches as a pattern, then
// one with them.
absl::StatusOr<std::vector<std::string>> MatchingPathsOfList(const std::string& list);

// Returns a pattern of glob(7) that matches `path` alone: its special characters are escaped.
std::string EscapedForGlob(absl::string_view path);

}  // namespace data

#endif  // DATA_MATCHING_PATHS_H_
