#include "tools/fetch_fineweb/download.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/fetch_fineweb/progress_text.h"
#include "tools/fetch_fineweb/verify.h"

namespace tools {
namespace {

constexpr absl::Duration kInterruptPoll = absl::Milliseconds(50);
constexpr size_t kSha256Digits = 64;

// The SHA-256 that the ETag of a large file is; "" for other ETags.
std::string Sha256OfLinkedEtag(absl::string_view etag) {
  absl::ConsumePrefix(&etag, "\"");
  absl::ConsumeSuffix(&etag, "\"");
  if (etag.size() != kSha256Digits ||
      !std::all_of(etag.begin(), etag.end(), absl::ascii_isxdigit)) {
    return "";
  }
  return absl::AsciiStrToLower(etag);
}

bool IsWeak(absl::string_view etag) { return etag.empty() || absl::StartsWith(etag, "W/"); }

// Puts the body where it belongs, and refuses a body that is not of this file.
class PartSink : public BodySink {
 public:
  PartSink(const WantedFile& file, PartFile* part, Console* console)
      : file_(file), part_(*part), console_(*console) {}

  absl::Status Begin(const HttpResponse& response) override {
    if (response.status == 206) return BeginRest(response);
    if (response.status != 200) {
      return absl::FailedPreconditionError(
          absl::StrCat(file_.url, ": the server answered ", response.status));
    }
    if (response.content_length >= 0 && response.content_length != part_.version().size) {
      return OtherSize(absl::StrCat(response.content_length, " bytes"));
    }
    if (part_.size() > 0) {
      console_.Note(absl::StrCat(file_.path,
                                 ": the file has changed or the server cannot resume; "
                                 "starts over"));
    }
    return Restart(response.etag);
  }

  absl::Status Write(absl::string_view bytes) override {
    const int64_t size = part_.size() + static_cast<int64_t>(bytes.size());
    if (size > part_.version().size) return OtherSize("more bytes");
    ABSL_RETURN_IF_ERROR(part_.Append(bytes));
    console_.Fetched(static_cast<int64_t>(bytes.size()));
    return absl::OkStatus();
  }

  absl::Status Restart(const std::string& etag) {
    console_.Lost(part_.size());
    return part_.Restart(etag);
  }

 private:
  absl::Status BeginRest(const HttpResponse& response) {
    const std::string& etag = part_.version().etag;
    const bool other_etag = !IsWeak(etag) && !IsWeak(response.etag) && etag != response.etag;
    if (part_.size() > 0 && response.range_first == part_.size() && !other_etag &&
        (response.range_total == -1 || response.range_total == part_.version().size)) {
      return absl::OkStatus();
    }
    const int64_t asked = part_.size();
    ABSL_RETURN_IF_ERROR(Restart(""));
    return absl::UnavailableError(absl::StrCat(
        file_.url, ": asked for bytes ", asked, "- of ", part_.version().size,
        ", the server sends bytes ", response.range_first, "- of ", response.range_total,
        other_etag ? " of another version" : "", "; starts over"));
  }

  absl::Status OtherSize(const std::string& sent) const {
    return absl::DataLossError(absl::StrCat(
        file_.url, ": the server sends ", sent, " where the hub promised ", part_.version().size,
        ": the file has just changed, or something between answers in its place; "
        "run the same command again"));
  }

