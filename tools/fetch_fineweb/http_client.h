// HTTP for downloads, by libcurl: GET and HEAD with redirects, ranges, a token, proxies.
//
// Blocking, one client a thread: a file is then one function from its first request to its last,
// waits and verification included. libcurl's multi interface would save a few threads and turn
// that function into a machine of states.
#ifndef TOOLS_FETCH_FINEWEB_HTTP_CLIENT_H_
#define TOOLS_FETCH_FINEWEB_HTTP_CLIENT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tools {

// What the last response of a request (after redirects) said. -1 or "" for what it did not say.
struct HttpResponse {
  int64_t status = 0;
  int64_t content_length = -1;
  std::string etag;          // as sent, quotes and all
  int64_t range_first = -1;  // Content-Range: bytes first-last/total
  int64_t range_total = -1;
  int64_t linked_size = -1;    // X-Linked-Size and X-Linked-ETag: the hub's facts of a large file,
  std::string linked_etag;     // given with the redirect to where its bytes are
  absl::Duration retry_after;  // Retry-After, seconds or a date; zero if none
};

// Adds one header line, "Name: value" with its line end, to what is known; a status line starts
// afresh. Lines that cannot be read count as not sent.
void ReadHeaderLine(absl::string_view line, HttpResponse* response);

struct HttpResult {
  // The transfer: Ok if the server's answer, whatever its status, came whole. Unavailable: cut,
  // stalled, unreachable: worth another try. Cancelled: interrupted. FailedPrecondition: will not
  // work. Or what the sink returned.
  absl::Status transfer;
  HttpResponse response;
};

// Receives the body of a response with a 2xx status.
class BodySink {
 public:
  virtual ~BodySink() = default;
  // Before the first byte. An error ends the transfer.
  virtual absl::Status Begin(const HttpResponse& response) = 0;
  virtual absl::Status Write(absl::string_view bytes) = 0;
};

struct HttpOptions {
  std::string token;  // "" for none; sent to the host of the URL, and not to where it redirects
  absl::Duration stall_timeout = absl::Seconds(30);  // to connect; and with less than 100 bytes/s
  std::function<bool()> interrupted;                 // asked about once a second
};

class HttpClient {
 public:
  // Call InitHttp() first, while the process has one thread.
  explicit HttpClient(HttpOptions options);
  ~HttpClient();

  HttpResult Head(const std::string& url, bool follow_redirects);
  // From byte `first` on; with `if_range`, an ETag, only if the file is still that one, and the
  // whole file otherwise.
  HttpResult Get(const std::string& url, int64_t first, const std::string& if_range,
                 BodySink* sink);

 private:
  struct Transfer;

  void Prepare(const std::string& url, Transfer* transfer);
  HttpResult Perform(const std::string& url, Transfer* transfer);

  const HttpOptions options_;
  void* const curl_;  // a CURL
};

// libcurl's own start, once per process.
absl::Status InitHttp();

}  // namespace tools

#endif  // TOOLS_FETCH_FINEWEB_HTTP_CLIENT_H_
