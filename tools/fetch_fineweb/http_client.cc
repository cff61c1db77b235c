#include "tools/fetch_fineweb/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "third_party/absl_compat/check.h"

namespace tools {
namespace {

constexpr long kStallBytesPerSecond = 100;
constexpr long kMaxRedirects = 10;

// "bytes 100-199/1000"
void ReadContentRange(absl::string_view value, HttpResponse* response) {
  if (!absl::ConsumePrefix(&value, "bytes ")) return;
  const std::vector<absl::string_view> parts = absl::StrSplit(value, absl::ByAnyChar("-/"));
  int64_t first = 0, total = 0;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &first)) return;
  response->range_first = first;
  if (absl::SimpleAtoi(parts[2], &total)) response->range_total = total;
}

int64_t NumberOr(absl::string_view text, int64_t otherwise) {
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) && number >= 0 ? number : otherwise;
}

// The file of certificates that the environment names, by the names that curl's program knows.
const char* CertificateFile() {
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    const char* file = std::getenv(name);
    if (file != nullptr && *file != '\0') return file;
  }
  return nullptr;
}

absl::Status StatusOfCurl(CURLcode code, const std::string& text) {
  switch (code) {
    case CURLE_OK:
      return absl::OkStatus();
    case CURLE_ABORTED_BY_CALLBACK:
      return absl::CancelledError("interrupted");
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return absl::FailedPreconditionError(
          absl::StrCat(text,
                       "; install the package ca-certificates, or name your proxy's "
                       "certificates in SSL_CERT_FILE"));
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS:
      return absl::FailedPreconditionError(text);
    default:
      return absl::UnavailableError(text);
  }
}

// Owns the extra header lines of a request.
class HeaderList {
 public:
  HeaderList() = default;
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  ~HeaderList() { curl_slist_free_all(list_); }
  void Add(const std::string& line) {
    curl_slist* const longer = curl_slist_append(list_, line.c_str());
    CHECK(longer != nullptr) << "out of memory";
    list_ = longer;
  }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

template <typename Value>
void SetOption(CURL* curl, CURLoption option, Value value) {
  CHECK_EQ(curl_easy_setopt(curl, option, value), CURLE_OK) << "libcurl option " << option;
}

// A server must not lead to files, mail and the like, nor away from encryption.
void SetProtocols(CURL* curl, bool https_only) {
#if LIBCURL_VERSION_NUM >= 0x075500
  const char* const protocols = https_only ? "https" : "http,https";
  SetOption(curl, CURLOPT_PROTOCOLS_STR, protocols);
  SetOption(curl, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
#else
  const long protocols = https_only ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS;
  SetOption(curl, CURLOPT_PROTOCOLS, protocols);
  SetOption(curl, CURLOPT_REDIR_PROTOCOLS, protocols);
#endif
}

}  // namespace

void ReadHeaderLine(absl::string_view line, HttpResponse* response) {
  if (absl::StartsWith(line, "HTTP/")) {
    *response = HttpResponse();
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() > 1) response->status = NumberOr(words[1], 0);
    return;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
  if (parts.size() != 2) return;
  const std::string name = absl::AsciiStrToLower(parts[0]);
  const absl::string_view value = absl::StripAsciiWhitespace(parts[1]);
  if (name == "content-length") response->content_length = NumberOr(value, -1);
  if (name == "content-range") ReadContentRange(value, response);
  if (name == "etag") response->etag.assign(value.data(), value.size());
  if (name == "x-linked-size") response->linked_size = NumberOr(value, -1);
  if (name == "x-linked-etag") response->linked_etag.assign(value.data(), value.size());
}

// One request; what libcurl's callbacks see.
struct HttpClient::Transfer {
  BodySink* sink = nullptr;
  bool begun = false;
  bool follow_redirects = true;
  bool head = false;
  std::string range, if_range;
  const HttpOptions* options = nullptr;
  absl::Status sink_status;
  HttpResponse response;

  static size_t OnHeader(char* data, size_t, size_t size, void* self) {
    ReadHeaderLine({data, size}, &static_cast<Transfer*>(self)->response);
    return size;
  }

  static size_t OnBody(char* data, size_t, size_t size, void* self) {
    Transfer* const transfer = static_cast<Transfer*>(self);
    const int64_t status = transfer->response.status;
    if (transfer->sink == nullptr || status < 200 || status > 299) return size;
    if (!std::exchange(transfer->begun, true)) {
      transfer->sink_status = transfer->sink->Begin(transfer->response);
    }
    if (transfer->sink_status.ok()) transfer->sink_status = transfer->sink->Write({data, size});
    return transfer->sink_status.ok() ? size : 0;  // 0 ends the transfer
  }

  static int OnProgress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Transfer*>(self)->options->interrupted() ? 1 : 0;
  }
};

