// All files: verify what is there, ask the hub about the rest, check the room, fetch.
#ifndef TOOLS_FETCH_FINEWEB_FETCH_H_
#define TOOLS_FETCH_FINEWEB_FETCH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/fetch_fineweb/console.h"
#include "tools/fetch_fineweb/download.h"
#include "tools/fetch_fineweb/wanted_files.h"

namespace tools {

struct FetchOptions {
  DownloadOptions download;
  int parallel = 4;         // files at once
  bool overwrite = false;   // files that are there and do not verify are fetched again
  bool check_only = false;  // verifies what is there and asks nobody; a missing file is an error
};

// Nothing is fetched before all questions are answered: files that are there verify (or may be
// replaced), the hub has all others, and the disk has room for them. Then a file that fails does
// not stop the others, unless they would fail alike (no permission, disk full). The error names
// every file that failed. Cancelled when interrupted.
absl::Status Fetch(const std::vector<WantedFile>& files, const FetchOptions& options,
                   Console* console);

}  // namespace tools

#endif  // TOOLS_FETCH_FINEWEB_FETCH_H_
