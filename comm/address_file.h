// A file by which rank 0 tells the other ranks of its host where it listens.
#ifndef COMM_ADDRESS_FILE_H_
#define COMM_ADDRESS_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace comm {

struct LocalAddress {
  int port = 0;
  std::string token;  // what a caller has to say; letters and digits
};

// Token of 128 random bits.
std::string RandomToken();

// Where the file of `job` is, in a folder below $TMPDIR (else /tmp) that is made if it is not
// there. FailedPrecondition if the folder is not this user's own or others may write to it.
absl::StatusOr<std::string> AddressPath(absl::string_view job);

// Replaces the file in one step, so that nobody reads half of it.
absl::Status WriteAddress(const std::string& path, const LocalAddress& address);
// NotFound if it is not there, DataLoss if it is no such file.
absl::StatusOr<LocalAddress> ReadAddress(const std::string& path);

}  // namespace comm

#endif  // COMM_ADDRESS_FILE_H_
