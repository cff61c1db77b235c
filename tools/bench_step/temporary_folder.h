// A folder that goes away with its object.
#ifndef TOOLS_BENCH_STEP_TEMPORARY_FOLDER_H_
#define TOOLS_BENCH_STEP_TEMPORARY_FOLDER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace tools {

class TemporaryFolder {
 public:
  // Under $TMPDIR, else /tmp. FailedPrecondition, with the system's reason.
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Create();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace tools

#endif  // TOOLS_BENCH_STEP_TEMPORARY_FOLDER_H_
