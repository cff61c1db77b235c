#include "optim/pending_gradients.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/slot_tree.h"
#include "kernels/ops/elementwise.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace optim {

using kernels::DType;
using kernels::Parameter;
using kernels::Queue;
using kernels::Tensor;

PendingGradients::PendingGradients(const OptimizerConfig& config, const StepLayout& layout,
                                   const std::vector<Parameter>& parameters, const SlotPlan& slots,
                                   comm::Communicator& comm)
    : parameters_(parameters), slots_(slots), comm_(comm), waits_(parameters.size(), false) {
  for (int row : layout.row_of_spec) rows_.push_back(config.table[row]);
}

void PendingGradients::AfterStep(int64_t step) {
  for (size_t i = 0; i < parameters_.size(); ++i) waits_[i] = Waits(i, step + 1);
}

bool PendingGradients::Lacks(int64_t updates) const {
  for (size_t i = 0; i < waits_.size(); ++i) {
    if (Waits(i, updates) && !waits_[i]) return true;
  }
  return false;
}

void PendingGradients::Forget() { waits_.assign(parameters_.size(), false); }

void PendingGradients::ClearOthers(Queue& queue) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!waits_[i]) kernels::FillZero(parameters_[i].grad, queue);
  }
}

std::string PendingGradients::StateName(size_t parameter) const {
  return absl::StrCat("adam.pending/", parameters_[parameter].spec.name);
}

std::vector<int64_t> PendingGradients::StateShape(size_t parameter) const {
  std::vector<int64_t> shape = parameters_[parameter].spec.shape;
  if (slots_.deterministic) shape.insert(shape.begin(), slots_.slots);
  return shape;
}

std::set<std::string> PendingGradients::StateNames(int64_t updates) const {
  std::set<std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (Waits(i, updates)) names.insert(StateName(i));
  }
  return names;
}

absl::Status PendingGradients::GatherState(Tensor stage, Queue& queue,
                                           std::vector<StateTensor>* out) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!waits_[i]) continue;
    const int64_t size = parameters_[i].spec.size();
    const Tensor grad = parameters_[i].grad.Reshape({slots_.leaves(), size});
    const Tensor copy = stage.Reshape({-1}).Slice(0, size);
    StateTensor tensor{.name = StateName(i), .dtype = DType::kF32, .shape = StateShape(i)};
    tensor.bytes.resize(Elements(tensor.shape) * kernels::SizeOf(DType::kF32));
    if (!slots_.deterministic) {
      // In a copy: this run goes on with its own sums.
      kernels::Copy(grad.At(0), copy, queue);
      ABSL_RETURN_IF_ERROR(
          comm_.AllReduce(tensor.name, copy, comm::ReduceOp::kSum, queue).Wait(queue));
      queue.Download(copy, tensor.bytes.data());
      queue.Synchronize();
    } else {
      for (int rank = 0, slot = 0; rank < comm_.size(); ++rank) {
        const comm::SlotRange run = comm::SlotsOfRank(slots_.slots, comm_.size(), rank);
        for (; slot < run.end; ++slot) {
          if (rank == comm_.rank()) kernels::Copy(grad.At(slot - run.begin), copy, queue);
          ABSL_RETURN_IF_ERROR(comm_.Broadcast(tensor.name, copy, rank, queue).Wait(queue));
          queue.Download(copy, tensor.bytes.data() + slot * copy.bytes());
          queue.Synchronize();
        }
      }
    }
    out->push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status PendingGradients::CheckState(const OptimizerState& state) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!Waits(i, state.updates)) continue;
    if (FindState(state, StateName(i)) == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "optimizer state ", StateName(i), ": after ", state.updates,
          " steps this run needs the sum of the gradients since the last update, the checkpoint "
          "has none: the run that wrote it stopped at gradients that were not finite and lost "
          "them, or it was of another recipe; resume from an earlier checkpoint"));
    }
    ABSL_RETURN_IF_ERROR(CheckStateTensor(state, StateName(i), DType::kF32, StateShape(i)));
  }
  return absl::OkStatus();
}

void PendingGradients::LoadState(const OptimizerState& state, Queue& queue) {
  const comm::SlotRange run = comm::SlotsOfRank(slots_.slots, comm_.size(), comm_.rank());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    waits_[i] = Waits(i, state.updates);
    if (!waits_[i]) continue;
    const StateTensor* tensor = FindState(state, StateName(i));
    CHECK(tensor != nullptr) << StateName(i);
    const Tensor& grad = parameters_[i].grad;
    if (slots_.deterministic) {
      const int64_t bytes = grad.bytes() / run.count();
      queue.Upload(tensor->bytes.data() + run.begin * bytes, grad);
    } else if (comm_.rank() == 0) {
      queue.Upload(tensor->bytes.data(), grad);
    } else {
      kernels::FillZero(grad, queue);
    }
  }
}

}  // namespace optim
