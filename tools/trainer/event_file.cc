#include "tools/trainer/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/crc32c.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "TFRecords are little-endian");

constexpr char kPrefix[] = "events.out.tfevents.";

// Protocol buffers' wire format: a key is the field's number and how its value is written.
constexpr int kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

void AddVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AddKey(int field, int wire, std::string* out) { AddVarint(field << 3 | wire, out); }

template <typename T>
void AddRaw(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AddBytes(int field, absl::string_view bytes, std::string* out) {
  AddKey(field, kBytes, out);
  AddVarint(bytes.size(), out);
  absl::StrAppend(out, bytes);
}

// Event's fields.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;

std::string Summary(std::initializer_list<EventFile::Scalar> scalars) {
  constexpr int kValue = 1, kTag = 1, kSimpleValue = 2;
  std::string summary;
  for (const EventFile::Scalar& scalar : scalars) {
    std::string value;
    AddBytes(kTag, scalar.tag, &value);
    AddKey(kSimpleValue, kFixed32, &value);
    AddRaw(static_cast<float>(scalar.value), &value);
    AddBytes(kValue, value, &summary);
  }
  std::string field;
  AddBytes(kSummary, summary, &field);
  return field;
}

// A TFRecord's checksum is turned and shifted, so that records of records have no simple ones.
uint32_t Masked(uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8u; }

std::string Record(const std::string& data) {
  std::string record;
  AddRaw(static_cast<uint64_t>(data.size()), &record);
  AddRaw(Masked(Crc32c(record)), &record);
  absl::StrAppend(&record, data);
  AddRaw(Masked(Crc32c(data)), &record);
  return record;
}

// The time of a new file's name: now, or later if a file of the folder is of now or later.
absl::StatusOr<int64_t> NameTime(const std::string& folder) {
  int64_t time = std::time(nullptr);
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    absl::string_view rest = name;
    int64_t other = 0;
    if (!absl::ConsumePrefix(&rest, kPrefix)) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(rest, '.');
    if (absl::SimpleAtoi(parts[0], &other)) time = std::max(time, other + 1);
  }
  if (!error) return time;
  return absl::InvalidArgumentError(
      absl::StrCat("--tensorboard_dir=", folder, ": cannot list it: ", error.message()));
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = "";
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensorboard_dir=", folder, ": cannot create it: ", error.message()));
  }
  ABSL_ASSIGN_OR_RETURN(const int64_t time, NameTime(folder));
  const std::string path =
      absl::StrFormat("%s/%s%010d.%s.%d", folder, kPrefix, time, HostName(), getpid());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensorboard_dir=", folder, ": cannot write there: ", std::strerror(errno)));
  }
  std::unique_ptr<EventFile> file(new EventFile(fd, path));
  std::string version;
  AddBytes(kFileVersion, "brain.Event:2", &version);  // with it, Start() is heeded
  file->Append(0, version);
  return file;
}

EventFile::~EventFile() {
  if (fd_ >= 0) close(fd_);
}

void EventFile::Start(int64_t step) {
  constexpr int kStatus = 1, kStart = 1;
  std::string session, field;
  AddKey(kStatus, kVarint, &session);
  AddVarint(kStart, &session);
  AddBytes(kSessionLog, session, &field);
  Append(step, field);
}

void EventFile::Write(int64_t step, std::initializer_list<Scalar> scalars) {
  Append(step, Summary(scalars));
}

void EventFile::Append(int64_t step, const std::string& what) {
  if (!status_.ok()) return;  // a record behind half a record would not be found
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  std::string event;
  AddKey(kWallTime, kFixed64, &event);
  AddRaw(static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec), &event);
  AddKey(kStep, kVarint, &event);
  AddVarint(static_cast<uint64_t>(step), &event);
  absl::StrAppend(&event, what);
  const std::string record = Record(event);
  // One call, unbuffered: who reads a live file finds whole records.
  for (size_t done = 0; done < record.size();) {
    const ssize_t written = write(fd_, record.data() + done, record.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      status_ =
          absl::DataLossError(absl::StrCat(path_, ": not written in full: ", std::strerror(errno)));
      return;
    }
    done += written;
  }
}

absl::Status EventFile::Close() {
  if (close(std::exchange(fd_, -1)) != 0 && status_.ok()) {
    status_ =
        absl::DataLossError(absl::StrCat(path_, ": not written in full: ", std::strerror(errno)));
  }
  return status_;
}

}  // namespace tools
