// Which hub, and the token for it, by the conventions of Hugging Face's own client.
#ifndef TOOLS_FETCH_FINEWEB_HUB_H_
#define TOOLS_FETCH_FINEWEB_HUB_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/fetch_fineweb/http_client.h"

namespace tools {

struct Hub {
  std::string endpoint;      // scheme, host and perhaps port and path; no slash at its end
  std::string token;         // "" if there is none, or it must not be sent there
  std::string token_source;  // "HF_TOKEN" or a path; "" if there is no token
  std::string warning;       // why a token that was found is not sent; ""
};

// `endpoint`, or if that is empty $HF_ENDPOINT, or https://huggingface.co. The token is $HF_TOKEN,
// or the content of $HF_TOKEN_PATH, of $HF_HOME/token, or of ~/.cache/huggingface/token
// ($XDG_CACHE_HOME for ~/.cache). It is not sent in the clear to another machine: where the
// endpoint is http:// and not of this one. InvalidArgument for what is no http address, holds a
// password or a query; for a token that could not stand in a header.
absl::StatusOr<Hub> FindHub(const std::string& endpoint);

// Ok for 2xx, Unavailable for what another try may change, else what to do about it:
// PermissionDenied, NotFound or FailedPrecondition.
absl::Status StatusOfResponse(const HttpResponse& response, const std::string& url, const Hub& hub);

}  // namespace tools

#endif  // TOOLS_FETCH_FINEWEB_HUB_H_
