#include "kernels/cpu/simd_target.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hwy/targets.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/simd_dispatch.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

#if HWY_ARCH_X86
struct Known {
  const char* name;
  int64_t bit;
};

// In the order of BestX86Target, the bits of those that this Highway has.
constexpr Known kX86Targets[] = {
#ifdef HWY_SSE2
    {"SSE2", HWY_SSE2},
#else
    {"SSE2", 0},
#endif
    {"SSSE3", HWY_SSSE3},         {"SSE4", HWY_SSE4},       {"AVX2", HWY_AVX2},
    {"AVX3", HWY_AVX3},           {"AVX3_DL", HWY_AVX3_DL},
#ifdef HWY_AVX3_ZEN4
    {"AVX3_ZEN4", HWY_AVX3_ZEN4},
#else
    {"AVX3_ZEN4", 0},
#endif
#ifdef HWY_AVX3_SPR
    {"AVX3_SPR", HWY_AVX3_SPR},
#else
    {"AVX3_SPR", 0},
#endif
};
#endif

std::string Running(const std::vector<SimdTarget>& targets) {
  std::vector<std::string> names;
  for (const SimdTarget& target : targets) {
    if (target.runs()) names.push_back(target.name);
  }
  return absl::StrJoin(names, ", ");
}

// Before oneDNN's first product, which reads its variables once. One that the user has set stays.
void LimitOneDnn(absl::string_view target) {
  const std::string isa(OneDnnIsa(target));
  if (!isa.empty()) setenv("DNNL_MAX_CPU_ISA", isa.c_str(), /*overwrite=*/0);
}

const char* Chosen() { return std::getenv(kCpuTargetVariable); }

}  // namespace

std::vector<SimdTarget> SimdTargets() {
  std::vector<SimdTarget> targets;
  for (const int64_t bit : {HWY_SCALAR, HWY_EMU128}) {
    if (HWY_TARGETS & bit) targets.push_back({hwy::TargetName(bit), bit, true, true});
  }
#if HWY_ARCH_X86
  const absl::string_view best = BestX86Target(ReadCpuFeatures());
  bool supported = true;
  for (const Known& known : kX86Targets) {
    targets.push_back({known.name, known.bit, (HWY_TARGETS & known.bit) != 0, supported});
    if (known.name == best) supported = false;  // those behind it
  }
#else
  // Elsewhere the compiler's own target alone, which the whole program needs anyway.
  if (!(HWY_STATIC_TARGET & (HWY_SCALAR | HWY_EMU128))) {
    targets.push_back({hwy::TargetName(HWY_STATIC_TARGET), HWY_STATIC_TARGET, true, true});
  }
#endif
  return targets;
}

absl::StatusOr<SimdTarget> ChooseSimdTarget(const std::vector<SimdTarget>& targets,
                                            const char* name) {
  const auto runs = [](const SimdTarget& target) { return target.runs(); };
  if (name == nullptr || *name == '\0') {
    const auto best = std::find_if(targets.rbegin(), targets.rend(), runs);
    if (best != targets.rend()) return *best;
    return absl::InvalidArgumentError(
        "this program's CPU kernels need instructions that this machine's processor lacks; build "
        "it without --config=native");
  }
  const auto found = std::find_if(targets.begin(), targets.end(),
                                  [&](const SimdTarget& target) { return target.name == name; });
  if (found != targets.end() && found->runs()) return *found;
  const char* reason = "no such target";
  if (found != targets.end()) {
    reason = found->compiled ? "this machine's processor or operating system lacks this target"
                             : "this program was compiled without this target";
  }
  return absl::InvalidArgumentError(absl::StrCat(kCpuTargetVariable, "=", name, ": ", reason,
                                                 "; here it can be ", Running(targets)));
}

absl::Status CheckCpuTarget() {
  const absl::Status status = ChooseSimdTarget(SimdTargets(), Chosen()).status();
  if (status.ok()) CpuTarget();  // while the process has one thread
  return status;
}

const SimdTarget& CpuTarget() {
  static const SimdTarget& target = *[] {
    absl::StatusOr<SimdTarget> chosen = ChooseSimdTarget(SimdTargets(), Chosen());
    CHECK(chosen.ok()) << chosen.status().message();
    if (Chosen() != nullptr && *Chosen() != '\0') LimitOneDnn(chosen->name);
    return new SimdTarget(*std::move(chosen));
  }();
  return target;
}

int64_t CpuTargetBit() { return CpuTarget().bit; }

absl::string_view OneDnnIsa(absl::string_view target) {
  constexpr absl::string_view kIsa[][2] = {
      {"SCALAR", "SSE41"},
      {"EMU128", "SSE41"},
      {"SSE2", "SSE41"},
      {"SSSE3", "SSE41"},
      {"SSE4", "SSE41"},
      {"AVX2", "AVX2"},
      {"AVX3", "AVX512_CORE"},
      {"AVX3_DL", "AVX512_CORE_VNNI"},
      {"AVX3_ZEN4", "AVX512_CORE_BF16"},
      {"AVX3_SPR", "AVX512_CORE_BF16"},
  };
  for (const auto& [name, isa] : kIsa) {
    if (name == target) return isa;
  }
  return "";
}

}  // namespace kernels
