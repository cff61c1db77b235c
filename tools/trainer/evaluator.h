// Validation loss: the plain token mean over the first val_tokens of the validation stream, in
// bf16, with the head's logits in bf16 as well (no fp8).
#ifndef TOOLS_TRAINER_EVALUATOR_H_
#define TOOLS_TRAINER_EVALUATOR_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "comm/slot_tree.h"
#include "data/validation.h"
#include "kernels/arena.h"
#include "kernels/parameter.h"
#include "kernels/queue.h"
#include "model/gpt.h"
#include "sched/window.h"
#include "tools/trainer/pass_input.h"
#include "tools/trainer/rotary_table.h"
#include "tools/trainer/train_config.h"

namespace tools {

class Evaluator {
 public:
  // `plan` is of an arena of its own, which may lie over the training's: nothing in it lasts from
  // one Run to the next. Before the first, Bind and Open.
  static absl::StatusOr<std::unique_ptr<Evaluator>> Plan(const TrainConfig& config,
                                                         comm::Communicator& comm,
                                                         kernels::Backend& backend,
                                                         const kernels::Queue& queue,
                                                         kernels::ArenaPlan* plan);
  void Bind(kernels::Arena arena);
  // Fails if the validation's shards do.
  absl::Status Open(const TrainConfig& config);

  void SetRotary(const sched::Rotary& rotary, kernels::Queue& queue) { rotary_.Set(rotary, queue); }

  // Collective: ranks share the slots out, and sums are added in slot order, so the loss has the
  // same bits for every number of ranks. Nats per token.
  absl::StatusOr<double> Run(const sched::Windows& windows,
                             const std::vector<kernels::Parameter>& parameters,
                             kernels::Queue& queue);

  int64_t lasting_bytes() const { return rotary_.bytes(); }
  int64_t activation_bytes() const { return arena_.plan().bytes(); }

 private:
  Evaluator(comm::Communicator& comm, RotaryTable rotary, int slots)
      : comm_(comm), rotary_(std::move(rotary)), slots_(slots) {}
  void RunSlot(int slot, kernels::Tensor sum, const sched::Windows& windows,
               const std::vector<kernels::Parameter>& parameters, kernels::Queue& queue);

  comm::Communicator& comm_;
  std::optional<data::ValidationStream> stream_;
  RotaryTable rotary_;
  const int slots_;  // of the whole validation
  std::unique_ptr<model::Gpt> gpt_;
  kernels::Arena arena_;
  PassInputTensors input_;
  kernels::TensorId losses_id_, sums_id_, all_id_;
  kernels::Tensor losses_, sums_, all_sums_;
};

}  // namespace tools

#endif  // TOOLS_TRAINER_EVALUATOR_H_
