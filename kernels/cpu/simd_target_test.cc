// Which instruction set the kernels run with: what the processor has, what the environment says,
// and that the kernels and oneDNN follow.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_target_test.cc"
#include "hwy/foreach_target.h"  // includes this file again for each target
//
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd_dispatch.h"
#include "kernels/cpu/simd_target.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {
namespace {

int64_t CompiledFor() { return HWY_TARGET; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels {
namespace {

using ::testing::HasSubstr;

KERNELS_EXPORT(CompiledFor);

const std::vector<SimdTarget> kTargets = {
    {"SCALAR", 1 << 9, true, true},   {"SSE4", 1 << 8, true, true},
    {"AVX2", 1 << 7, true, true},     {"AVX3", 1 << 6, true, false},
    {"AVX3_DL", 1 << 5, false, true}, {"AVX3_SPR", 0, false, false}};

TEST(ChooseSimdTarget, TheBestThatRuns) {
  for (const char* none : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_EQ(ChooseSimdTarget(kTargets, none)->name, "AVX2");
  }
}

TEST(ChooseSimdTarget, ByName) {
  for (const char* name : {"SCALAR", "SSE4", "AVX2"}) {
    EXPECT_EQ(ChooseSimdTarget(kTargets, name)->name, name);
  }
}

TEST(ChooseSimdTarget, ErrorsSayWhatWouldWork) {
  const auto error = [](const char* name) {
    const absl::Status status = ChooseSimdTarget(kTargets, name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    return std::string(status.message());
  };
  const std::string end = "; here it can be SCALAR, SSE4, AVX2";
  for (const char* unknown : {"AVX5", "avx2", "AVX", "AVX2 "}) {
    EXPECT_EQ(error(unknown),
              std::string("NANOSPEED_CPU_TARGET=") + unknown + ": no such target" + end);
  }
  EXPECT_EQ(error("AVX3"),
            "NANOSPEED_CPU_TARGET=AVX3: this machine's processor or operating system lacks this "
            "target" +
                end);
  for (const char* name : {"AVX3_DL", "AVX3_SPR"}) {
    EXPECT_EQ(error(name), std::string("NANOSPEED_CPU_TARGET=") + name +
                               ": this program was compiled without this target" + end);
  }
}

TEST(ChooseSimdTarget, NothingRuns) {
  const absl::Status status = ChooseSimdTarget({{"AVX3", 1 << 6, true, false}}, nullptr).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("--config=native"));
}

// Every target that runs is dispatched to, and no other is called compiled.
TEST(SimdTargets, AreWhatThisFileIsCompiledFor) {
  int64_t compiled = 0;
  for (const SimdTarget& target : SimdTargets()) {
    if (!target.compiled) continue;
    compiled |= target.bit;
    if (!target.supported) continue;
    EXPECT_EQ(KERNELS_DISPATCH_TO(target.bit, CompiledFor)(), target.bit) << target.name;
  }
  EXPECT_EQ(compiled, int64_t{HWY_TARGETS});
}

#if HWY_ARCH_X86
TEST(SimdTargets, AgreeWithTheCompilersOwnDetection) {
  const auto supported = [](const char* name) {
    for (const SimdTarget& target : SimdTargets()) {
      if (target.name == name) return target.supported;
    }
    return false;
  };
  EXPECT_TRUE(supported("SSE2"));
  EXPECT_EQ(supported("SSSE3"), __builtin_cpu_supports("ssse3") != 0);
  // These have parts that are on every processor with the ones named.
  EXPECT_EQ(supported("SSE4"), __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("aes"));
  EXPECT_EQ(supported("AVX2"), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(supported("AVX3"),
            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"));
  EXPECT_EQ(supported("AVX3_DL"),
            __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("vpclmulqdq"));
}

// Cascades of bits: taking one away leaves the target below.
TEST(BestX86Target, NeedsEveryPart) {
  CpuFeatures all;
  all.leaf1_ecx = all.leaf7_ebx = all.leaf7_ecx = all.leaf7_edx = all.leaf7_1_eax = ~0u;
  all.xcr0 = ~uint64_t{0};
  EXPECT_EQ(BestX86Target(all), "AVX3_SPR");
  EXPECT_EQ(BestX86Target({}), "SSE2");

  const auto without = [&](uint32_t CpuFeatures::*leaf, int bit) {
    CpuFeatures features = all;
    features.*leaf &= ~(1u << bit);
    return std::string(BestX86Target(features));
  };
  EXPECT_EQ(without(&CpuFeatures::leaf7_edx, 23), "AVX3_ZEN4");  // AVX512_FP16
  EXPECT_EQ(without(&CpuFeatures::leaf7_1_eax, 5), "AVX3_DL");   // AVX512_BF16
  for (int bit : {1, 6, 8, 9, 10, 11, 12, 14}) {                 // VBMI to VPOPCNTDQ
    EXPECT_EQ(without(&CpuFeatures::leaf7_ecx, bit), "AVX3") << bit;
  }
  for (int bit : {16, 17, 28, 30, 31}) {  // AVX512 F, DQ, CD, BW, VL
    EXPECT_EQ(without(&CpuFeatures::leaf7_ebx, bit), "AVX2") << bit;
  }
  for (int bit : {3, 5, 8}) {  // BMI1, AVX2, BMI2
    EXPECT_EQ(without(&CpuFeatures::leaf7_ebx, bit), "SSE4") << bit;
  }
  for (int bit : {12, 27, 28, 29}) {  // FMA, OSXSAVE, AVX, F16C
    EXPECT_EQ(without(&CpuFeatures::leaf1_ecx, bit), "SSE4") << bit;
  }
  for (int bit : {1, 19, 20, 25}) {  // PCLMULQDQ, SSE4.1, SSE4.2, AES
    EXPECT_EQ(without(&CpuFeatures::leaf1_ecx, bit), "SSSE3") << bit;
  }
  for (int bit : {0, 9}) EXPECT_EQ(without(&CpuFeatures::leaf1_ecx, bit), "SSE2") << bit;
}

// A processor with AVX-512 under an operating system, or a virtual machine, that does not save its
// registers.
TEST(BestX86Target, NeedsTheOperatingSystem) {
  CpuFeatures features;
  features.leaf1_ecx = features.leaf7_ebx = features.leaf7_ecx = ~0u;
  for (const auto& [xcr0, want] : {std::pair<uint64_t, const char*>{0xE7, "AVX3_DL"},
                                   {0x67, "AVX2"},
                                   {0x07, "AVX2"},
                                   {0x03, "SSE4"},
                                   {0x00, "SSE4"}}) {
    features.xcr0 = xcr0;
    EXPECT_EQ(BestX86Target(features), want) << xcr0;
  }
}

// oneDNN's own word for what it may use: dnnl_get_effective_cpu_isa(), values of dnnl_cpu_isa_t.
int EffectiveIsa() {
  SgemmLibrary();  // loads it, if it is not linked
  for (const std::string& name : SgemmLibraryNames()) {
    void* const library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    void* const function = dlsym(library, "dnnl_get_effective_cpu_isa");
    if (function != nullptr) return reinterpret_cast<int (*)()>(function)();
  }
  return -1;
}

// In a process of its own, since a process has one target.
[[noreturn]] void ExitIfFollowed(const SimdTarget& target, int isa) {
  setenv(kCpuTargetVariable, target.name.c_str(), 1);
  unsetenv("DNNL_MAX_CPU_ISA");
  unsetenv("ONEDNN_MAX_CPU_ISA");
  const bool followed = CheckCpuBackend().ok() && CpuTarget().name == target.name &&
                        KERNELS_DISPATCH(CompiledFor)() == target.bit &&
                        DescribeCpu().rfind("CPU with " + target.name + ", oneDNN ", 0) == 0 &&
                        (isa < 0 || EffectiveIsa() == isa);
  std::exit(followed ? 0 : 1);
}

TEST(CpuTargetDeathTest, KernelsAndOneDnnFollowTheVariable) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  constexpr int kSse41 = 1, kAvx2 = 7, kAnyOther = -1;
  for (const SimdTarget& target : SimdTargets()) {
    if (!target.runs()) continue;
    int isa = target.name == "AVX2" ? kAvx2 : kAnyOther;
    if (OneDnnIsa(target.name) == "SSE41") isa = kSse41;
    if (__builtin_cpu_supports("sse4.1") == 0) isa = kAnyOther;
    EXPECT_EXIT(ExitIfFollowed(target, isa), ::testing::ExitedWithCode(0), "") << target.name;
  }
}
#endif  // HWY_ARCH_X86

TEST(CpuTargetDeathTest, AWrongNameIsAnErrorAndNoOpRuns) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        setenv(kCpuTargetVariable, "AVX5", 1);
        std::exit(CheckCpuBackend().code() == absl::StatusCode::kInvalidArgument ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_DEATH(
      {
        setenv(kCpuTargetVariable, "AVX5", 1);
        MakeCpuQueue(1);
      },
      "NANOSPEED_CPU_TARGET=AVX5: no such target; here it can be ");
}

// What this process was told, if anything: a run of all tests at each target has to be just that.
TEST(CpuTarget, IsTheOneOfTheEnvironment) {
  const char* const told = std::getenv(kCpuTargetVariable);
  if (told == nullptr || *told == '\0') {
    EXPECT_EQ(CpuTarget().name, ChooseSimdTarget(SimdTargets(), nullptr)->name);
  } else {
    EXPECT_EQ(CpuTarget().name, told);
  }
}

}  // namespace
}  // namespace kernels
#endif  // HWY_ONCE
