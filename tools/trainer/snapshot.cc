#include "tools/trainer/snapshot.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/checkpoint_folder.h"

namespace tools {
namespace {

using nlohmann::json;

constexpr int kFormat = 2;

const char* ScheduleExtension(const Recipe& recipe) {
  return sched::HasLegacyExtension(recipe.schedules) ? "legacy" : "recipe";
}

// A number, or the stages' numbers.
json BatchTokens(const Recipe& recipe) {
  const std::vector<sched::BatchStage>& stages = recipe.schedules.batch.stages;
  if (stages.size() == 1) return stages.front().tokens;
  json tokens = json::array();
  for (const sched::BatchStage& stage : stages) tokens.push_back(stage.tokens);
  return tokens;
}

// What has to be the same for a resumed run to be the same run.
json Identity(const TrainConfig& config) {
  const Recipe& recipe = config.recipe;
  return {
      {"record", recipe.record},
      {"preset", recipe.preset},
      {"vocab_size", recipe.model.vocab_size},
      {"dim", recipe.model.dim},
      {"layers", recipe.model.layers.size()},
      {"slots", recipe.data.slots},
      {"batch_tokens", BatchTokens(recipe)},
      {"max_doc_len", recipe.data.max_doc_len},
      {"batches", recipe.data.mode == data::BatchMode::kStream ? "stream" : "documents"},
      {"total_steps", config.total_steps()},
      {"extension_steps", config.extension_steps},
      {"momentum_steps", config.momentum_steps},
      {"schedule_extension", ScheduleExtension(recipe)},
      {"seed", config.seed},
      {"matrix_lr_mul", config.matrix_lr_mul},
      {"deterministic", config.deterministic},
      {"epochs", config.epochs},
      {"train_files", config.train_files},
  };
}

absl::Status Damaged(const std::string& root, int64_t step, absl::string_view what) {
  const std::string path = CheckpointPath(root, step);
  return absl::DataLossError(absl::StrCat(path, "/state.json: ", what, "; move ", path,
                                          " away to go on from the checkpoint before it, if ", root,
                                          " has one"));
}

}  // namespace

std::string FormatRunState(const RunState& state, const TrainConfig& config) {
  const json out = {
      {"format", kFormat},
      {"run", Identity(config)},
      {"step", state.step},
      {"updates", state.updates},
      {"tokens", state.tokens},
      {"train_ms", state.train_ms},
      {"skipped", state.skipped},
      {"stream_hash", state.stream_hash},
      {"loader",
       {{"epoch", state.loader.epoch},
        {"file", state.loader.file},
        {"next_document", state.loader.next_document}}},
  };
  return out.dump(2) + "\n";
}

absl::StatusOr<RunState> ParseRunState(const Checkpoint& checkpoint, const TrainConfig& config) {
  const auto damaged = [&](absl::string_view what) {
    return Damaged(config.checkpoint_root(), checkpoint.step, what);
  };
  json in = json::parse(checkpoint.state_json, nullptr, false);
  if (!in.is_object() || !in.contains("format") || !in["format"].is_number_integer()) {
    return damaged("not a state of a run");
  }
  if (const int format = in["format"]; format != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat("state.json: format ", format,
                                                      ", this program reads format ", kFormat,
                                                      "; resume with the program that wrote it"));
  }
  const json identity = Identity(config);
  if (!in.contains("run") || !in["run"].is_object()) return damaged("it lacks the run");
  // Their defaults, where the program did not have the flags.
  in["run"].emplace("matrix_lr_mul", 1.0);
  in["run"].emplace("extension_steps", -1);
  in["run"].emplace("momentum_steps", "scaled");
  for (const auto& [key, value] : identity.items()) {
    if (!in["run"].contains(key)) return damaged(absl::StrCat("the run lacks ", key));
    if (in["run"][key] != value) {
      return absl::FailedPreconditionError(
          absl::StrCat("the checkpoint in ", config.checkpoint_root(), " is of another run: ", key,
                       " is ", in["run"][key].dump(), " there and ", value.dump(),
                       " here; give the same flags, or another --out_dir"));
    }
  }
  RunState state;
  for (const auto& [key, target] :
       std::vector<std::pair<const char*, int64_t*>>{{"step", &state.step},
                                                     {"updates", &state.updates},
                                                     {"tokens", &state.tokens},
                                                     {"skipped", &state.skipped}}) {
    if (!in.contains(key) || !in[key].is_number_integer()) {
      return damaged(absl::StrCat("it lacks ", key));
    }
    *target = in[key];
  }
  if (state.step != checkpoint.step) {
    return damaged(
        absl::StrCat("it says step ", state.step, ", its folder says ", checkpoint.step));
  }
  if (!in.contains("train_ms") || !in["train_ms"].is_number()) return damaged("it lacks train_ms");
  state.train_ms = in["train_ms"];
  if (!in.contains("stream_hash") || !in["stream_hash"].is_number_unsigned()) {
    return damaged("it lacks stream_hash");
  }
  state.stream_hash = in["stream_hash"];
  const json loader = in.value("loader", json());
  for (const char* key : {"epoch", "file", "next_document"}) {
    if (!loader.is_object() || !loader.contains(key) || !loader[key].is_number_integer()) {
      return damaged(absl::StrCat("the loader lacks ", key));
    }
  }
  state.loader.epoch = loader["epoch"];
  state.loader.file = loader["file"];
  state.loader.next_document = loader["next_document"];
  return state;
}

