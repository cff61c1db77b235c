// The process's worker threads. Several callers (the ranks of the local backend) may call at
// once; each helps with its own work.
#ifndef KERNELS_CPU_THREAD_POOL_H_
#define KERNELS_CPU_THREAD_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace kernels {

class ThreadPool {
 public:
  // `threads` includes the calling thread: 1 means no workers at all.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls task(i) for each i in [0, count), in any order and on any thread, and returns when
  // all are done. Which thread runs which task must not change results: cut work by shape,
  // never by threads(). Tasks may not call ParallelFor.
  void ParallelFor(int64_t count, const std::function<void(int64_t)>& task);

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

 private:
  struct Job;
  void Work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace kernels

#endif  // KERNELS_CPU_THREAD_POOL_H_
