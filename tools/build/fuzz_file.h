// An input of a fuzz target as a file, for parsers that take a path.
#ifndef TOOLS_BUILD_FUZZ_FILE_H_
#define TOOLS_BUILD_FUZZ_FILE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace fuzz {

// In memory; gone with the object.
class File {
 public:
  File(const uint8_t* data, size_t size) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(fd_); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  const int fd_;
};

}  // namespace fuzz

#endif  // TOOLS_BUILD_FUZZ_FILE_H_