absl::StatusOr<ResumePoint> LoadResumePoint(const TrainConfig& config) {
  absl::StatusOr<Checkpoint> latest = LoadLatestCheckpoint(config.checkpoint_root());
  if (absl::IsNotFound(latest.status())) {
    return absl::NotFoundError(absl::StrCat("--resume: ", latest.status().message(),
                                            " to go on from; without --resume a run begins there"));
  }
  ABSL_ASSIGN_OR_RETURN(Checkpoint checkpoint, std::move(latest));
  ABSL_ASSIGN_OR_RETURN(const RunState state, ParseRunState(checkpoint, config));
  return ResumePoint{std::move(checkpoint), state};
}

std::map<std::string, std::string> ModelMetadata(const TrainConfig& config, int64_t step) {
  const Recipe& recipe = config.recipe;
  std::map<std::string, std::string> metadata = {
      {"format", "pt"},  // what PyTorch's loaders look for
      {"record", recipe.record},
      {"preset", recipe.preset},
      {"vocab_size", absl::StrCat(recipe.model.vocab_size)},
      {"step", absl::StrCat(step)},
      {"total_steps", absl::StrCat(config.total_steps())},
      {"schedule_extension", ScheduleExtension(recipe)},
      {"tokens", config.token_map.is_identity() ? "gpt2" : "gpt2_bytes"},
  };
  if (config.extension_steps >= 0) {
    metadata["extension_steps"] = absl::StrCat(config.extension_steps);
  }
  return metadata;
}

TensorMap TensorsFromOptimizerState(const optim::OptimizerState& state) {
  TensorMap tensors;
  for (const optim::StateTensor& tensor : state.tensors) {
    tensors[tensor.name] = {tensor.dtype, tensor.shape,
                            std::string(tensor.bytes.begin(), tensor.bytes.end())};
  }
  return tensors;
}

optim::OptimizerState OptimizerStateFromTensors(const TensorMap& tensors, int64_t updates) {
  optim::OptimizerState state;
  state.updates = updates;
  for (const auto& [name, tensor] : tensors) {
    state.tensors.push_back({name, tensor.dtype, tensor.shape,
                             std::vector<uint8_t>(tensor.bytes.begin(), tensor.bytes.end())});
  }
  return state;
}

}  // namespace tools
