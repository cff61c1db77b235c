#include "third_party/cuda/dso.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "third_party/dso/dso.h"

namespace cuda {
namespace {

namespace fs = std::filesystem;

// prefix/lib/python3.*/site-packages/nvidia/*/lib
void AddWheelDirs(const fs::path& prefix, std::vector<std::string>& dirs) {
  std::error_code error;
  for (const auto& python : fs::directory_iterator(prefix / "lib", error)) {
    std::error_code inner;
    for (const auto& wheel :
         fs::directory_iterator(python.path() / "site-packages" / "nvidia", inner)) {
      dirs.push_back((wheel.path() / "lib").string());
    }
  }
}

std::vector<std::string> SearchDirs() {
  std::vector<std::string> dirs;
  if (const char* home = std::getenv("CUDA_HOME")) {
    dirs.push_back(absl::StrCat(home, "/lib64"));
    dirs.push_back(absl::StrCat(home, "/lib"));
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
  dirs.emplace_back("/usr/local/cuda/lib64");
  return dirs;
}

}  // namespace

absl::StatusOr<void*> OpenLibrary(absl::string_view soname, absl::string_view wheel) {
  absl::StatusOr<void*> library = dso::Open(soname, SearchDirs());
  if (library.ok()) return library;
  return absl::NotFoundError(absl::StrCat(library.status().message(),
                                          "; install it (python3 -m pip install --target=cuda ",
                                          wheel, "), and set LD_LIBRARY_PATH to its folder"));
}

}  // namespace cuda
