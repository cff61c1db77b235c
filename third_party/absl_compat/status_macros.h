// ABSL_RETURN_IF_ERROR and ABSL_ASSIGN_OR_RETURN with the spelling of recent Abseil's
// absl/status/status_macros.h, which Debian 12's Abseil does not have yet.
//
//   ABSL_RETURN_IF_ERROR(writer.Close());
//   ABSL_ASSIGN_OR_RETURN(Shard shard, Shard::Open(path));
#ifndef THIRD_PARTY_ABSL_COMPAT_STATUS_MACROS_H_
#define THIRD_PARTY_ABSL_COMPAT_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define NANOSPEED_CONCAT_INNER(a, b) a##b
#define NANOSPEED_CONCAT(a, b) NANOSPEED_CONCAT_INNER(a, b)

#define ABSL_RETURN_IF_ERROR(expression)                 \
  do {                                                   \
    absl::Status nanospeed_status = (expression);        \
    if (!nanospeed_status.ok()) return nanospeed_status; \
  } while (false)

#define ABSL_ASSIGN_OR_RETURN(target, expression) \
  NANOSPEED_ASSIGN_OR_RETURN(NANOSPEED_CONCAT(nanospeed_statusor_, __LINE__), target, expression)

#define NANOSPEED_ASSIGN_OR_RETURN(statusor, target, expression) \
  auto statusor = (expression);                                  \
  if (!statusor.ok()) return std::move(statusor).status();       \
  target = *std::move(statusor)

#endif  // THIRD_PARTY_ABSL_COMPAT_STATUS_MACROS_H_
