#include "tools/fetch_fineweb/hub.h"

#include <arpa/inet.h>
#include <curl/curl.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/fetch_fineweb/retry_policy.h"

namespace tools {
namespace {

constexpr char kDefaultEndpoint[] = "https://huggingface.co";

// "" for a variable that is not set.
std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string Trimmed(const std::string& text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  return {trimmed.data(), trimmed.size()};
}

// One part of a URL; "" if it has none.
std::string UrlPart(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return "";
  const std::string copy = text;
  curl_free(text);
  return copy;
}

// A name that only begins like an address of this machine, 127.0.0.1.hub.example, is not one.
bool IsThisMachine(const std::string& host) {
  in_addr address;
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) return ntohl(address.s_addr) >> 24 == 127;
  return host == "localhost" || host == "[::1]";
}

absl::Status ParseEndpoint(const std::string& text, Hub* hub, bool* in_the_clear) {
  const auto refused = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("endpoint \"", text, "\": ", why,
                                                   "; give --endpoint or HF_ENDPOINT as in ",
                                                   kDefaultEndpoint));
  };
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), &curl_url_cleanup);
  CHECK(url != nullptr) << "libcurl";
  if (!absl::StartsWithIgnoreCase(text, "http://") &&
      !absl::StartsWithIgnoreCase(text, "https://")) {
    return refused("must begin with http:// or https://");
  }
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    return refused("is no address");
  }
  if (!UrlPart(url.get(), CURLUPART_USER).empty()) return refused("must not hold a user name");
  if (!UrlPart(url.get(), CURLUPART_QUERY).empty() ||
      !UrlPart(url.get(), CURLUPART_FRAGMENT).empty()) {
    return refused("must not hold ? or #");
  }
  *in_the_clear = UrlPart(url.get(), CURLUPART_SCHEME) == "http" &&
                  !IsThisMachine(UrlPart(url.get(), CURLUPART_HOST));
  absl::string_view shortened = text;
  while (absl::ConsumeSuffix(&shortened, "/")) {
  }
  hub->endpoint.assign(shortened.data(), shortened.size());
  return absl::OkStatus();
}

std::string TokenFile() {
  if (const std::string path = Environment("HF_TOKEN_PATH"); !path.empty()) return path;
  if (const std::string home = Environment("HF_HOME"); !home.empty()) return home + "/token";
  std::string cache = Environment("XDG_CACHE_HOME");
  if (cache.empty()) cache = Environment("HOME") + "/.cache";
  return cache + "/huggingface/token";
}

absl::Status FindToken(Hub* hub) {
  std::string source = "HF_TOKEN";
  std::string token = Trimmed(Environment("HF_TOKEN"));
  if (token.empty()) {
    source = TokenFile();
    std::ifstream file(source);
    token = Trimmed({std::istreambuf_iterator<char>(file), {}});
  }
  if (token.empty()) return absl::OkStatus();
  for (const unsigned char c : token) {
    if (!absl::ascii_isgraph(c)) {
      return absl::InvalidArgumentError(absl::StrCat(
          source, ": holds a blank or a character that no token has; write the token again"));
    }
  }
  hub->token = token;
  hub->token_source = source;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Hub> FindHub(const std::string& endpoint) {
  std::string text = endpoint.empty() ? Environment("HF_ENDPOINT") : endpoint;
  if (text.empty()) text = kDefaultEndpoint;
  Hub hub;
  bool in_the_clear = false;
  ABSL_RETURN_IF_ERROR(ParseEndpoint(text, &hub, &in_the_clear));
  ABSL_RETURN_IF_ERROR(FindToken(&hub));
  if (!hub.token.empty() && in_the_clear) {
    hub.warning = absl::StrCat("the token of ", hub.token_source, " is not sent to ", hub.endpoint,
                               ", where http would show it to the network");
    hub.token.clear();
  }
  return hub;
}

absl::Status StatusOfResponse(const HttpResponse& response, const std::string& url,
                              const Hub& hub) {
  const int64_t status = response.status;
  if (status >= 200 && status <= 299) return absl::OkStatus();
  const std::string text = absl::StrCat(url, ": the server answered ", status);
  if (IsTransientHttpStatus(status)) return absl::UnavailableError(text);
  switch (status) {
    case 401:
      return absl::PermissionDeniedError(absl::StrCat(
          text,
          hub.token.empty() ? " (unauthorized): this needs a token; set HF_TOKEN to one of yours"
                            : absl::StrCat(" (unauthorized): the token of ", hub.token_source,
                                           " was refused; set HF_TOKEN to a valid one, or to none"),
          ". The hub answers so too where there is no such repository"));
    case 403:
      return absl::PermissionDeniedError(absl::StrCat(
          text, hub.token.empty()
                    ? " (forbidden): set HF_TOKEN to a token that may read it"
                    : absl::StrCat(" (forbidden): the token of ", hub.token_source,
                                   " may not read it; accept the data set's terms on its page, "
                                   "or set HF_TOKEN to another")));
    case 404:
      return absl::NotFoundError(
          absl::StrCat(text, " (not found): the hub has no such file; look at --endpoint"));
    default:
      return absl::FailedPreconditionError(
          absl::StrCat(text, ", which is unexpected of a hub; look at --endpoint"));
  }
}

}  // namespace tools
