#include "tools/tokenize/ordered_workers.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tools {
namespace {

using Workers = OrderedWorkers<int, std::string>;

TEST(OrderedWorkers, ResultsComeInTheOrderOfTheWork) {
  for (const int threads : {1, 2, 5}) {
    Workers workers(threads, 7, [] {
      return [](int work) {
        // Later work is often done first.
        std::this_thread::sleep_for(std::chrono::microseconds(work % 3 == 0 ? 300 : 0));
        return std::to_string(work);
      };
    });
    int taken = 0;
    for (int i = 0; i < 200; ++i) {
      if (workers.full()) {
        EXPECT_EQ(workers.TakeOldest(), std::to_string(taken++));
      }
      workers.Submit(i);
    }
    while (!workers.empty()) EXPECT_EQ(workers.TakeOldest(), std::to_string(taken++));
    EXPECT_EQ(taken, 200);
  }
}

TEST(OrderedWorkers, NoMoreThanCapacityUnderWay) {
  Workers workers(2, 3, [] { return [](int work) { return std::to_string(work); }; });
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(workers.full());
    workers.Submit(i);
  }
  EXPECT_TRUE(workers.full());
  workers.TakeOldest();
  EXPECT_FALSE(workers.full());
}

TEST(OrderedWorkers, EachThreadHasAFunctionOfItsOwn) {
  std::atomic<int> made = 0;
  Workers workers(3, 4, [&made] { return [id = made++](int) { return std::to_string(id); }; });
  EXPECT_EQ(made, 3);
}

TEST(OrderedWorkers, LeavesWithWorkUnderWay) {
  std::atomic<int> begun = 0;
  {
    Workers workers(1, 10, [&begun] {
      return [&begun](int) {
        ++begun;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return std::string();
      };
    });
    for (int i = 0; i < 10; ++i) workers.Submit(i);
  }
  EXPECT_LT(begun, 10);  // what had not begun is dropped
}

}  // namespace
}  // namespace tools
