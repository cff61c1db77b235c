#include "optim/optimizer_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace optim {
namespace {

std::string Describe(kernels::DType dtype, const std::vector<int64_t>& shape) {
  return absl::StrCat(kernels::Name(dtype), " [", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

int64_t Elements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (int64_t dim : shape) elements *= dim;
  return elements;
}

const StateTensor* FindState(const OptimizerState& state, const std::string& name) {
  const auto found = std::find_if(state.tensors.begin(), state.tensors.end(),
                                  [&](const StateTensor& t) { return t.name == name; });
  return found == state.tensors.end() ? nullptr : &*found;
}

absl::Status CheckStateTensor(const OptimizerState& state, const std::string& name,
                              kernels::DType dtype, const std::vector<int64_t>& shape) {
  const int64_t bytes = Elements(shape) * kernels::SizeOf(dtype);
  const std::string want = Describe(dtype, shape);
  const StateTensor* found = FindState(state, name);
  if (found == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("optimizer state ", name, ": this run needs ", want,
                     ", the checkpoint has none; was it written by another recipe?"));
  }
  if (found->dtype == dtype && found->shape == shape &&
      static_cast<int64_t>(found->bytes.size()) == bytes) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("optimizer state ", name, ": this run needs ", want, " (", bytes,
                   " bytes), the checkpoint has ", Describe(found->dtype, found->shape), " (",
                   found->bytes.size(), " bytes); it is not converted"));
}

}  // namespace optim
