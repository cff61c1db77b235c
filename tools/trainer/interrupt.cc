#include "tools/trainer/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace tools {
namespace {

std::atomic<bool> interrupted = false;

// Takes the first signal. The second has its default effect, which is the whole process's.
void TakeSignals(sigset_t signals) {
  int signal = 0;
  if (sigwait(&signals, &signal) != 0) return;
  interrupted = true;
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  while (true) pause();
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
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread(TakeSignals, signals).detach();
}

bool Interrupted() { return interrupted; }

}  // namespace tools
