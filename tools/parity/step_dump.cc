#include "tools/parity/step_dump.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/local/local.h"
#include "comm/slot_tree.h"
#include "data/batcher.h"
#include "data/loader.h"
#include "kernels/arena.h"
#include "kernels/parameter.h"
#include "model/parameters.h"
#include "optim/sharded_optimizer.h"
#include "sched/rotary.h"
#include "sched/schedules.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/pass.h"
#include "tools/trainer/weights.h"

namespace tools {
namespace {

using kernels::DType;
using kernels::Parameter;
using kernels::Queue;

std::string GradientName(int batch, const Parameter& parameter) {
  return absl::StrCat("grad.", batch, ".", parameter.spec.name);
}

absl::StatusOr<std::unique_ptr<data::TrainLoader>> OpenLoader(const TrainConfig& config,
                                                              int64_t schedule_step) {
  data::LoaderOptions options;
  options.files = config.train_files;
  options.stages = {{0, config.batch_options(config.slot_tokens(schedule_step))}};
  options.token_map = config.token_map;
  options.epochs = config.epochs;
  return data::TrainLoader::Create(options, {}, 0);
}

void AddRows(const std::string& name, const data::GlobalBatch& batch,
             std::vector<int32_t> data::SlotBatch::*member, TensorMap* out) {
  HostTensor tensor;
  tensor.dtype = DType::kI32;
  tensor.shape = {std::ssize(batch.slots), std::ssize(batch.slots.front().*member)};
  for (const data::SlotBatch& slot : batch.slots) {
    const std::vector<int32_t>& row = slot.*member;
    tensor.bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(int32_t));
  }
  (*out)[name] = std::move(tensor);
}

void AddBatch(int k, const data::GlobalBatch& batch, TensorMap* out) {
  AddRows(absl::StrCat("tokens.", k), batch, &data::SlotBatch::inputs, out);
  AddRows(absl::StrCat("targets.", k), batch, &data::SlotBatch::targets, out);
  AddRows(absl::StrCat("boundaries.", k), batch, &data::SlotBatch::boundaries, out);
}

// Valid after queue.Synchronize().
void AddF32(const std::string& name, kernels::Tensor tensor, const std::vector<int64_t>& shape,
            TensorMap* out, Queue& queue) {
  HostTensor& host = (*out)[name];
  host.shape = shape;
  host.bytes.resize(tensor.bytes());
  queue.Download(tensor, host.bytes.data());
}

// The f32 weight whose halves the bf16 weight and its mantissa are.
HostTensor WithMantissa(const HostTensor& upper, const optim::StateTensor& lower) {
  CHECK(upper.bytes.size() == lower.bytes.size()) << lower.name;
  HostTensor whole;
  whole.shape = upper.shape;
  for (size_t at = 0; at < upper.bytes.size(); at += 2) {  // little-endian
    whole.bytes.append(reinterpret_cast<const char*>(lower.bytes.data()) + at, 2);
    whole.bytes.append(upper.bytes, at, 2);
  }
  return whole;
}

// A rank alone with the device memory of its step.
class Step {
 public:
  Step(const TrainConfig& config, const StepDumpOptions& options, Queue& queue)
      : config_(config),
        options_(options),
        queue_(queue),
        run_(comm::SlotsOfRank(config.recipe.data.slots, 1, 0)),
        comm_(comm::LocalGroup::Create(1, absl::Minutes(1))->Join(0)) {}

  absl::Status Load(kernels::Backend& backend) {
    ABSL_ASSIGN_OR_RETURN(weights_,
                          model::ParameterArena::Create(config_.recipe.model, 1, backend));
    ABSL_ASSIGN_OR_RETURN(passes_, PassRunner::Create(config_, run_, backend, queue_));
    kernels::ArenaPlan plan;
    const kernels::TensorId losses = plan.Add("slot losses", DType::kF32, {run_.count()});
    ABSL_ASSIGN_OR_RETURN(arena_, kernels::Arena::Create(plan, backend));
    losses_ = arena_.Get(losses);
    if (options_.update) {
      ABSL_ASSIGN_OR_RETURN(
          optimizer_, optim::ShardedOptimizer::Create(config_.recipe.optimizer, parameters(),
                                                      *comm_, run_.count(), run_, false, backend));
    }
    ABSL_ASSIGN_OR_RETURN(const SafetensorsFile file, ReadSafetensors(config_.init_from));
    return WeightsFromHost(file.tensors, config_.init_from, parameters(), queue_);
  }

  void Gradients(int k, const data::GlobalBatch& batch, TensorMap* out) {
    const sched::Schedules& schedules = config_.recipe.schedules;
    const sched::StepPlan plan = sched::PlanStep(schedules, options_.schedule_step);
    passes_->SetRotary(Rotary(), queue_);
    weights_->ZeroGradients(queue_);
    passes_->Begin(batch, plan, queue_);
    passes_->Run(batch, plan, parameters(), losses_, queue_);
    AddF32(absl::StrCat("loss.", k), losses_, {losses_.size()}, out, queue_);
    for (const Parameter& parameter : parameters()) {
      AddF32(GradientName(k, parameter), parameter.grad, parameter.spec.shape, out, queue_);
    }
    queue_.Synchronize();
  }

