// One file from the hub to the disk.
#ifndef TOOLS_FETCH_FINEWEB_DOWNLOAD_H_
#define TOOLS_FETCH_FINEWEB_DOWNLOAD_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/fetch_fineweb/console.h"
#include "tools/fetch_fineweb/http_client.h"
#include "tools/fetch_fineweb/hub.h"
#include "tools/fetch_fineweb/part_file.h"
#include "tools/fetch_fineweb/retry_policy.h"
#include "tools/fetch_fineweb/wanted_files.h"

namespace tools {

struct DownloadOptions {
  Hub hub;
  RetryPolicy retry;
  absl::Duration stall_timeout = absl::Seconds(30);
  std::function<bool()> interrupted;
};

// Of one thread. Both functions try again as `retry` says, with a note for each failure.
// Errors: see hub.h, part_file.h, verify.h; Unavailable when the retries are used up; Cancelled
// when interrupted, and then what has come stays for the next run.
class Downloader {
 public:
  Downloader(const DownloadOptions& options, Console* console);

  // What the hub says of the file, without its ETag: asked of the hub alone where it knows, since
  // the host that keeps large files need not answer HEAD.
  absl::StatusOr<FileVersion> Probe(const WantedFile& file);

  // Fetches the file, or the rest of it, verifies it and gives it its name. A file that does not
  // verify is removed; if its start was of an earlier run it is first fetched once more.
  absl::Status Download(const WantedFile& file, const FileVersion& version);

 private:
  struct Try {
    absl::Status status;
    absl::Duration retry_after;
  };

  absl::Status UntilDone(absl::FunctionRef<Try()> attempt, absl::FunctionRef<int64_t()> bytes);
  absl::Status Wait(absl::Duration delay);
  Try TryHead(const WantedFile& file, FileVersion* version);
  Try TryRest(const WantedFile& file, PartFile* part);

  const DownloadOptions& options_;
  Console* const console_;
  HttpClient client_;
  std::mt19937 random_;
};

}  // namespace tools

#endif  // TOOLS_FETCH_FINEWEB_DOWNLOAD_H_
