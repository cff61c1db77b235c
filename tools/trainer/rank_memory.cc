#include "tools/trainer/rank_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm/local/local.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/cards.h"

namespace tools {
namespace {

using kernels::DType;

constexpr double kGiB = int64_t{1} << 30;

// Hands out addresses that nothing may touch: they cost no memory, and whoever uses one crashes.
class AddressBackend : public kernels::Backend {
 public:
  explicit AddressBackend(kernels::DeviceKind device) : device_(device) {}
  absl::string_view name() const override { return "plan"; }
  kernels::DeviceKind device() const override { return device_; }
  void* Allocate(int64_t bytes) override {
    void* memory =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    sizes_[memory] = bytes;
    return memory;
  }
  void Free(void* memory) override {
    CHECK_EQ(munmap(memory, sizes_.at(memory)), 0);
    sizes_.erase(memory);
  }

 private:
  const kernels::DeviceKind device_;
  std::map<void*, int64_t> sizes_;
};

struct Choice {
  int slots;
  int slots_per_pass;
  int64_t bytes;
};

std::string FlagsOf(const Choice& choice) {
  return absl::StrCat("--slots=", choice.slots, " --slots_per_pass=", choice.slots_per_pass);
}

// Divisions of the batch that the recipe's documents allow, the largest memory first.
absl::StatusOr<std::vector<Choice>> Choices(const TrainConfig& config, kernels::Queue& queue) {
  std::vector<Choice> choices;
  const int recipe_slots = config.recipe.data.slots;
  for (const int slots : {recipe_slots, 2 * recipe_slots, 4 * recipe_slots}) {
    TrainConfig other = config;
    other.recipe.data.slots = slots;
    const bool divides = std::all_of(config.recipe.schedules.batch.stages.begin(),
                                     config.recipe.schedules.batch.stages.end(),
                                     [slots](const sched::BatchStage& stage) {
                                       return stage.tokens % (int64_t{16} * slots) == 0;
                                     });
    if (!divides) continue;
    const int local_slots = comm::SlotsOfRank(slots, config.world_size, 0).count();
    for (const int per_pass : {4, 2, 1}) {
      other.slots_per_pass = per_pass;
      // More than the rank has, or than a deterministic run may have.
      if (other.pass_slots(other.slot_sizes().back(), local_slots) < per_pass) continue;
      ABSL_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(other, queue));
      choices.push_back({slots, per_pass, plan.total});
    }
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.bytes > b.bytes; });
  return choices;
}

