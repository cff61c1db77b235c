// Opens shared libraries at run time, so that a program starts on machines without them and can
// say what is missing.
//
//   ABSL_ASSIGN_OR_RETURN(void* library, dso::Open("libm.so.6"));
//   ABSL_ASSIGN_OR_RETURN(auto* cosine, dso::Symbol<double(double)>(library, "cos"));
#ifndef THIRD_PARTY_DSO_DSO_H_
#define THIRD_PARTY_DSO_DSO_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dso {

// Opens a library by SONAME and returns its handle, which is never closed. Looks where the dynamic
// loader looks (LD_LIBRARY_PATH, RUNPATH, ldconfig), then in `dirs` in their order. NotFound, with
// the name and what the loader said, if none of them has a library that loads.
absl::StatusOr<void*> Open(absl::string_view soname, absl::Span<const std::string> dirs = {});

// The address of a symbol of an opened library or of the libraries that it was linked against.
// NotFound if there is none of that name.
absl::StatusOr<void*> RawSymbol(void* library, const char* name);

// The same, cast to a pointer to the function's type.
template <typename Function>
absl::StatusOr<Function*> Symbol(void* library, const char* name) {
  absl::StatusOr<void*> address = RawSymbol(library, name);
  if (!address.ok()) return address.status();
  return reinterpret_cast<Function*>(*address);
}

}  // namespace dso

#endif  // THIRD_PARTY_DSO_DSO_H_
