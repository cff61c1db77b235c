// 0 done, 1 bad input, 2 training failed, 130 interrupted.
#ifndef TOOLS_TRAINER_EXIT_CODE_H_
#define TOOLS_TRAINER_EXIT_CODE_H_

#include "absl/status/status.h"

namespace tools {

// Bad input are the codes that a user can act on before training: InvalidArgument, NotFound,
// DataLoss, OutOfRange, FailedPrecondition, ResourceExhausted, PermissionDenied. Cancelled is an
// interrupt. Everything else is a failed run.
inline int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kPermissionDenied:
      return 1;
    case absl::StatusCode::kCancelled:
      return 130;
    default:
      return 2;
  }
}

}  // namespace tools

#endif  // TOOLS_TRAINER_EXIT_CODE_H_