// Training and validation take turns, so their activations lie over each other.
absl::Status PlanActivations(const TrainConfig& config, comm::Communicator& comm,
                             kernels::Backend& backend, kernels::Queue& queue, RankMemory* memory) {
  std::vector<kernels::ArenaPlan> plans;
  ABSL_ASSIGN_OR_RETURN(memory->passes,
                        PassRunner::Plan(config, memory->run, backend, queue, &plans));
  ABSL_ASSIGN_OR_RETURN(memory->evaluator,
                        Evaluator::Plan(config, comm, backend, queue, &plans.emplace_back()));
  ABSL_ASSIGN_OR_RETURN(std::vector<kernels::Arena> arenas,
                        kernels::Arena::CreateOverlapping(std::move(plans), backend));
  memory->evaluator->Bind(std::move(arenas.back()));
  arenas.pop_back();
  memory->passes->Bind(std::move(arenas));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankMemory>> RankMemory::Create(const TrainConfig& config,
                                                               comm::Communicator& comm,
                                                               kernels::Backend& backend,
                                                               kernels::Queue& queue) {
  const Recipe& recipe = config.recipe;
  auto memory = std::make_unique<RankMemory>();
  memory->run = comm::SlotsOfRank(recipe.data.slots, comm.size(), comm.rank());
  const int leaves = config.deterministic ? memory->run.count() : 1;
  ABSL_ASSIGN_OR_RETURN(memory->weights,
                        model::ParameterArena::Create(recipe.model, leaves, backend, comm.size()));
  ABSL_RETURN_IF_ERROR(PlanActivations(config, comm, backend, queue, memory.get()));
  memory->reads = std::make_unique<ReadRows>(config.total_steps(), recipe.data.slots);
  ABSL_ASSIGN_OR_RETURN(memory->optimizer, optim::ShardedOptimizer::Create(
                                               recipe.optimizer, memory->weights->parameters(),
                                               comm, recipe.data.slots, memory->run,
                                               config.deterministic, backend, memory->reads.get()));
  kernels::ArenaPlan plan;
  const int64_t row = comm::SlotsOfRank(recipe.data.slots, comm.size(), 0).count() + kLossFlags;
  const kernels::TensorId losses = plan.Add("slot losses", DType::kF32, {row});
  const kernels::TensorId all = plan.Add("all slot losses", DType::kF32, {comm.size(), row});
  const kernels::TensorId numbers = plan.Add("ranks' numbers", DType::kI64, {comm.size()});
  const kernels::TensorId guard = plan.Add("update guard", DType::kI32, {1});
  ABSL_ASSIGN_OR_RETURN(memory->arena, kernels::Arena::Create(plan, backend));
  memory->losses = memory->arena.Get(losses);
  memory->all_losses = memory->arena.Get(all);
  memory->numbers = memory->arena.Get(numbers);
  memory->guard = memory->arena.Get(guard);
  return memory;
}

int64_t RankMemory::bytes() const {
  return weights->bytes() + optimizer->bytes() + arena.plan().bytes() + passes->lasting_bytes() +
         evaluator->lasting_bytes() +
         std::max(passes->activation_bytes(), evaluator->activation_bytes());
}

absl::StatusOr<MemoryPlan> PlanMemory(const TrainConfig& config, kernels::Queue& queue) {
  AddressBackend backend(queue.device());
  // Of it only rank and size are asked.
  const std::unique_ptr<comm::Communicator> rank0 =
      comm::LocalGroup::Create(config.world_size, config.comm_timeout)->Join(0);
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<RankMemory> memory,
                        RankMemory::Create(config, *rank0, backend, queue));
  return MemoryPlan{.weights = memory->weights->bytes(),
                    .passes = memory->passes->activation_bytes(),
                    .validation = memory->evaluator->activation_bytes(),
                    .optimizer = memory->optimizer->bytes(),
                    .total = memory->bytes()};
}

absl::Status CheckMemory(const TrainConfig& config, kernels::Queue& queue) {
  if (config.memory_gib == 0) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(config, queue));
  const auto fits = [&config](int64_t bytes) { return bytes / kGiB <= config.memory_gib; };
  if (fits(plan.total)) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(const std::vector<Choice> choices, Choices(config, queue));
  const auto found = std::find_if(choices.begin(), choices.end(),
                                  [&fits](const Choice& choice) { return fits(choice.bytes); });
  const std::string advice =
      found == choices.end()
          ? absl::StrFormat("the least that this recipe takes on %d ranks is %.2f GiB, with %s",
                            config.world_size, choices.back().bytes / kGiB, FlagsOf(choices.back()))
          : absl::StrFormat("%s takes %.2f GiB", FlagsOf(*found), found->bytes / kGiB);
  return absl::InvalidArgumentError(
      absl::StrFormat("the run plans %.2f GiB, more than --memory_gib=%g: %s", plan.total / kGiB,
                      config.memory_gib, advice));
}

absl::StatusOr<std::string> MemoryChoicesText(const TrainConfig& config, kernels::Queue& queue) {
  ABSL_ASSIGN_OR_RETURN(const std::vector<Choice> choices, Choices(config, queue));
  std::string text =
      absl::StrFormat("  %-40s %10s  %s\n", "other divisions of the batch", "GiB", "smallest card");
  for (const Choice& choice : choices) {
    absl::StrAppend(&text, absl::StrFormat("  %-40s %10.2f  %s\n", FlagsOf(choice),
                                           choice.bytes / kGiB, SmallestCard(choice.bytes / kGiB)));
  }
  return text;
}

}  // namespace tools
