// Work on several threads whose results come in the order of the work.
#ifndef TOOLS_TOKENIZE_ORDERED_WORKERS_H_
#define TOOLS_TOKENIZE_ORDERED_WORKERS_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "third_party/absl_compat/check.h"

namespace tools {

// One thread submits and takes; at most `capacity` pieces of work are under way, which bounds the
// memory.
//
//   while (more) {
//     if (workers.full()) Use(workers.TakeOldest());
//     workers.Submit(work);
//   }
//   while (!workers.empty()) Use(workers.TakeOldest());
template <typename Work, typename Result>
class OrderedWorkers {
 public:
  using Function = std::function<Result(Work)>;

  // Each thread calls a function of its own.
  OrderedWorkers(int threads, size_t capacity, const std::function<Function()>& make_function)
      : capacity_(capacity) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, function = make_function()] { RunThread(function); });
    }
  }

  ~OrderedWorkers() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool empty() const { return jobs_.empty(); }
  bool full() const { return jobs_.size() >= capacity_; }

  void Submit(Work work) {
    CHECK(!full());
    jobs_.push_back(std::make_shared<Job>());
    jobs_.back()->work = std::move(work);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.push_back(jobs_.back());
    }
    changed_.notify_all();
  }

  // Waits for the result of the work that was submitted first.
  Result TakeOldest() {
    CHECK(!empty());
    const std::shared_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&job] { return job->result.has_value(); });
    return *std::move(job->result);
  }

 private:
  struct Job {
    Work work;
    std::optional<Result> result;
  };

  void RunThread(const Function& function) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      const std::shared_ptr<Job> job = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      Result result = function(std::move(job->work));
      lock.lock();
      job->result = std::move(result);
      changed_.notify_all();
    }
  }

  const size_t capacity_;
  std::deque<std::shared_ptr<Job>> jobs_;  // of the submitting thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tools

#endif  // TOOLS_TOKENIZE_ORDERED_WORKERS_H_
