#include "tools/fetch_fineweb/fetch.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/fetch_fineweb/progress_text.h"
#include "tools/fetch_fineweb/verify.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

struct MissingFile {
  WantedFile wanted;
  FileVersion version;
};

// work(thread, i) for each i below n, from up to `threads` threads; the first error of each i.
std::vector<absl::Status> ForEach(int threads, size_t n,
                                  absl::FunctionRef<absl::Status(size_t, size_t)> work) {
  std::vector<absl::Status> results(n);
  std::atomic<size_t> next = 0;
  std::vector<std::thread> workers;
  for (size_t thread = 0; thread < std::min<size_t>(threads, n); ++thread) {
    workers.emplace_back([&, thread] {
      for (size_t i = next++; i < n; i = next++) results[i] = work(thread, i);
    });
  }
  for (std::thread& worker : workers) worker.join();
  return results;
}

// One status of many: the texts of all errors, and the code of the first. Where there is another
// error, files that were left because of it are not named.
absl::Status Joined(const std::vector<absl::Status>& results) {
  absl::Status first, cancelled;
  std::vector<std::string> texts;
  for (const absl::Status& result : results) {
    if (result.ok()) continue;
    if (absl::IsCancelled(result)) {
      cancelled = result;
      continue;
    }
    if (first.ok()) first = result;
    texts.emplace_back(result.message());
  }
  if (first.ok()) return cancelled;
  return {first.code(), absl::StrJoin(texts, "\n")};
}

// One run of Fetch.
class Run {
 public:
  Run(const std::vector<WantedFile>& files, const FetchOptions& options, Console* console)
      : files_(files), options_(options), console_(*console), download_(options.download) {
    download_.interrupted = [this] { return stop_ || options_.download.interrupted(); };
  }

  absl::Status All() {
    ABSL_RETURN_IF_ERROR(FindMissing());
    if (missing_.empty()) return absl::OkStatus();
    for (size_t i = 0; i < std::min<size_t>(options_.parallel, missing_.size()); ++i) {
      downloaders_.push_back(std::make_unique<Downloader>(download_, &console_));
    }
    ABSL_RETURN_IF_ERROR(Joined(ForEachMissing([&](Downloader& downloader, MissingFile& file) {
      absl::StatusOr<FileVersion> version = downloader.Probe(file.wanted);
      if (version.ok()) file.version = *std::move(version);
      return version.status();
    })));
    ABSL_RETURN_IF_ERROR(CheckRoom());
    int64_t total = 0;
    for (const MissingFile& file : missing_) total += file.version.size;
    console_.StartBar(total);
    return Joined(ForEachMissing([&](Downloader& downloader, MissingFile& file) {
      return downloader.Download(file.wanted, file.version);
    }));
  }

 private:
  // Verifies what is there, and says so of what is sound.
  absl::Status FindMissing() {
    std::vector<char> missing(files_.size(), false);  // not bool: threads write to it
    ABSL_RETURN_IF_ERROR(
        Joined(ForEach(options_.parallel, files_.size(), [&](size_t, size_t i) -> absl::Status {
          if (download_.interrupted()) return absl::CancelledError("interrupted");
          const absl::StatusOr<std::string> contents =
              VerifyContents(files_[i].path, files_[i].kind);
          if (contents.ok()) {
            console_.Result(absl::StrCat(files_[i].path, ": is there, ", *contents));
            return absl::OkStatus();
          }
          missing[i] = true;
          return MayFetch(contents.status());
        })));
    for (size_t i = 0; i < files_.size(); ++i) {
      if (missing[i]) missing_.push_back({files_[i], {}});
    }
    return absl::OkStatus();
  }

  // Whether a file may be fetched for which verification gave `status`.
  absl::Status MayFetch(const absl::Status& status) const {
    if (absl::IsNotFound(status)) {
      if (!options_.check_only) return absl::OkStatus();
      return absl::NotFoundError(
          absl::StrCat(status.message(), "; fetched by the same command without --check_only"));
    }
    if (!absl::IsDataLoss(status)) return status;  // a folder, or not readable
    if (options_.overwrite && !options_.check_only) {
      console_.Note(absl::StrCat(status.message(), "; replaces it"));
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat(
        status.message(), "; move it away, or fetch it again in its place with --overwrite"));
  }

  template <typename Work>
  std::vector<absl::Status> ForEachMissing(Work work) {
    return ForEach(options_.parallel, missing_.size(), [&](size_t thread, size_t i) {
      const absl::Status status = download_.interrupted()
                                      ? absl::CancelledError("interrupted")
                                      : work(*downloaders_[thread], missing_[i]);
      if (absl::IsPermissionDenied(status) || absl::IsResourceExhausted(status)) stop_ = true;
      return status;
    });
  }

  // Refuses what cannot end well. The disk may still fill up while files come.
  absl::Status CheckRoom() const {
    struct Disk {
      std::string folder;
      int64_t needed = 0;
    };
    std::map<dev_t, Disk> disks;
    for (const MissingFile& file : missing_) {
      fs::path folder = fs::absolute(file.wanted.path).parent_path();
      struct stat info;
      while (stat(folder.c_str(), &info) != 0 && folder.has_relative_path()) {
        folder = folder.parent_path();
      }
      std::error_code none;
      const std::uintmax_t part = fs::file_size(file.wanted.path + ".part", none);
      Disk& disk = disks[info.st_dev];
      disk.folder = folder.string();
      disk.needed += file.version.size - (none ? 0 : static_cast<int64_t>(part));
    }
    for (const auto& [device, disk] : disks) {
      struct statvfs info;
      // Some file systems do not count their room; there, writing will tell.
      if (statvfs(disk.folder.c_str(), &info) != 0 || info.f_blocks == 0) continue;
      const int64_t room =
          static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
      if (disk.needed <= room) continue;
      return absl::ResourceExhaustedError(absl::StrCat(
          disk.folder, ": needs ", SizeText(disk.needed), " and has room for ", SizeText(room),
          "; make room, choose another --out_dir, or fetch less with --shards"));
    }
    return absl::OkStatus();
  }

  const std::vector<WantedFile>& files_;
  const FetchOptions& options_;
  Console& console_;
  DownloadOptions download_;
  std::atomic<bool> stop_ = false;
  std::vector<MissingFile> missing_;
  std::vector<std::unique_ptr<Downloader>> downloaders_;
};

}  // namespace

absl::Status Fetch(const std::vector<WantedFile>& files, const FetchOptions& options,
                   Console* console) {
  return Run(files, options, console).All();
}

}  // namespace tools
