#include "tools/trainer/weights.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tools {
namespace {

using kernels::Parameter;

std::string Describe(kernels::DType dtype, const std::vector<int64_t>& shape) {
  return absl::StrCat(kernels::Name(dtype), " [", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

TensorMap WeightsToHost(const std::vector<Parameter>& parameters, kernels::Queue& queue) {
  TensorMap tensors;
  for (const Parameter& parameter : parameters) {
    HostTensor& tensor = tensors[parameter.spec.name];
    tensor.dtype = parameter.spec.dtype;
    tensor.shape = parameter.spec.shape;
    tensor.bytes.resize(parameter.value.bytes());
    queue.Download(parameter.value, tensor.bytes.data());
  }
  queue.Synchronize();
  return tensors;
}

absl::Status WeightsFromHost(const TensorMap& tensors, const std::string& source,
                             const std::vector<Parameter>& parameters, kernels::Queue& queue) {
  std::set<std::string> known;
  for (const Parameter& parameter : parameters) {
    const kernels::ParameterSpec& spec = parameter.spec;
    known.insert(spec.name);
    const auto found = tensors.find(spec.name);
    if (found == tensors.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          source, ": has no tensor ", spec.name, ", which the model needs as ",
          Describe(spec.dtype, spec.shape), "; it was written for another model or preset"));
    }
    const HostTensor& tensor = found->second;
    if (tensor.dtype != spec.dtype || tensor.shape != spec.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": tensor ", spec.name, " is ", Describe(tensor.dtype, tensor.shape),
                       ", the model's is ", Describe(spec.dtype, spec.shape),
                       "; it was written for another model or preset"));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (known.count(name) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          source, ": tensor ", name, " is none of the model's; it was written for another model"));
    }
  }
  for (const Parameter& parameter : parameters) {
    queue.Upload(tensors.at(parameter.spec.name).bytes.data(), parameter.value);
  }
  return absl::OkStatus();
}

}  // namespace tools
