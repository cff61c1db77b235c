// Forward and backward of one rank's slots, as many a pass as the run is told to.
#ifndef TOOLS_TRAINER_PASS_H_
#define TOOLS_TRAINER_PASS_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/slot_tree.h"
#include "data/batcher.h"
#include "kernels/arena.h"
#include "kernels/parameter.h"
#include "kernels/queue.h"
#include "model/gpt.h"
#include "sched/window.h"
#include "tools/trainer/rotary_table.h"
#include "tools/trainer/train_config.h"

namespace tools {

class PassRunner {
 public:
  static absl::StatusOr<std::unique_ptr<PassRunner>> Create(const TrainConfig& config,
                                                            comm::SlotRange run,
                                                            kernels::Backend& backend,
                                                            const kernels::Queue& queue);

  void SetRotary(const sched::Rotary& rotary, kernels::Queue& queue) { rotary_.Set(rotary, queue); }

  // Adds the gradients of the rank's slots to the parameters' leaves, and writes the slots'
  // summed losses to the front of `slot_losses`, f32.
  void Run(const data::GlobalBatch& batch, const sched::Windows& windows,
           const std::vector<kernels::Parameter>& parameters, kernels::Tensor slot_losses,
           kernels::Queue& queue);

  int64_t bytes() const;

 private:
  // A model laid out for a number of slots. Two exist when that number does not divide the run.
  struct Shape {
    int slots = 0;
    std::unique_ptr<model::Gpt> gpt;
    kernels::Arena activations;
    kernels::Tensor tokens, targets, boundaries, losses;
  };

  PassRunner(comm::SlotRange run, RotaryTable rotary) : run_(run), rotary_(std::move(rotary)) {}
  absl::Status AddShape(const TrainConfig& config, int slots, kernels::Backend& backend,
                        const kernels::Queue& queue);
  void RunSlots(Shape& shape, int first, const data::GlobalBatch& batch,
                const sched::Windows& windows, const std::vector<kernels::Parameter>& parameters,
                kernels::Tensor slot_losses, kernels::Queue& queue);

  const comm::SlotRange run_;
  RotaryTable rotary_;
  std::vector<Shape> shapes_;  // the whole pass, then the rest if there is one
};

}  // namespace tools

#endif  // TOOLS_TRAINER_PASS_H_
