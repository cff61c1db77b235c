// How the optimizer finds and names what is not finite.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/ops/elementwise.h"
#include "optim/sharded_optimizer.h"
#include "third_party/absl_compat/status_macros.h"

namespace optim {

using kernels::Parameter;
using kernels::Queue;
using kernels::Tensor;

void ShardedOptimizer::LaunchWeightCheck(Queue& queue) {
  CheckFinished("a check of the weights");
  for (size_t i = 0; i < parameters_.size(); ++i) {
    kernels::FirstNonFinite(parameters_[i].value, found_.Slice(static_cast<int64_t>(i), 1), queue);
  }
}

void ShardedOptimizer::LaunchFiniteCheck(Queue& queue) {
  LaunchWeightCheck(queue);
  const int leaves = slots_.leaves();
  auto place = static_cast<int64_t>(parameters_.size());
  for (const Parameter& parameter : parameters_) {
    const Tensor grad = parameter.grad.Reshape({leaves, -1});
    for (int leaf = 0; leaf < leaves; ++leaf, ++place) {
      kernels::FirstNonFinite(grad.At(leaf), found_.Slice(place, 1), queue);
    }
  }
}

std::optional<NonFinite> ShardedOptimizer::DecodeFound(const int64_t* found) const {
  const int64_t* const end = found + found_.size();
  const int64_t* const first = std::find_if(found, end, [](int64_t at) { return at >= 0; });
  if (first == end) return std::nullopt;
  const auto weights = static_cast<int64_t>(parameters_.size());
  const int64_t at = first - found;
  const int64_t of_gradients = at - weights;
  const int64_t parameter = at < weights ? at : of_gradients / slots_.leaves();
  const int64_t leaf = at < weights ? NonFinite::kWeight : of_gradients % slots_.leaves();
  return NonFinite{.name = parameters_[parameter].spec.name,
                   .parameter = static_cast<int>(parameter),
                   .leaf = static_cast<int>(leaf),
                   .index = *first};
}

std::optional<NonFinite> ShardedOptimizer::FirstNonFiniteWeight(Queue& queue) {
  LaunchWeightCheck(queue);
  std::vector<int64_t> found(found_.size(), -1);
  queue.Download(found_.Slice(0, static_cast<int64_t>(parameters_.size())), found.data());
  queue.Synchronize();
  return DecodeFound(found.data());
}

absl::StatusOr<std::optional<AgreedNonFinite>> ShardedOptimizer::AgreeOnNonFinite(
    const std::optional<NonFinite>& local, Queue& queue) {
  const Tensor mine = agreed_.Slice(comm_.rank(), 1);
  int64_t row[3] = {-1, 0, 0};
  if (local.has_value()) {
    row[0] = local->parameter;
    row[1] = local->leaf;
    row[2] = local->index;
  }
  queue.Upload(row, mine);
  ABSL_RETURN_IF_ERROR(comm_.AllGather("finite gradients", mine, agreed_, queue).Wait(queue));
  std::vector<int64_t> rows(agreed_.size());
  queue.Download(agreed_, rows.data());
  queue.Synchronize();
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const int64_t* const row_of_rank = &rows[3 * rank];
    if (row_of_rank[0] < 0) continue;
    const auto parameter = static_cast<int>(row_of_rank[0]);
    AgreedNonFinite agreed{.what = {.name = parameters_[parameter].spec.name,
                                    .parameter = parameter,
                                    .leaf = static_cast<int>(row_of_rank[1]),
                                    .index = row_of_rank[2]},
                           .rank = rank,
                           .text = {}};
    agreed.text = TextOf(agreed);
    return agreed;
  }
  return std::nullopt;
}

std::string ShardedOptimizer::TextOf(const AgreedNonFinite& found) const {
  const NonFinite& what = found.what;
  if (what.leaf == NonFinite::kWeight) {
    return absl::StrCat("weight ", what.name, " is not finite at element ", what.index, " (rank ",
                        found.rank, ")");
  }
  const comm::SlotRange run = comm::SlotsOfRank(slots_.slots, comm_.size(), found.rank);
  const std::string slot = slots_.deterministic
                               ? absl::StrCat("slot ", run.begin + what.leaf)
                               : absl::StrCat("slots ", run.begin, " to ", run.end - 1);
  return absl::StrCat("gradient of ", what.name, " is not finite at element ", what.index,
                      " (rank ", found.rank, ", ", slot, ")");
}

}  // namespace optim
