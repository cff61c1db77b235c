#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace kernels {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEachTaskOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (int64_t count : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> runs(count);
    pool.ParallelFor(count, [&](int64_t i) { ++runs[i]; });
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(runs[i], 1) << i << " of " << count;
  }
}

// Plain writes of the tasks are seen by the caller when the call returns.
TEST_P(ThreadPoolTest, ResultsAreVisibleAfterManyShortCalls) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(7);
  for (int64_t round = 0; round < 2000; ++round) {
    pool.ParallelFor(values.size(), [&](int64_t i) { values[i] = round * i; });
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], round * static_cast<int64_t>(i));
    }
  }
}

TEST_P(ThreadPoolTest, SeveralCallersAtOnce) {
  ThreadPool pool(GetParam());
  std::vector<std::vector<int64_t>> sums(3, std::vector<int64_t>(16));
  std::vector<std::thread> callers;
  for (auto& mine : sums) {
    callers.emplace_back([&pool, &mine] {
      for (int round = 0; round < 300; ++round) {
        pool.ParallelFor(mine.size(), [&](int64_t i) { mine[i] += i; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const auto& mine : sums) {
    for (size_t i = 0; i < mine.size(); ++i) EXPECT_EQ(mine[i], 300 * static_cast<int64_t>(i));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST(ThreadPool, OneThreadIsTheCaller) {
  ThreadPool pool(1);
  std::set<std::thread::id> seen;
  pool.ParallelFor(10, [&](int64_t) { seen.insert(std::this_thread::get_id()); });
  EXPECT_EQ(seen, std::set<std::thread::id>{std::this_thread::get_id()});
}

// Two tasks that wait for each other end only if two threads run them.
TEST(ThreadPool, WorkersHelp) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  pool.ParallelFor(2, [&](int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPoolDeathTest, NeedsAThread) { EXPECT_DEATH(ThreadPool(0), "threads >= 1"); }

}  // namespace
}  // namespace kernels