  const WantedFile& file_;
  PartFile& part_;
  Console& console_;
};

// What was verified, for the user.
absl::StatusOr<std::string> Verify(const PartFile& part, FileKind kind) {
  const std::string& sha256 = part.version().sha256;
  // First, since it tells damage from a file that is wrong at its source.
  if (!sha256.empty()) ABSL_RETURN_IF_ERROR(VerifySha256(part.part_path(), sha256));
  ABSL_ASSIGN_OR_RETURN(const std::string contents, VerifyContents(part.part_path(), kind));
  return absl::StrCat(contents, sha256.empty() ? "" : ", SHA-256 as the hub's");
}

}  // namespace

Downloader::Downloader(const DownloadOptions& options, Console* console)
    : options_(options),
      console_(console),
      client_({.token = options.hub.token,
               .stall_timeout = options.stall_timeout,
               .interrupted = options.interrupted}),
      random_(std::random_device()()) {}

absl::Status Downloader::Wait(absl::Duration delay) {
  const absl::Time end = absl::Now() + delay;
  while (!options_.interrupted()) {
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::OkStatus();
    absl::SleepFor(std::min(left, kInterruptPoll));
  }
  return absl::CancelledError("interrupted");
}

absl::Status Downloader::UntilDone(absl::FunctionRef<Try()> attempt,
                                   absl::FunctionRef<int64_t()> bytes) {
  RetryCounter counter(options_.retry);
  std::uniform_real_distribution<double> chance(0.0, 1.0);
  while (true) {
    if (options_.interrupted()) return absl::CancelledError("interrupted");
    const Try outcome = attempt();
    if (outcome.status.ok()) return absl::OkStatus();
    ABSL_ASSIGN_OR_RETURN(
        const absl::Duration delay,
        counter.NextDelay(outcome.status, bytes(), outcome.retry_after, chance(random_)));
    console_->Note(absl::StrCat(outcome.status.message(), "; ", WithCommas(bytes()),
                                " bytes are there; tries again in ",
                                absl::FormatDuration(absl::Trunc(delay, absl::Milliseconds(10)))));
    ABSL_RETURN_IF_ERROR(Wait(delay));
  }
}

Downloader::Try Downloader::TryHead(const WantedFile& file, FileVersion* version) {
  HttpResult result = client_.Head(file.url, /*follow_redirects=*/false);
  const auto redirected = [&] {
    return result.response.status >= 300 && result.response.status <= 399;
  };
  if (result.transfer.ok() && redirected() && result.response.linked_size < 0) {
    result = client_.Head(file.url, /*follow_redirects=*/true);
  }
  const HttpResponse& response = result.response;
  if (!result.transfer.ok()) return {result.transfer, response.retry_after};
  if (!redirected()) {
    const absl::Status status = StatusOfResponse(response, file.url, options_.hub);
    if (!status.ok()) return {status, response.retry_after};
  }
  version->size = response.linked_size >= 0 ? response.linked_size : response.content_length;
  version->sha256 = Sha256OfLinkedEtag(response.linked_etag);
  if (version->size > 0) return {absl::OkStatus(), {}};
  return {absl::FailedPreconditionError(
              absl::StrCat(file.url,
                           ": the server does not say how large the file is (X-Linked-Size or "
                           "Content-Length): it is no hub; look at --endpoint")),
          {}};
}

absl::StatusOr<FileVersion> Downloader::Probe(const WantedFile& file) {
  FileVersion version;
  ABSL_RETURN_IF_ERROR(UntilDone([&] { return TryHead(file, &version); }, [] { return 0; }));
  return version;
}

Downloader::Try Downloader::TryRest(const WantedFile& file, PartFile* part) {
  if (part->size() == part->version().size) return {absl::OkStatus(), {}};
  PartSink sink(file, part, console_);
  const std::string& etag = part->version().etag;
  const HttpResult result = client_.Get(file.url, part->size(), IsWeak(etag) ? "" : etag, &sink);
  const HttpResponse& response = result.response;
  if (!result.transfer.ok()) return {result.transfer, response.retry_after};
  if (response.status == 416) {
    const absl::Status status = sink.Restart("");
    if (!status.ok()) return {status, {}};
    return {absl::UnavailableError(
                absl::StrCat(file.url, ": the server has no such range (416); starts over")),
            response.retry_after};
  }
  const absl::Status status = StatusOfResponse(response, file.url, options_.hub);
  if (!status.ok()) return {status, response.retry_after};
  if (part->size() == part->version().size) return {absl::OkStatus(), {}};
  return {absl::UnavailableError(absl::StrCat(file.url, ": the answer ended after ", part->size(),
                                              " of ", part->version().size, " bytes")),
          {}};
}

absl::Status Downloader::Download(const WantedFile& file, const FileVersion& version) {
  const absl::Time start = absl::Now();
  ABSL_ASSIGN_OR_RETURN(PartFile part, PartFile::Open(file.path, version));
  if (!part.emptied_because().empty()) {
    console_->Note(absl::StrCat(part.part_path(), ": not used, since ", part.emptied_because()));
  }
  const int64_t found = part.size();
  if (found > 0) {
    console_->Found(found);
    console_->Note(absl::StrCat(file.path, ": resumes at ", WithCommas(found), " of ",
                                WithCommas(version.size), " bytes"));
  }
  bool all_of_this_run = found == 0;
  while (true) {
    ABSL_RETURN_IF_ERROR(
        UntilDone([&] { return TryRest(file, &part); }, [&] { return part.size(); }));
    const absl::StatusOr<std::string> contents = Verify(part, file.kind);
    if (contents.ok()) {
      ABSL_RETURN_IF_ERROR(part.Publish());
      const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
      console_->Result(absl::StrFormat("%s: fetched, %s, %s in %.1f s", file.path, *contents,
                                       SizeText(version.size), seconds));
      return absl::OkStatus();
    }
    if (!absl::IsDataLoss(contents.status())) return contents.status();
    if (all_of_this_run) {
      ABSL_RETURN_IF_ERROR(part.Discard());
      return absl::DataLossError(
          absl::StrCat(contents.status().message(), "; what came from ", file.url, " was removed"));
    }
    all_of_this_run = true;
    console_->Note(
        absl::StrCat(contents.status().message(), "; its start is of an earlier run: starts over"));
    console_->Lost(part.size());
    ABSL_RETURN_IF_ERROR(part.Restart(""));
  }
}

}  // namespace tools
