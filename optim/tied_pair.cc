#include "optim/tied_pair.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/weight.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace optim {

using kernels::Parameter;
using kernels::Queue;
using kernels::Tensor;

TiedPair::TiedPair(const TiedBuffers& tied, UpdatePart& adam, int leaves,
                   kernels::DType moment_dtype, kernels::ArenaPlan* plan)
    : tied_(tied), adam_(adam), leaves_(leaves) {
  const kernels::ParameterSpec& source = source_parameter().spec;
  const kernels::ParameterSpec& target = target_parameter().spec;
  CHECK(source.shape.size() == 2 && target.shape.size() == 2 &&
        source.shape[0] == target.shape[1] && source.shape[1] == target.shape[0])
      << source.name << ", " << target.name;
  transposed_id_ =
      plan->Add(absl::StrCat("transposed moments/", source.name), moment_dtype, source.shape);
}

void TiedPair::AddGradient(Queue& queue) const {
  const Parameter& source = source_parameter();
  const Parameter& target = target_parameter();
  const Tensor from = source.grad.Reshape({leaves_, source.spec.size()});
  const Tensor to = target.grad.Reshape({leaves_, target.spec.size()});
  for (int leaf = 0; leaf < leaves_; ++leaf) {
    kernels::TransposeAdd(from.At(leaf).Reshape(source.spec.shape),
                          to.At(leaf).Reshape(target.spec.shape), queue);
  }
}

void TiedPair::CopyWeight(Queue& queue) const {
  kernels::TransposeCopy(target_parameter().value.Reshape(target_parameter().spec.shape),
                         source_parameter().value.Reshape(source_parameter().spec.shape), queue);
}

absl::Status TiedPair::CopyMoments(Tensor stage, Queue& queue) const {
  const ShardedBuffer& source = source_buffer();
  const std::vector<ShardedBuffer::Kept> to = adam_.KeptOf(tied_.source);
  const std::vector<ShardedBuffer::Kept> from = adam_.KeptOf(tied_.target);
  const int64_t size = source.layout().size(), owned = source.own_size();
  for (size_t i = 0; i < from.size(); ++i) {
    ABSL_ASSIGN_OR_RETURN(const Tensor all, target_buffer().GatherShares(from[i], stage, queue));
    kernels::TransposeCopy(all.Slice(0, size).Reshape(target_parameter().spec.shape), transposed_,
                           queue);
    if (owned == 0) continue;
    kernels::Copy(transposed_.Reshape({size}).Slice(source.own_begin(), owned),
                  to[i].own.Slice(0, owned), queue);
  }
  return absl::OkStatus();
}

bool TiedPair::IsTied(const OptimizerState& state) const {
  for (const ShardedBuffer::Kept& kept : adam_.KeptOf(tied_.source)) {
    for (const std::string& name : source_buffer().StateNames(kept)) {
      if (FindState(state, name) != nullptr) return false;
    }
  }
  return true;
}

}  // namespace optim
