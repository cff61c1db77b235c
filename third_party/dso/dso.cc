#include "third_party/dso/dso.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace dso {

absl::StatusOr<void*> Open(absl::string_view soname, absl::Span<const std::string> dirs) {
  const std::string name(soname);
  if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  std::string tried = dlerror();
  for (const std::string& dir : dirs) {
    const std::filesystem::path path = std::filesystem::path(dir) / name;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    absl::StrAppend(&tried, "; ", dlerror());
  }
  return absl::NotFoundError(absl::StrCat(name, " was not found (", tried, ")"));
}

absl::StatusOr<void*> RawSymbol(void* library, const char* name) {
  if (void* address = dlsym(library, name)) return address;
  return absl::NotFoundError(absl::StrCat("the library has no symbol ", name));
}

}  // namespace dso
