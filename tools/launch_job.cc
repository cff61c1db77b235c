#include "tools/launch_job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;

// Lines longer than this are printed in pieces.
constexpr size_t kLongestLine = 64 << 10;
// After the last rank has ended: for the rest of what it, or a process it left behind, prints.
constexpr std::chrono::milliseconds kDrainFor(500);

void Print(const std::string& text) {
  for (size_t written = 0; written < text.size();) {
    const ssize_t n = write(STDERR_FILENO, text.data() + written, text.size() - written);
    if (n < 0 && errno != EINTR) return;  // nobody reads it any more
    if (n > 0) written += static_cast<size_t>(n);
  }
}

// One end of a pipe on which a rank prints.
struct Stream {
  int fd = -1;
  int rank = 0;
  std::string line;

  // False when it has ended.
  bool Read() {
    char buffer[4096];
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n > 0) line.append(buffer, static_cast<size_t>(n));
    std::string out;
    for (size_t end; (end = line.find('\n')) != std::string::npos; line.erase(0, end + 1)) {
      absl::StrAppend(&out, "[rank ", rank, "] ", line.substr(0, end), "\n");
    }
    if (!line.empty() && (n <= 0 || line.size() > kLongestLine)) {
      absl::StrAppend(&out, "[rank ", rank, "] ", std::exchange(line, ""), "\n");
    }
    Print(out);
    return n > 0;
  }
};

struct Process {
  pid_t pid = -1;
  std::optional<int> code;  // once it has ended
};

std::string HowItEnded(int code) {
  return code > 128 ? absl::StrCat("signal ", code - 128, " (", strsignal(code - 128), ")")
                    : absl::StrCat("exit code ", code);
}

