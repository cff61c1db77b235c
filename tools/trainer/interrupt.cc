#include "tools/trainer/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

namespace tools {
namespace {

std::atomic<bool> interrupted = false;

// Whoever pressed the key sees that it was taken, though a step may be long.
void Tell(int signal) {
  const std::string text = std::string("SIG") + sigabbrev_np(signal) +
                           ": stopping after the step in hand; SIGINT or SIGTERM stops at once\n";
  // Nothing is lost if nobody reads it.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

// Takes the first signal. A second SIGINT or SIGTERM has its default effect, which is the whole
// process's, also where a parent had it ignored: a shell does that to SIGINT of its background
// jobs.
void TakeSignals(sigset_t signals) {
  int taken = 0;
  if (sigwait(&signals, &taken) != 0) return;
  interrupted = true;
  Tell(taken);
  sigset_t at_once;
  sigemptyset(&at_once);
  for (const int signal : {SIGINT, SIGTERM}) {
    ::signal(signal, SIG_DFL);
    sigaddset(&at_once, signal);
  }
  pthread_sigmask(SIG_UNBLOCK, &at_once, nullptr);
  while (true) pause();
}

bool Ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

// A thread of its own takes them, and all others never see them. With a handler, which runs on the
// stack of whatever thread is at hand, ranks of Open MPI were found with a corrupted heap after one
// interruption of ten, always in the same product (dnnl_sgemm) on the thread that computes.
void InstallInterruptHandlers() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (!Ignored(SIGHUP)) sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread(TakeSignals, signals).detach();
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
}

bool Interrupted() { return interrupted; }

}  // namespace tools
