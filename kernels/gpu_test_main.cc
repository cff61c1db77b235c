// The main() of GPU tests, which run on machines without Bazel:
//   gpu_test_suite [--gtest_filter=...]
// Ends with a line "N passed, M failed"; exit code 0 if none failed.
#include <cstdio>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const absl::StatusOr<kernels::CudaDeviceInfo> device = kernels::DescribeCudaDevice();
  if (!device.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[0], std::string(device.status().message()).c_str());
    std::printf("0 passed, 1 failed\n");
    return 1;
  }
  // Most tests compare with it.
  if (const absl::Status cpu = kernels::CheckCpuBackend(); !cpu.ok()) {
    std::fprintf(stderr, "%s: the tests compare the GPU with the CPU backend: %s\n", argv[0],
                 std::string(cpu.message()).c_str());
    std::printf("0 passed, 1 failed\n");
    return 1;
  }
  std::printf("%s, compute capability %d.%d, driver for CUDA %d.%d\n", device->name.c_str(),
              device->major, device->minor, device->driver_version / 1000,
              device->driver_version % 1000 / 10);
  const int result = RUN_ALL_TESTS();
  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  const int passed = tests.successful_test_count(), failed = tests.failed_test_count();
  std::printf("%d passed, %d failed\n", passed, failed);
  // A filter that matches nothing has tested nothing.
  return passed + failed == 0 ? 1 : result;
}
