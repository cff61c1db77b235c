// Opens CUDA's shared libraries at run time, so that a program starts on machines without
// them and can say what is missing.
//
//   ABSL_ASSIGN_OR_RETURN(void* library, cuda::OpenLibrary("libcublasLt.so.13"));
//   ABSL_ASSIGN_OR_RETURN(auto* get_version,
//                         cuda::Symbol<decltype(cublasLtGetVersion)>(library,
//                         "cublasLtGetVersion"));
#ifndef THIRD_PARTY_CUDA_DSO_H_
#define THIRD_PARTY_CUDA_DSO_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cuda {

// Opens a library by SONAME. Looks where the dynamic loader looks (LD_LIBRARY_PATH, RUNPATH,
// ldconfig), then in $CUDA_HOME, in the Python wheels of $VIRTUAL_ENV and of the python3 on
// PATH, and in /usr/local/cuda. NotFound, with what the loader said, if it is in none of them.
absl::StatusOr<void*> OpenLibrary(absl::string_view soname);

// The address of a symbol of an opened library; NotFound if the library has none such.
absl::StatusOr<void*> RawSymbol(void* library, const char* name);

// The same, cast to the type of the function that it names.
template <typename Function>
absl::StatusOr<Function*> Symbol(void* library, const char* name) {
  absl::StatusOr<void*> address = RawSymbol(library, name);
  if (!address.ok()) return address.status();
  return reinterpret_cast<Function*>(*address);
}

}  // namespace cuda

#endif  // THIRD_PARTY_CUDA_DSO_H_
