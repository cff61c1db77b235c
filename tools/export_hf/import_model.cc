#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/dtype.h"
#include "model/parameters.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/export_hf/export_model.h"
#include "tools/export_hf/hf_config.h"
#include "tools/output_files.h"

namespace tools {
namespace {

namespace fs = std::filesystem;
using kernels::DType;

std::string Shape(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::string Widened(const HostTensor& bf16) {
  std::string bytes(2 * bf16.bytes.size(), '\0');
  for (size_t i = 0; 2 * i < bf16.bytes.size(); ++i) {
    std::memcpy(&bytes[4 * i + 2], &bf16.bytes[2 * i], 2);
  }
  return bytes;
}

// `changed` counts the values that are not in bf16.
std::string Narrowed(const HostTensor& f32, int64_t* changed) {
  std::string bytes(f32.bytes.size() / 2, '\0');
  for (size_t i = 0; 2 * i < bytes.size(); ++i) {
    float value;
    std::memcpy(&value, &f32.bytes[4 * i], sizeof(value));
    const kernels::BF16 rounded = kernels::ToBF16(value);
    const auto widened = std::bit_cast<uint32_t>(kernels::ToFloat(rounded));
    if (widened != std::bit_cast<uint32_t>(value)) ++*changed;
    std::memcpy(&bytes[2 * i], &rounded, sizeof(rounded));
  }
  return bytes;
}

// Gives the tensor the dtype; returns a line about it.
absl::StatusOr<std::string> Convert(const std::string& where, DType dtype, bool round,
                                    HostTensor* tensor) {
  const std::string how = absl::StrCat(kernels::Name(tensor->dtype), " to ", kernels::Name(dtype));
  int64_t changed = 0;
  if (tensor->dtype == DType::kBF16 && dtype == DType::kF32) {
    tensor->bytes = Widened(*tensor);
  } else if (tensor->dtype == DType::kF32 && dtype == DType::kBF16) {
    const auto values = static_cast<int64_t>(tensor->bytes.size() / sizeof(float));
    tensor->bytes = Narrowed(*tensor, &changed);
    if (changed > 0 && !round) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": ", changed, " of ", values, " values are not in ", kernels::Name(dtype),
          ", the model's dtype; give --round to take the nearest"));
    }
  } else {
    return absl::InvalidArgumentError(absl::StrCat(where, ": is ", kernels::Name(tensor->dtype),
                                                   ", the model's is ", kernels::Name(dtype),
                                                   "; save the model in float32 or bfloat16"));
  }
  tensor->dtype = dtype;
  return absl::StrCat(where, ": ", how,
                      changed > 0 ? absl::StrCat(", ", changed, " values rounded") : ", exactly");
}

absl::StatusOr<SafetensorsFile> ReadWeights(const fs::path& folder) {
  std::error_code error;
  const fs::path path = folder / "model.safetensors";
  if (!fs::exists(path, error) && fs::exists(folder / "model.safetensors.index.json", error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder.string(),
                     ": its weights are in several files; save them in one, as "
                     "save_pretrained(..., max_shard_size=\"100GB\") does"));
  }
  return ReadSafetensors(path.string());
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ImportModel(const ImportOptions& options) {
  ABSL_RETURN_IF_ERROR(CheckOutputFiles({{"out", options.out}}, options.overwrite));
  const fs::path folder = options.folder;
  const std::string config_path = (folder / "config.json").string();
  const absl::StatusOr<std::string> config = ReadFile(config_path);
  if (absl::IsNotFound(config.status())) {
    return absl::NotFoundError(
        absl::StrCat(config.status().message(), "; give a folder that export_hf wrote"));
  }
  ABSL_RETURN_IF_ERROR(config.status());
  ABSL_ASSIGN_OR_RETURN(const HfSource source, ParseHfConfig(*config, config_path));
  ABSL_ASSIGN_OR_RETURN(SafetensorsFile file, ReadWeights(folder));
  const std::string path = (folder / "model.safetensors").string();

  std::vector<std::string> lines;
  std::set<std::string> known;
  for (const kernels::ParameterSpec& spec : model::ParameterSpecs(source.recipe.model)) {
    const std::string where = absl::StrCat(path, ": tensor ", spec.name);
    const auto found = file.tensors.find(spec.name);
    if (found == file.tensors.end()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": is missing; ", source.recipe.record,
                                                     " needs it as ", Shape(spec.shape)));
    }
    HostTensor& tensor = found->second;
    if (tensor.shape != spec.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": is ", Shape(tensor.shape), "; ", source.recipe.record, ", preset ",
                       source.recipe.preset, ", has it as ", Shape(spec.shape)));
    }
    if (tensor.dtype != spec.dtype) {
      ABSL_ASSIGN_OR_RETURN(std::string line, Convert(where, spec.dtype, options.round, &tensor));
      lines.push_back(std::move(line));
    }
    known.insert(spec.name);
  }
  for (const auto& [name, tensor] : file.tensors) {
    if (known.count(name) != 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": tensor ", name, ": is none of ", source.recipe.record, "'s"));
  }
  file.metadata = source.metadata;
  ABSL_RETURN_IF_ERROR(WriteSafetensors(options.out, file));
  return lines;
}

}  // namespace tools
