#include "third_party/absl_compat/check.h"

#include <cstdio>
#include <cstdlib>

namespace absl_compat {

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", stream_.str().c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace absl_compat