// In the new process: never returns. `out`: the pipe for standard output, or -1 to keep it.
[[noreturn]] void Become(const LaunchOptions& options, int rank, pid_t launcher, int out, int err,
                         const sigset_t& signals) {
  setpgid(0, 0);  // a terminal's Ctrl-C reaches the launcher alone, which passes it on once
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // it died before the line above
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  // A shell starts its background jobs with SIGINT ignored, and programs inherit that.
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &signals, nullptr);

  for (const char* name :
       {"NANOSPEED_RANK", "NANOSPEED_WORLD_SIZE", "NANOSPEED_LOCAL_RANK", "NANOSPEED_LOCAL_SIZE",
        "NANOSPEED_JOB", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "TORCHELASTIC_USE_AGENT_STORE"}) {
    unsetenv(name);
  }
  const std::string size = absl::StrCat(options.ranks), number = absl::StrCat(rank);
  setenv("RANK", number.c_str(), 1);
  setenv("LOCAL_RANK", number.c_str(), 1);
  setenv("WORLD_SIZE", size.c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", size.c_str(), 1);
  setenv("TORCHELASTIC_RUN_ID", absl::StrCat("launch", launcher).c_str(), 1);

  std::vector<char*> arguments;
  for (const std::string& word : options.command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  Print(absl::StrCat("cannot start ", arguments[0], ": ", std::strerror(errno), "\n"));
  _exit(127);
}

class Job {
 public:
  explicit Job(const LaunchOptions& options) : options_(options), processes_(options.ranks) {
    // A parent may have it ignored, and programs inherit that: then no end could be waited for.
    signal(SIGCHLD, SIG_DFL);
    // Ranks would die with a launcher whose standard error nobody reads any more.
    signal(SIGPIPE, SIG_IGN);
    // Before any child exists, so that no signal is missed.
    sigemptyset(&watched_);
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&watched_, signal);
    struct sigaction hangup = {};  // under nohup it is ignored, and stays so
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&watched_, SIGHUP);
    sigprocmask(SIG_BLOCK, &watched_, &before_);
    signals_ = signalfd(-1, &watched_, SFD_CLOEXEC | SFD_NONBLOCK);
    CHECK(signals_ >= 0) << std::strerror(errno);
  }
  ~Job() {
    Kill(SIGKILL);
    for (Process& process : processes_) {
      if (process.pid > 0 && !process.code.has_value()) waitpid(process.pid, nullptr, 0);
    }
    for (const Stream& stream : streams_) close(stream.fd);
    close(signals_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  absl::Status Start() {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      int out = -1;
      if (rank > 0) {
        ABSL_ASSIGN_OR_RETURN(out, AddStream(rank));
      }
      ABSL_ASSIGN_OR_RETURN(const int err, AddStream(rank));
      const pid_t launcher = getpid();
      const pid_t pid = fork();
      if (pid < 0) {
        return absl::UnavailableError(
            absl::StrCat("cannot start the process of rank ", rank, ": ", std::strerror(errno)));
      }
      if (pid == 0) Become(options_, rank, launcher, out, err, before_);
      setpgid(pid, pid);  // as the child does, whoever comes first
      processes_[rank].pid = pid;
      if (out >= 0) close(out);
      close(err);
    }
    return absl::OkStatus();
  }

  int Run() {
    while (Running() > 0) {
      Await();
      TakeSignals();
      NoteEnds();
      if (kill_at_.has_value() && Clock::now() >= *kill_at_) KillTheRest();
    }
    for (const auto end = Clock::now() + kDrainFor; !streams_.empty() && Clock::now() < end;) {
      Await();
    }
    return failed_.has_value() ? *processes_[*failed_].code : 0;
  }

 private:
  // A pipe whose reading end is a stream; returns the other end.
  absl::StatusOr<int> AddStream(int rank) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return absl::UnavailableError(absl::StrCat("no pipe for rank ", rank, ": ",
                                                 std::strerror(errno),
                                                 "; raise the limit of open files (ulimit -n)"));
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    streams_.push_back({.fd = ends[0], .rank = rank, .line = ""});
    return ends[1];
  }

  int Running() const {
    return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                          [](const Process& p) { return !p.code.has_value(); }));
  }

  // Until there is something to read, or a signal, or the grace period is over.
  void Await() {
    std::vector<pollfd> entries = {{.fd = signals_, .events = POLLIN, .revents = 0}};
    for (const Stream& stream : streams_) {
      entries.push_back({.fd = stream.fd, .events = POLLIN, .revents = 0});
    }
    const int wait_ms = kill_at_.has_value() || Running() == 0 ? 50 : -1;
    if (poll(entries.data(), entries.size(), wait_ms) <= 0) return;
    for (size_t i = entries.size(); i-- > 1;) {
      if (entries[i].revents == 0 || streams_[i - 1].Read()) continue;
      close(streams_[i - 1].fd);
      streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(i - 1));
    }
  }

  void TakeSignals() {
    signalfd_siginfo info = {};
    while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      Kill(signal);
      // A terminal that is closed sends SIGHUP twice.
      if (std::exchange(stopping_, true) && signal != SIGHUP) StartGrace();
    }
  }

  void NoteEnds() {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      Process& process = processes_[rank];
      int status = 0;
      if (process.code.has_value() || waitpid(process.pid, &status, WNOHANG) != process.pid)
        continue;
      process.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (*process.code == 0 || failed_.has_value()) continue;
      failed_ = rank;
      Print(absl::StrCat("launch: rank ", rank, " ended first, with ", HowItEnded(*process.code),
                         "\n"));
      if (!stopping_) StartGrace();  // else they end because they were asked to
    }
  }

  void StartGrace() {
    const absl::Duration grace = std::min(options_.grace, absl::Hours(24 * 365));
    if (!kill_at_.has_value()) kill_at_ = Clock::now() + absl::ToChronoNanoseconds(grace);
  }

  void KillTheRest() {
    std::vector<int> rest;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      if (!processes_[rank].code.has_value()) rest.push_back(rank);
    }
    if (rest.empty() || std::exchange(killed_, true)) return;
    Print(absl::StrCat("launch: killed rank ", absl::StrJoin(rest, ", "), ", still running ",
                       absl::FormatDuration(options_.grace), " later\n"));
    Kill(SIGKILL);
  }

  // To the process groups of the ranks that are running.
  void Kill(int signal) {
    for (const Process& process : processes_) {
      if (process.pid > 0 && !process.code.has_value()) kill(-process.pid, signal);
    }
  }

  const LaunchOptions& options_;
  sigset_t watched_, before_;
  int signals_ = -1;
  std::vector<Process> processes_;  // by rank
  std::vector<Stream> streams_;
  std::optional<int> failed_;  // the first rank that did
  bool stopping_ = false;      // a signal was passed on
  bool killed_ = false;
  std::optional<Clock::time_point> kill_at_;
};

}  // namespace

absl::StatusOr<int> RunJob(const LaunchOptions& options) {
  CHECK(options.ranks >= 1 && !options.command.empty());
  Job job(options);
  ABSL_RETURN_IF_ERROR(job.Start());
  return job.Run();
}

}  // namespace tools
