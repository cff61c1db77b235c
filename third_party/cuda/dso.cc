#include "third_party/cuda/dso.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cuda {
namespace {

namespace fs = std::filesystem;

// prefix/lib/python3.*/site-packages/nvidia/*/lib
void AddWheelDirs(const fs::path& prefix, std::vector<fs::path>& dirs) {
  std::error_code error;
  for (const auto& python : fs::directory_iterator(prefix / "lib", error)) {
    std::error_code inner;
    for (const auto& wheel :
         fs::directory_iterator(python.path() / "site-packages" / "nvidia", inner)) {
      dirs.push_back(wheel.path() / "lib");
    }
  }
}

std::vector<fs::path> SearchDirs() {
  std::vector<fs::path> dirs;
  if (const char* home = std::getenv("CUDA_HOME")) {
    dirs.push_back(fs::path(home) / "lib64");
    dirs.push_back(fs::path(home) / "lib");
  }
  if (const char* venv = std::getenv("VIRTUAL_ENV")) AddWheelDirs(venv, dirs);
  if (const char* path = std::getenv("PATH")) {
    for (absl::string_view dir : absl::StrSplit(path, ':')) {
      std::error_code error;
      fs::path bin((std::string(dir)));
      if (fs::exists(bin / "python3", error)) {
        AddWheelDirs(bin.parent_path(), dirs);
        break;
      }
    }
  }
  dirs.push_back("/usr/local/cuda/lib64");
  return dirs;
}

}  // namespace

absl::StatusOr<void*> OpenLibrary(absl::string_view soname) {
  const std::string name(soname);
  if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  std::string tried = dlerror();
  for (const fs::path& dir : SearchDirs()) {
    std::error_code error;
    if (!fs::exists(dir / name, error)) continue;
    if (void* handle = dlopen((dir / name).c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return handle;
    }
    absl::StrAppend(&tried, "; ", dlerror());
  }
  return absl::NotFoundError(absl::StrCat(name, " was not found (", tried,
                                          "). Set CUDA_HOME, VIRTUAL_ENV or LD_LIBRARY_PATH."));
}

absl::StatusOr<void*> RawSymbol(void* library, const char* name) {
  if (void* address = dlsym(library, name)) return address;
  return absl::NotFoundError(absl::StrCat("the library has no symbol ", name));
}

}  // namespace cuda
