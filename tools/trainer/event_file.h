// Scalars in TensorBoard's format: a file of TFRecords, each an Event of tensorboard's event.proto.
//
// Both formats are stable and the fields are few, so they are written by hand: a protobuf library
// would be the build's largest dependency.
#ifndef TOOLS_TRAINER_EVENT_FILE_H_
#define TOOLS_TRAINER_EVENT_FILE_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tools {

class EventFile {
 public:
  struct Scalar {
    const char* tag;  // the part before a slash is the chart's section
    double value;     // stored in f32, NaN and infinities too
  };

  // Creates `folder` where it is missing and a new file in it, whose name sorts behind those of
  // earlier runs: TensorBoard reads a folder's files in that order. InvalidArgument, with the
  // system's words, if that is impossible.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Says that a run begins: values of `step` and later that earlier files have no longer hold.
  void Start(int64_t step);
  // Values after `step` updates. They are in the file when this returns.
  void Write(int64_t step, std::initializer_list<Scalar> scalars);
  // DataLoss if something could not be written.
  absl::Status Close();

  const std::string& path() const { return path_; }

 private:
  EventFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  // An Event; `what` is its encoded payload.
  void Append(int64_t step, const std::string& what);

  int fd_;  // -1: closed
  const std::string path_;
  absl::Status status_;  // of the first write that failed
};

}  // namespace tools

#endif  // TOOLS_TRAINER_EVENT_FILE_H_
