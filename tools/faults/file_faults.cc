// A library to preload: counts a program's calls on files below one folder, and lets one of them,
// or all from one on, fail.
//
//   FAULTS_BELOW=/tmp/run FAULTS_LOG=/tmp/calls LD_PRELOAD=.../libfile_faults.so track1 ...
//   FAULTS_BELOW=/tmp/run FAULT=7:ENOSPC LD_PRELOAD=...
//
//   FAULTS_BELOW   absolute; calls on other paths are neither counted nor changed
//   FAULTS_LOG     gets a line for each call, before it is made: "7 write /tmp/run/a"
//   FAULT          N:KIND, or N+:KIND for this and all later calls. KIND is an errno by name; for
//                  "write" also short (half of the bytes) and kill_half; kill_before, kill_after
//                  (SIGKILL) and sigterm (before). A call to which a fault cannot happen is made: a
//                  write has no EMFILE.
//
// Between libc and the program, so that the real program with all its libraries meets the faults:
// std::filesystem's calls come by here too. What libc calls itself does not: the writes of FILE*.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>

namespace {

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

struct Fault {
  int first = 0;  // number of the call, from 1; 0: none
  bool lasts = false;
  std::string kind;
};

constexpr struct {
  const char* name;
  int value;
} kErrors[] = {{"EACCES", EACCES}, {"EINTR", EINTR},   {"EIO", EIO},
               {"EMFILE", EMFILE}, {"ENOSPC", ENOSPC}, {"EROFS", EROFS}};

class Schedule {
 public:
  Schedule() {
    const char* below = getenv("FAULTS_BELOW");
    if (below != nullptr) below_ = below;
    if (const char* log = getenv("FAULTS_LOG"); log != nullptr && !below_.empty()) {
      log_ = Next<int(const char*, int, ...)>("open")(
          log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    }
    const char* fault = getenv("FAULT");
    if (fault == nullptr) return;
    char* end = nullptr;
    fault_.first = static_cast<int>(strtol(fault, &end, 10));
    fault_.lasts = *end == '+';
    if (fault_.lasts) ++end;
    fault_.kind = *end == ':' ? end + 1 : "";
    if (fault_.first < 1 || fault_.kind.empty()) {
      fprintf(stderr, "file_faults: FAULT=%s is not N:KIND\n", fault);
      abort();
    }
  }

  bool Covers(const std::string& path) const {
    return !below_.empty() && path.compare(0, below_.size(), below_) == 0 &&
           (path.size() == below_.size() || path[below_.size()] == '/');
  }

  // Counts a call. The fault that it meets, or an empty string.
  std::string Count(const char* call, const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++calls_;
    if (log_ >= 0) {
      const std::string line = std::to_string(calls_) + " " + call + " " + path + "\n";
      if (Next<ssize_t(int, const void*, size_t)>("write")(log_, line.data(), line.size()) < 0) {
        abort();
      }
    }
    const bool meets = calls_ == fault_.first || (fault_.lasts && calls_ > fault_.first);
    return fault_.first > 0 && meets ? fault_.kind : "";
  }

 private:
  std::string below_;
  Fault fault_;
  int log_ = -1;
  std::mutex mutex_;
  int calls_ = 0;  // guarded by mutex_
};

Schedule& TheSchedule() {
  static Schedule* const schedule = new Schedule;  // outlives all that the program destroys
  return *schedule;
}

// Paths of descriptors that were opened below the folder.
constexpr int kMaxDescriptors = 4096;
std::mutex paths_mutex;
std::string& PathOf(int fd) {
  static auto* const paths = new std::string[kMaxDescriptors];
  static std::string* const none = new std::string;
  return fd >= 0 && fd < kMaxDescriptors ? paths[fd] : *none;
}
std::string GetPath(int fd) {
  std::lock_guard<std::mutex> lock(paths_mutex);
  return PathOf(fd);
}
void SetPath(int fd, const std::string& path) {
  std::lock_guard<std::mutex> lock(paths_mutex);
  if (fd >= 0 && fd < kMaxDescriptors) PathOf(fd) = path;
}

std::string Absolute(int folder, const char* path) {
  if (path[0] == '/') return path;
  if (folder != AT_FDCWD) {
    const std::string parent = GetPath(folder);
    return parent.empty() ? "" : parent + "/" + path;
  }
  char here[4096];
  return getcwd(here, sizeof(here)) == nullptr ? "" : std::string(here) + "/" + path;
}

// Makes a call on `path`, or the fault that the schedule has for it. `errors` names those that can
// happen to it.
template <typename Result, typename Make>
Result Call(const char* name, const std::string& path, const char* errors, Result failed,
            const Make& make) {
  if (!TheSchedule().Covers(path)) return make();
  const std::string kind = TheSchedule().Count(name, path);
  if (kind == "kill_before") kill(getpid(), SIGKILL);
  if (kind == "sigterm") kill(getpid(), SIGTERM);
  for (const auto& error : kErrors) {
    if (kind != error.name || strstr(errors, error.name) == nullptr) continue;
    errno = error.value;
    return failed;
  }
  const Result result = make();
  if (kind == "kill_after") kill(getpid(), SIGKILL);
  return result;
}

constexpr char kCreateErrors[] = "EACCES EINTR EIO EMFILE ENOSPC EROFS";
constexpr char kOpenErrors[] = "EACCES EINTR EIO EMFILE";
constexpr char kWriteErrors[] = "EINTR EIO ENOSPC";
constexpr char kSyncErrors[] = "EINTR EIO ENOSPC";
constexpr char kMakeErrors[] = "EACCES EIO ENOSPC EROFS";
constexpr char kChangeErrors[] = "EACCES EIO EROFS";
constexpr char kLookErrors[] = "EACCES EIO";

int OpenAt(const char* name, int folder, const char* path, int flags, mode_t mode) {
  static auto* const next = Next<int(int, const char*, int, ...)>("openat");
  const std::string where = Absolute(folder, path);
  const bool creates = (flags & O_CREAT) != 0;
  const int fd = Call(creates ? "create" : name, where, creates ? kCreateErrors : kOpenErrors, -1,
                      [&] { return next(folder, path, flags, mode); });
  if (fd >= 0) SetPath(fd, TheSchedule().Covers(where) ? where : "");
  return fd;
}

mode_t ModeOf(int flags, va_list arguments) {
  return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

#define DEFINE_OPEN(NAME)                               \
  int NAME(const char* path, int flags, ...) {          \
    va_list arguments;                                  \
    va_start(arguments, flags);                         \
    const mode_t mode = ModeOf(flags, arguments);       \
    va_end(arguments);                                  \
    return OpenAt("open", AT_FDCWD, path, flags, mode); \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_OPENAT(NAME)                                \
  int NAME(int folder, const char* path, int flags, ...) { \
    va_list arguments;                                     \
    va_start(arguments, flags);                            \
    const mode_t mode = ModeOf(flags, arguments);          \
    va_end(arguments);                                     \
    return OpenAt("openat", folder, path, flags, mode);    \
  }
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

ssize_t write(int fd, const void* data, size_t size) {
  static auto* const next = Next<ssize_t(int, const void*, size_t)>("write");
  const std::string path = GetPath(fd);
  if (!TheSchedule().Covers(path)) return next(fd, data, size);
  const std::string kind = TheSchedule().Count("write", path);
  if (kind == "kill_before") kill(getpid(), SIGKILL);
  if (kind == "sigterm") kill(getpid(), SIGTERM);
  if (kind == "kill_half") {
    next(fd, data, size / 2);
    kill(getpid(), SIGKILL);
  }
  if (kind == "short" && size > 1) return next(fd, data, size / 2);
  for (const auto& error : kErrors) {
    if (kind != error.name || strstr(kWriteErrors, error.name) == nullptr) continue;
    errno = error.value;
    return -1;
  }
  const ssize_t result = next(fd, data, size);
  if (kind == "kill_after") kill(getpid(), SIGKILL);
  return result;
}

int fsync(int fd) {
  static auto* const next = Next<int(int)>("fsync");
  return Call("fsync", GetPath(fd), kSyncErrors, -1, [&] { return next(fd); });
}

int close(int fd) {
  static auto* const next = Next<int(int)>("close");
  const std::string path = GetPath(fd);
  SetPath(fd, "");
  bool closed = false;
  const int result = Call("close", path, kWriteErrors, -1, [&] {
    closed = true;
    return next(fd);
  });
  if (!closed) {  // it is gone in either case, as on Linux
    const int error = errno;
    next(fd);
    errno = error;
  }
  return result;
}

int rename(const char* from, const char* to) {
  static auto* const next = Next<int(const char*, const char*)>("rename");
  const std::string path = Absolute(AT_FDCWD, from);
  return Call("rename", path + " " + Absolute(AT_FDCWD, to), "EACCES EIO ENOSPC EROFS", -1,
              [&] { return next(from, to); });
}

int mkdir(const char* path, mode_t mode) {
  static auto* const next = Next<int(const char*, mode_t)>("mkdir");
  return Call("mkdir", Absolute(AT_FDCWD, path), kMakeErrors, -1, [&] { return next(path, mode); });
}

int unlink(const char* path) {
  static auto* const next = Next<int(const char*)>("unlink");
  return Call("unlink", Absolute(AT_FDCWD, path), kChangeErrors, -1, [&] { return next(path); });
}

int rmdir(const char* path) {
  static auto* const next = Next<int(const char*)>("rmdir");
  return Call("rmdir", Absolute(AT_FDCWD, path), kChangeErrors, -1, [&] { return next(path); });
}

int remove(const char* path) {
  static auto* const next = Next<int(const char*)>("remove");
  return Call("remove", Absolute(AT_FDCWD, path), kChangeErrors, -1, [&] { return next(path); });
}

int unlinkat(int folder, const char* path, int flags) {
  static auto* const next = Next<int(int, const char*, int)>("unlinkat");
  return Call("unlinkat", Absolute(folder, path), kChangeErrors, -1,
              [&] { return next(folder, path, flags); });
}

// Their descriptor has a path, as unlinkat's folder.
DIR* opendir(const char* path) {
  static auto* const next = Next<DIR*(const char*)>("opendir");
  const std::string where = Absolute(AT_FDCWD, path);
  DIR* const folder =
      Call("opendir", where, kOpenErrors, static_cast<DIR*>(nullptr), [&] { return next(path); });
  if (folder != nullptr && TheSchedule().Covers(where)) SetPath(dirfd(folder), where);
  return folder;
}

int closedir(DIR* folder) {
  static auto* const next = Next<int(DIR*)>("closedir");
  SetPath(dirfd(folder), "");
  return next(folder);
}

#define DEFINE_READDIR(NAME, ENTRY)                                                     \
  ENTRY* NAME(DIR* folder) {                                                            \
    static auto* const next = Next<ENTRY*(DIR*)>(#NAME);                                \
    return Call("readdir", GetPath(dirfd(folder)), "EIO", static_cast<ENTRY*>(nullptr), \
                [&] { return next(folder); });                                          \
  }
DEFINE_READDIR(readdir, dirent)
DEFINE_READDIR(readdir64, dirent64)

#define DEFINE_STAT(NAME, INFO)                                     \
  int NAME(const char* path, INFO* info) {                          \
    static auto* const next = Next<int(const char*, INFO*)>(#NAME); \
    return Call("stat", Absolute(AT_FDCWD, path), kLookErrors, -1,  \
                [&] { return next(path, info); });                  \
  }
DEFINE_STAT(stat, struct stat)
DEFINE_STAT(stat64, struct stat64)
DEFINE_STAT(lstat, struct stat)

}  // extern "C"
