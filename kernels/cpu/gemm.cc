#include "kernels/cpu/gemm.h"

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_version.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/simd_target.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"
#include "third_party/dso/dso.h"

namespace kernels {
namespace {

// dnnl_sgemm and dnnl_version are the same in both.
constexpr int kMajorVersions[] = {DNNL_VERSION_MAJOR, 3, 2};
// Debian 13 writes a minor version into the SONAME of oneDNN 3 (libdnnl.so.3.6). The highest one
// that is looked for; oneDNN 2 ended with 7, oneDNN 3 was at 9 in 2025.
constexpr int kLastMinorVersion = 19;

struct Dnnl {
  decltype(&::dnnl_sgemm) sgemm = nullptr;
  const dnnl_version_t* version = nullptr;
  // Of the OpenMP runtime that the library was linked against; null if it runs one thread anyway.
  void (*omp_set_num_threads)(int) = nullptr;
};

absl::StatusOr<void*> OpenAnyVersion() {
  std::vector<std::string> errors;
  for (const std::string& name : SgemmLibraryNames()) {
    const absl::StatusOr<void*> library = dso::Open(name);
    if (library.ok()) return library;
    // One that is there and does not load is what the user wants to know of.
    const bool absent = absl::StrContains(library.status().message(), "No such file");
    if (!absent && errors.size() < 2) errors.emplace_back(library.status().message());
  }
  if (errors.empty()) {
    errors.emplace_back("neither libdnnl.so.3, libdnnl.so.3.N nor libdnnl.so.2 was found");
  }
  return absl::NotFoundError(absl::StrCat(
      "the CPU backend needs oneDNN for its matrix products: ", absl::StrJoin(errors, "; "),
      "; install it, on Debian and Ubuntu: apt-get install libdnnl-dev"));
}

absl::StatusOr<Dnnl> Load() {
  ABSL_ASSIGN_OR_RETURN(void* const library, OpenAnyVersion());
  Dnnl dnnl;
  ABSL_ASSIGN_OR_RETURN(dnnl.sgemm, dso::Symbol<decltype(::dnnl_sgemm)>(library, "dnnl_sgemm"));
  ABSL_ASSIGN_OR_RETURN(const auto version,
                        dso::Symbol<decltype(::dnnl_version)>(library, "dnnl_version"));
  dnnl.version = version();
  const unsigned runtime = dnnl.version->cpu_runtime;
  if (runtime == DNNL_RUNTIME_SEQ) return dnnl;
  if (runtime == DNNL_RUNTIME_OMP) {
    // Found through the library, since which OpenMP runtime it is depends on who built it.
    const auto set_num_threads = dso::Symbol<void(int)>(library, "omp_set_num_threads");
    if (set_num_threads.ok()) {
      dnnl.omp_set_num_threads = *set_num_threads;
      return dnnl;
    }
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the CPU backend cannot hold this machine's oneDNN (threading runtime ", runtime,
      " of dnnl_types.h) to one thread; install one built with OpenMP, as Debian's libdnnl-dev"));
}

const absl::StatusOr<Dnnl>& Library() {
  static const absl::StatusOr<Dnnl>& dnnl = *new absl::StatusOr<Dnnl>(Load());
  return dnnl;
}

}  // namespace

std::vector<std::string> SgemmLibraryNames() {
  std::vector<std::string> names;
  std::set<int> listed;
  for (const int major : kMajorVersions) {
    if (!listed.insert(major).second) continue;
    const std::string name = absl::StrCat("libdnnl.so.", major);
    names.push_back(name);
    for (int minor = kLastMinorVersion; minor >= 0; --minor) {
      names.push_back(absl::StrCat(name, ".", minor));
    }
  }
  return names;
}

absl::Status OpenSgemm() { return Library().status(); }

std::string SgemmLibrary() {
  if (!Library().ok()) return "no oneDNN";
  const dnnl_version_t& version = *Library()->version;
  return absl::StrCat("oneDNN ", version.major, ".", version.minor, ".", version.patch);
}

void Sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
           int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  static const Dnnl& dnnl = [] {
    CpuTarget();  // sets the instruction set that oneDNN keeps to
    const absl::Status opened = OpenSgemm();
    CHECK(opened.ok()) << opened;
    return *Library();
  }();
  // OpenMP keeps this setting per thread. The pool above is what runs in parallel.
  thread_local const bool single = [] {
    if (dnnl.omp_set_num_threads != nullptr) dnnl.omp_set_num_threads(1);
    return true;
  }();
  CHECK(single);
  const dnnl_status_t status = dnnl.sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha,
                                          a, lda, b, ldb, beta, c, ldc);
  CHECK_EQ(status, dnnl_success) << "dnnl_sgemm " << m << " x " << n << " x " << k;
}

float* ThreadScratch(int which, int64_t floats) {
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  struct Buffer {
    std::unique_ptr<float, Free> memory;
    int64_t floats = 0;
  };
  thread_local std::array<Buffer, 8> buffers;
  CHECK(which >= 0 && which < 8);
  Buffer& buffer = buffers[which];
  if (buffer.floats < floats) {
    const int64_t bytes = (floats * int64_t{sizeof(float)} + 63) / 64 * 64;
    buffer.memory.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    CHECK(buffer.memory != nullptr) << bytes << " bytes of scratch";
    buffer.floats = floats;
  }
  return buffer.memory.get();
}

}  // namespace kernels