absl::Status InitHttp() {
  const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (code == CURLE_OK) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("libcurl does not start: ", curl_easy_strerror(code)));
}

HttpClient::HttpClient(HttpOptions options)
    : options_(std::move(options)), curl_(curl_easy_init()) {
  CHECK(curl_ != nullptr) << "libcurl";
  CHECK(options_.interrupted) << "HttpOptions::interrupted";
}

HttpClient::~HttpClient() { curl_easy_cleanup(curl_); }

HttpResult HttpClient::Head(const std::string& url, bool follow_redirects) {
  Transfer transfer;
  transfer.head = true;
  transfer.follow_redirects = follow_redirects;
  return Perform(url, &transfer);
}

HttpResult HttpClient::Get(const std::string& url, int64_t first, const std::string& if_range,
                           BodySink* sink) {
  Transfer transfer;
  transfer.sink = sink;
  if (first > 0) transfer.range = absl::StrCat(first, "-");
  if (first > 0) transfer.if_range = if_range;
  return Perform(url, &transfer);
}

// Everything of a request that does not depend on the answer.
void HttpClient::Prepare(const std::string& url, Transfer* transfer) {
  curl_easy_reset(curl_);                  // keeps connections
  SetOption(curl_, CURLOPT_NOSIGNAL, 1L);  // there are several threads
  SetOption(curl_, CURLOPT_URL, url.c_str());
  SetOption(curl_, CURLOPT_USERAGENT, "nanospeed-fetch_fineweb");
  SetOption(curl_, CURLOPT_BUFFERSIZE, 256L << 10);
  SetOption(curl_, CURLOPT_NOBODY, transfer->head ? 1L : 0L);
  SetOption(curl_, CURLOPT_FOLLOWLOCATION, transfer->follow_redirects ? 1L : 0L);
  SetOption(curl_, CURLOPT_MAXREDIRS, kMaxRedirects);
  SetProtocols(curl_, absl::StartsWithIgnoreCase(url, "https:"));
  const char* const certificates = CertificateFile();
  if (certificates != nullptr) SetOption(curl_, CURLOPT_CAINFO, certificates);
  if (!options_.token.empty()) {
    // Not as a header line: this way libcurl drops it where a redirect leads to another host,
    // port or protocol.
    SetOption(curl_, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    SetOption(curl_, CURLOPT_XOAUTH2_BEARER, options_.token.c_str());
    SetOption(curl_, CURLOPT_UNRESTRICTED_AUTH, 0L);
  }

  const long stall_seconds =
      std::max<long>(1, absl::ToInt64Seconds(absl::Ceil(options_.stall_timeout, absl::Seconds(1))));
  SetOption(curl_, CURLOPT_CONNECTTIMEOUT, stall_seconds);
  SetOption(curl_, CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
  SetOption(curl_, CURLOPT_LOW_SPEED_TIME, stall_seconds);

  SetOption(curl_, CURLOPT_HEADERFUNCTION, &Transfer::OnHeader);
  SetOption(curl_, CURLOPT_HEADERDATA, transfer);
  SetOption(curl_, CURLOPT_WRITEFUNCTION, &Transfer::OnBody);
  SetOption(curl_, CURLOPT_WRITEDATA, transfer);
  SetOption(curl_, CURLOPT_NOPROGRESS, 0L);
  SetOption(curl_, CURLOPT_XFERINFOFUNCTION, &Transfer::OnProgress);
  SetOption(curl_, CURLOPT_XFERINFODATA, transfer);
}

HttpResult HttpClient::Perform(const std::string& url, Transfer* transfer) {
  transfer->options = &options_;
  Prepare(url, transfer);
  char error[CURL_ERROR_SIZE] = "";
  SetOption(curl_, CURLOPT_ERRORBUFFER, error);
  HeaderList headers;
  headers.Add("Accept-Encoding: identity");  // sizes and ranges are those of the file itself
  if (!transfer->range.empty()) SetOption(curl_, CURLOPT_RANGE, transfer->range.c_str());
  if (!transfer->if_range.empty()) headers.Add("If-Range: " + transfer->if_range);
  SetOption(curl_, CURLOPT_HTTPHEADER, headers.get());

  const CURLcode code = curl_easy_perform(curl_);
  HttpResult result;
  result.transfer = StatusOfCurl(
      code, absl::StrCat(url, ": ", *error != '\0' ? error : curl_easy_strerror(code)));
  if (!transfer->sink_status.ok()) result.transfer = transfer->sink_status;
  result.response = transfer->response;
  curl_off_t retry_after = 0;
  CHECK_EQ(curl_easy_getinfo(curl_, CURLINFO_RETRY_AFTER, &retry_after), CURLE_OK);
  result.response.retry_after = absl::Seconds(std::max<curl_off_t>(retry_after, 0));
  return result;
}

}  // namespace tools
