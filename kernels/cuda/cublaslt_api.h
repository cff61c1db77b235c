// The functions of cuBLASLt that we call, found at run time.
#ifndef KERNELS_CUDA_CUBLASLT_API_H_
#define KERNELS_CUDA_CUBLASLT_API_H_

#include <cublasLt.h>
#include <cuda_toolkit.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "third_party/cuda/dso.h"
#include "third_party/dso/dso.h"

namespace kernels {

#define NANOSPEED_CUBLASLT_FUNCTIONS(F)   \
  F(cublasLtCreate)                       \
  F(cublasLtDestroy)                      \
  F(cublasLtGetVersion)                   \
  F(cublasLtMatmul)                       \
  F(cublasLtMatmulAlgoCheck)              \
  F(cublasLtMatmulAlgoGetHeuristic)       \
  F(cublasLtMatmulDescCreate)             \
  F(cublasLtMatmulDescDestroy)            \
  F(cublasLtMatmulDescSetAttribute)       \
  F(cublasLtMatmulPreferenceCreate)       \
  F(cublasLtMatmulPreferenceDestroy)      \
  F(cublasLtMatmulPreferenceSetAttribute) \
  F(cublasLtMatrixLayoutCreate)           \
  F(cublasLtMatrixLayoutDestroy)          \
  F(cublasLtMatrixLayoutSetAttribute)     \
  F(cublasLtGetStatusString)

struct CublasLtApi {
#define NANOSPEED_DECLARE(name) decltype(&::name) name = nullptr;
  NANOSPEED_CUBLASLT_FUNCTIONS(NANOSPEED_DECLARE)
#undef NANOSPEED_DECLARE

  // Opens the library of the toolkit's major version. NotFound says what is missing.
  static absl::StatusOr<CublasLtApi> Open() {
    absl::StatusOr<void*> library =
        cuda::OpenLibrary(cuda_toolkit::kCublasLtSoname, cuda_toolkit::kCublasWheel);
    if (!library.ok()) return library.status();
    CublasLtApi api;
    absl::Status status;
#define NANOSPEED_FIND(name)                                      \
  if (status.ok()) {                                              \
    auto symbol = dso::Symbol<decltype(::name)>(*library, #name); \
    status = symbol.status();                                     \
    if (status.ok()) api.name = *symbol;                          \
  }
    NANOSPEED_CUBLASLT_FUNCTIONS(NANOSPEED_FIND)
#undef NANOSPEED_FIND
    if (!status.ok()) return status;
    return api;
  }
};

}  // namespace kernels

#endif  // KERNELS_CUDA_CUBLASLT_API_H_
