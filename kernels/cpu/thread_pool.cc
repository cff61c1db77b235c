#include "kernels/cpu/thread_pool.h"

#include <atomic>

#include "third_party/absl_compat/check.h"

namespace kernels {

struct ThreadPool::Job {
  const std::function<void(int64_t)>* task;
  int64_t count;
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::condition_variable finished;
  int64_t done = 0;  // guarded by mutex

  // Runs tasks until none is left to start.
  void Help() {
    int64_t ran = 0;
    for (int64_t i; (i = next.fetch_add(1)) < count; ++ran) (*task)(i);
    if (ran == 0) return;
    std::lock_guard<std::mutex> lock(mutex);
    done += ran;
    if (done == count) finished.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) {
  CHECK_GE(threads, 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t count, const std::function<void(int64_t)>& task) {
  if (workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  auto job = std::make_shared<Job>();
  job->task = &task;
  job->count = count;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(job);
  }
  wake_.notify_all();
  job->Help();
  {
    // Workers still hold the job, but its tasks all started: nobody else should pick it up.
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase(jobs_, job);
  }
  std::unique_lock<std::mutex> lock(job->mutex);
  job->finished.wait(lock, [&] { return job->done == count; });
}

void ThreadPool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const std::shared_ptr<Job> job = jobs_.front();
    lock.unlock();
    job->Help();
    lock.lock();
    std::erase(jobs_, job);
  }
}

}  // namespace kernels
