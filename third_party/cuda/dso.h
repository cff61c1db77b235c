// Opens CUDA's shared libraries at run time; dso::Symbol finds their functions.
//
//   ABSL_ASSIGN_OR_RETURN(void* library, cuda::OpenLibrary("libcublasLt.so.13", "nvidia-cublas"));
//   ABSL_ASSIGN_OR_RETURN(auto* get_version,
//                         dso::Symbol<decltype(cublasLtGetVersion)>(library,
//                         "cublasLtGetVersion"));
#ifndef THIRD_PARTY_CUDA_DSO_H_
#define THIRD_PARTY_CUDA_DSO_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cuda {

// Opens a library by SONAME. Looks where the dynamic loader looks (LD_LIBRARY_PATH, RUNPATH,
// ldconfig), then in $CUDA_HOME, in the Python wheels of $VIRTUAL_ENV and of the python3 on
// PATH, and in /usr/local/cuda. NotFound, with what the loader said and with `wheel`, the name of
// the Python package that holds the library, if it is in none of them.
absl::StatusOr<void*> OpenLibrary(absl::string_view soname, absl::string_view wheel);

}  // namespace cuda

#endif  // THIRD_PARTY_CUDA_DSO_H_