  absl::Status Update(int k, const TensorMap& gradients) {
    // Backward adds to what an earlier update has left for this one.
    optimizer_->ClearGradients(queue_);
    for (const Parameter& parameter : parameters()) {
      std::vector<float> sum(parameter.grad.size()), added(parameter.grad.size());
      queue_.Download(parameter.grad, sum.data());
      queue_.Synchronize();
      const std::string& bytes = gradients.at(GradientName(k, parameter)).bytes;
      CHECK_EQ(bytes.size(), added.size() * sizeof(float)) << parameter.spec.name;
      std::memcpy(added.data(), bytes.data(), bytes.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
      queue_.Upload(sum.data(), parameter.grad);
    }
    const sched::StepPlan plan =
        sched::PlanStep(config_.recipe.schedules, options_.schedule_step + k);
    return optimizer_->Step({.lr_multiplier = plan.lr_multiplier,
                             .momentum = plan.momentum,
                             .step = options_.schedule_step + k,
                             .tied = plan.tied},
                            /*guard=*/{}, queue_);
  }

  absl::Status AddWeights(TensorMap* out) {
    for (auto& [name, tensor] : WeightsToHost(parameters(), queue_)) {
      (*out)[absl::StrCat("after.", name)] = tensor;
    }
    ABSL_ASSIGN_OR_RETURN(const optim::OptimizerState state, optimizer_->GatherState(queue_));
    for (const auto& [name, tensor] : *out) {
      if (name.rfind("after.", 0) != 0) continue;
      for (const char* rule : {"muon", "normuon", "anvil"}) {
        const optim::StateTensor* mantissa =
            optim::FindState(state, absl::StrCat(rule, ".mantissa/", name.substr(6)));
        if (mantissa != nullptr) (*out)[name] = WithMantissa(tensor, *mantissa);
      }
    }
    for (const optim::StateTensor& tensor : state.tensors) {
      if (tensor.dtype == DType::kU16) continue;  // a mantissa
      HostTensor& host = (*out)[absl::StrCat("state.", tensor.name)];
      host.dtype = tensor.dtype;
      host.shape = tensor.shape;
      host.bytes.assign(tensor.bytes.begin(), tensor.bytes.end());
    }
    return absl::OkStatus();
  }

  sched::Rotary Rotary() const {
    const sched::Schedules& schedules = config_.recipe.schedules;
    return sched::RotaryAt(schedules.rotary, schedules.window, schedules.run,
                           options_.schedule_step);
  }

 private:
  const std::vector<Parameter>& parameters() const { return weights_->parameters(); }

  const TrainConfig& config_;
  const StepDumpOptions& options_;
  Queue& queue_;
  const comm::SlotRange run_;
  const std::unique_ptr<comm::Communicator> comm_;
  std::unique_ptr<model::ParameterArena> weights_;
  std::unique_ptr<PassRunner> passes_;
  std::unique_ptr<optim::ShardedOptimizer> optimizer_;
  kernels::Arena arena_;
  kernels::Tensor losses_;
};

std::map<std::string, std::string> Metadata(const TrainConfig& config,
                                            const StepDumpOptions& options,
                                            const sched::Rotary& rotary) {
  const sched::Schedules& schedules = config.recipe.schedules;
  const sched::StepPlan plan = sched::PlanStep(schedules, options.schedule_step);
  const sched::Windows& windows = plan.windows;
  return {{"total_steps", absl::StrCat(config.total_steps())},
          {"schedule_step", absl::StrCat(options.schedule_step)},
          {"block_tokens", absl::StrCat(schedules.window.block_tokens)},
          {"short_window", absl::StrCat(windows.short_tokens)},
          {"long_window", absl::StrCat(windows.long_tokens)},
          {"attention_scale", absl::StrFormat("%.17g", rotary.attn_scale)},
          {"loss_weights", absl::StrJoin(plan.loss_weights, ",",
                                         [](std::string* out, float weight) {
                                           absl::StrAppendFormat(out, "%.9g", weight);
                                         })},
          {"tied", plan.tied ? "1" : "0"},
          {"batches", absl::StrCat(options.batches)}};
}

}  // namespace

absl::StatusOr<SafetensorsFile> DumpStep(const TrainConfig& config, const StepDumpOptions& options,
                                         kernels::Backend& backend, Queue& queue) {
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<data::TrainLoader> loader,
                        OpenLoader(config, options.schedule_step));
  Step step(config, options, queue);
  ABSL_RETURN_IF_ERROR(step.Load(backend));
  SafetensorsFile file;
  file.metadata = Metadata(config, options, step.Rotary());
  for (int k = 0; k < options.batches; ++k) {
    ABSL_ASSIGN_OR_RETURN(const std::shared_ptr<const data::GlobalBatch> batch, loader->Next());
    AddBatch(k, *batch, &file.tensors);
    step.Gradients(k, *batch, &file.tensors);
  }
  if (options.update) {
    for (int k = 0; k < options.batches; ++k) {
      ABSL_RETURN_IF_ERROR(step.Update(k, file.tensors));
    }
    ABSL_RETURN_IF_ERROR(step.AddWeights(&file.tensors));
  }
  return file;
}

}  // namespace tools
