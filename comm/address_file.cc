#include "comm/address_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace comm {

std::string RandomToken() {
  std::random_device device;
  std::string token;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&token, absl::StrFormat("%08x", device()));
  return token;
}

absl::StatusOr<std::string> AddressPath(absl::string_view job) {
  const char* temporary = std::getenv("TMPDIR");
  const std::string folder = absl::StrCat(
      temporary != nullptr && *temporary != '\0' ? temporary : "/tmp", "/nanospeed-", getuid());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, ": ", std::strerror(errno), "; set TMPDIR to a folder of yours"));
  }
  struct stat info = {};
  // lstat: somebody else's link to a folder of ours is not ours.
  if (lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != getuid() ||
      (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder,
                     ": not a folder to which this user alone may write; remove it, or "
                     "set TMPDIR"));
  }
  std::string name(job.substr(0, 100));
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  }
  return absl::StrCat(folder, "/", name, ".address");
}

absl::Status WriteAddress(const std::string& path, const LocalAddress& address) {
  const std::string part = absl::StrCat(path, ".", getpid());
  std::ofstream file(part, std::ios::trunc);
  file << address.port << " " << address.token << "\n";
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": cannot be written: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<LocalAddress> ReadAddress(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  LocalAddress address;
  if (!(file >> address.port >> address.token) || address.port < 1 || address.port > 65535) {
    return absl::DataLossError(absl::StrCat(path, ": no port and token in it"));
  }
  return address;
}

}  // namespace comm
