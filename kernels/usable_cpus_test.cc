#include "kernels/usable_cpus.h"

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace kernels {
namespace {

namespace fs = std::filesystem;

TEST(UsableCpus, K2_28_AreThoseOfTheAffinityMask) {
  EXPECT_GE(UsableCpus(), 1);
  // On a thread of its own, whose mask ends with it.
  std::thread([] {
    cpu_set_t allowed, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    EXPECT_LE(UsableCpus(), CPU_COUNT(&allowed));
    int first = 0;
    while (!CPU_ISSET(first, &allowed)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(UsableCpus(), 1);
  }).join();
}

class CpusOfQuotaTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/cgroup_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
  }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(CpusOfQuotaTest, K2_28_Version2) {
  EXPECT_EQ(CpusOfQuota("0::/\n", root_), 0);
  Write("/cpu.max", "max 100000\n");
  EXPECT_EQ(CpusOfQuota("0::/\n", root_), 0);
  Write("/cpu.max", "200000 100000\n");
  EXPECT_EQ(CpusOfQuota("0::/\n", root_), 2);
  Write("/job/step/cpu.max", "150000 100000\n");
  EXPECT_EQ(CpusOfQuota("0::/job/step\n", root_), 2);
  Write("/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(CpusOfQuota("0::/job/step\n", root_), 1);
  EXPECT_EQ(CpusOfQuota("0::/of/the/host\n", root_), 2);
}

TEST_F(CpusOfQuotaTest, K2_28_Version1) {
  const std::string groups = "5:memory:/box\n4:cpu,cpuacct:/box\n1:name=systemd:/\n0::/\n";
  Write("/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  Write("/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpusOfQuota(groups, root_), 0);
  Write("/cpu,cpuacct/box/cpu.cfs_quota_us", "350000\n");
  EXPECT_EQ(CpusOfQuota(groups, root_), 4);
  Write("/memory/box/cpu.cfs_quota_us", "1\n");
  EXPECT_EQ(CpusOfQuota("garbage\n\n:\n", root_), 0);
}

}  // namespace
}  // namespace kernels
