// The rules for matrices, one buffer per group: Muon (Jordan, "Muon", 2024),
//   m <- m + (1 - mu)(g - m);  u = (1 - mu) g + mu m;  p <- p decay - lr orth(u)
// or NorMuon, where kernels::NormalizeBySecondMoment comes after orth, or Anvil, which is NorMuon
// with kernels::TwinRailUpdate before orth. All see a parameter as the matrices of its view from
// orth to the update. With a mantissa the update is kernels::SplitMatrixUpdate.
#ifndef OPTIM_MUON_PART_H_
#define OPTIM_MUON_PART_H_

#include <memory>
#include <vector>

#include "kernels/arena.h"
#include "optim/orthogonalizer.h"
#include "optim/param_table.h"
#include "optim/sharded_buffer.h"
#include "optim/step_layout.h"
#include "optim/update_part.h"

namespace optim {

class MuonPart : public UpdatePart {
 public:
  // Plans its memory in `plan`.
  MuonPart(const OptimizerConfig& config, const StepLayout& layout,
           const std::vector<kernels::Parameter>& parameters, const SlotPlan& slots,
           std::unique_ptr<Orthogonalizer> orthogonalizer, comm::Communicator& comm,
           kernels::ArenaPlan* plan);
  void Bind(const kernels::Arena& arena, kernels::Tensor tree_scratch);

  // Uploads the rates of step `step`, all in one go.
  void SetRates(double lr_multiplier, double momentum, int64_t step, kernels::Queue& queue);

  int buffers() const override { return static_cast<int>(items_.size()); }
  ShardedBuffer& buffer(int i) override { return *items_[i].buffer; }
  void Update(int i, kernels::Tensor guard, kernels::Queue& queue) override;
  std::vector<ShardedBuffer::Kept> KeptOf(int i) const override;

 private:
  // Owned units, consecutive, with one view and one way to update: they share the calls. A chunk
  // that holds attention and MLP has two of them.
  struct Run {
    int64_t begin = 0;  // first element, in the chunk
    int64_t batch = 0;  // matrices
    int64_t rows = 0, cols = 0;
    bool cautious = false;
    // Of the second moment. Its matrices are the run's, or as stored.
    double beta2 = 0;
    double moment_floor = 0;
    bool per_row = false;
    int64_t moment_rows = 0, moment_cols = 0;
    int64_t moment = 0;  // place of the first value, in the chunk's
    int64_t rate = 0;    // place of the first of its rates in step_rates_ and decay_rates_
    int64_t size() const { return batch * rows * cols; }
    bool GoesWith(const Run& next) const {
      return rows == next.rows && cols == next.cols && cautious == next.cautious &&
             beta2 == next.beta2 && moment_floor == next.moment_floor && per_row == next.per_row &&
             moment_rows == next.moment_rows && moment_cols == next.moment_cols;
    }
  };
  struct Item {
    ParamRow row;  // of its first member; all agree on what Update reads of it
    std::unique_ptr<ShardedBuffer> buffer;
    std::vector<Run> runs;
    kernels::TensorId momentum_id, slow_rail_id, second_moment_id, mantissa_id;
    kernels::Tensor momentum;       // weights' dtype, with a mantissa f32 [chunk]; the fast rail
    kernels::Tensor slow_rail;      // f32 [chunk]; Anvil's
    kernels::Tensor second_moment;  // moment_dtype [units of a chunk * values]; empty for Muon
    kernels::Tensor mantissa;       // u16 [chunk], or empty
  };

  Item MakeItem(const BufferLayout& layout, const std::vector<kernels::Parameter>& parameters,
                const std::vector<ParamRow>& rows, const SlotPlan& slots, comm::Communicator& comm,
                kernels::ArenaPlan* plan);
  // Where in rates_ those of the items end.
  int64_t FirstMatrixRate() const { return 3 * static_cast<int64_t>(items_.size()); }
  // Also appends to matrices_. `rows`: of all members, RowOf.
  std::vector<Run> OwnRuns(const ShardedBuffer& buffer, const std::vector<ParamRow>& rows);
  void UpdateRun(const Item& item, const Run& run, kernels::Tensor guard,
                 kernels::Queue& queue) const;

  const std::unique_ptr<Orthogonalizer> orthogonalizer_;
  std::vector<Item> items_;
  // One per owned matrix, in the order of the runs.
  struct MatrixRow {
    ParamRow row;
    kernels::ParameterSpec spec;
    int64_t matrix;  // of the view
  };
  std::vector<MatrixRow> matrices_;
  kernels::TensorId rates_id_, direction_id_, orthogonal_id_, workspace_id_;
  // f32 [3 items + 2 matrices]: for each item lookahead (Muon's momentum), fast beta and weight of
  // the fast rail, then
  kernels::Tensor rates_;
  kernels::Tensor step_rates_, decay_rates_;  // f32 [matrices] each, parts of rates_
  kernels::Tensor direction_, orthogonal_;    // bf16, the largest chunk
  kernels::Tensor workspace_;                 // bf16, the largest run's
  std::vector<float> host_rates_;
};

}  // namespace optim

#endif  // OPTIM_MUON_PART_H_
