#include "kernels/cuda/gemm_choices.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace kernels {
namespace {

namespace fs = std::filesystem;

std::string CacheFolder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string own = variable("NANOSPEED_CACHE_DIR"); !own.empty()) return own;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/nanospeed";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/nanospeed";
  return "";
}

std::string FileName(std::string card, int64_t version) {
  for (char& c : card) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return absl::StrCat("gemm-", card, "-", version, ".json");
}

}  // namespace

absl::StatusOr<GemmChoices> GemmChoices::Load(const std::string& card, int64_t library_version) {
  GemmChoices choices;
  const std::string folder = CacheFolder();
  if (folder.empty()) return choices;
  choices.path_ = absl::StrCat(folder, "/", FileName(card, library_version));
  std::ifstream file(choices.path_);
  if (!file) return choices;
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const auto bad = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat(choices.path_,
                     ": is not a file of algorithm choices; delete it, and they are timed again"));
  };
  if (!json.is_object()) return bad();
  for (const auto& [shape, bits] : json.items()) {
    if (!bits.is_array() || bits.size() != AlgoBits().size()) return bad();
    AlgoBits algo;
    for (size_t i = 0; i < algo.size(); ++i) {
      if (!bits[i].is_number_unsigned()) return bad();
      algo[i] = bits[i].get<uint64_t>();
    }
    choices.choices_[shape] = algo;
  }
  return choices;
}

const AlgoBits* GemmChoices::Find(const std::string& shape) const {
  const auto found = choices_.find(shape);
  return found == choices_.end() ? nullptr : &found->second;
}

void GemmChoices::Add(const std::string& shape, const AlgoBits& algo) {
  choices_[shape] = algo;
  changed_ = true;
}

absl::Status GemmChoices::Save() {
  if (!changed_ || path_.empty()) return absl::OkStatus();
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  const nlohmann::json json(choices_);
  const std::string temporary = absl::StrCat(path_, ".", getpid());
  std::ofstream file(temporary);
  file << json.dump(1) << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(temporary, ": cannot be written"));
  fs::rename(temporary, path_, error);
  if (error) return absl::UnavailableError(absl::StrCat(path_, ": ", error.message()));
  changed_ = false;
  return absl::OkStatus();
}

}  // namespace kernels
