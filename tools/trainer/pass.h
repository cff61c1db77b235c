// Forward and backward of one rank's slots, as many a pass as the run is told to.
#ifndef TOOLS_TRAINER_PASS_H_
#define TOOLS_TRAINER_PASS_H_

#include <compare>
#include <cstdint>
#include <map>
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
#include "sched/schedules.h"
#include "sched/window.h"
#include "tools/trainer/pass_input.h"
#include "tools/trainer/rotary_table.h"
#include "tools/trainer/train_config.h"

namespace tools {

class PassRunner {
 public:
  static absl::StatusOr<std::unique_ptr<PassRunner>> Create(const TrainConfig& config,
                                                            comm::SlotRange run,
                                                            kernels::Backend& backend,
                                                            const kernels::Queue& queue);
  // The same in two parts: plans of arenas of which one is in use at a time, to which the caller
  // may add plans of his own, and then the arenas made of them, in the same order.
  static absl::StatusOr<std::unique_ptr<PassRunner>> Plan(const TrainConfig& config,
                                                          comm::SlotRange run,
                                                          kernels::Backend& backend,
                                                          const kernels::Queue& queue,
                                                          std::vector<kernels::ArenaPlan>* plans);
  void Bind(std::vector<kernels::Arena> arenas);

  void SetRotary(const sched::Rotary& rotary, kernels::Queue& queue) { rotary_.Set(rotary, queue); }

  // Uploads what the first pass reads beside the weights, which may not be there yet. Before each
  // Run, with the same batch and plan.
  void Begin(const data::GlobalBatch& batch, const sched::StepPlan& plan, kernels::Queue& queue);
  // Adds the gradients of the rank's slots to the parameters' leaves, and writes the slots'
  // summed losses to the front of `slot_losses`, f32. Enqueues only: the device may be behind.
  // `parameters` are the same in each call. The batch's slots have one of the config's sizes.
  void Run(const data::GlobalBatch& batch, const sched::StepPlan& plan,
           const std::vector<kernels::Parameter>& parameters, kernels::Tensor slot_losses,
           kernels::Queue& queue);

  // Off: each op is called again in each pass, so that a trace sees it. On at first.
  void set_recording(bool on) { recording_ = on; }

  int64_t lasting_bytes() const { return rotary_.bytes(); }  // of no arena that others share
  int64_t activation_bytes() const;                          // of the largest of its arenas

 private:
  // What a recorded pass has in it besides its tensors.
  struct Constants {
    int64_t leaf = 0;
    int64_t short_window_tokens = 0, long_window_tokens = 0;
    float attention_scale = 0;
    auto operator<=>(const Constants&) const = default;
  };
  static bool SameStage(Constants a, Constants b) {
    a.leaf = b.leaf;
    return a == b;
  }
  // A model laid out for a number of slots.
  struct Shape {
    int slots = 0;
    std::unique_ptr<model::Gpt> gpt;
    PassInputTensors input;
    kernels::TensorId losses_id;
    kernels::Tensor losses;
    // Null after the first pass with these constants, which runs op by op.
    std::map<Constants, std::unique_ptr<kernels::Recording>> recordings;
  };

  // What a batch with slots of one size needs: the whole pass, then the rest if it does not divide
  // the run. Stages lie over each other in memory.
  struct Stage {
    int64_t slot_tokens = 0;
    std::vector<Shape> shapes;
    kernels::Arena activations;
  };

  PassRunner(comm::SlotRange run, RotaryTable rotary) : run_(run), rotary_(std::move(rotary)) {}
  static Stage PlanStage(const TrainConfig& config, int64_t slot_tokens, int local_slots,
                         const kernels::Queue& queue, kernels::ArenaPlan& plan);
  Stage& Enter(int64_t slot_tokens, kernels::Queue& queue);
  void UploadSlots(Shape& shape, int first, const data::GlobalBatch& batch, kernels::Queue& queue);
  void LossGrad(Shape& shape, int64_t leaf, const sched::Windows& windows,
                const std::vector<kernels::Parameter>& parameters, kernels::Queue& queue);

  const comm::SlotRange run_;
  RotaryTable rotary_;
  std::vector<Stage> stages_;
  Stage* current_ = nullptr;
  bool recording_ = true;
};

}  // namespace tools

#endif  // TOOLS_TRAINER_PASS_H_
