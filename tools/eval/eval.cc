// Measures a checkpoint: its validation loss, and HellaSwag.
//
//   bazel run //tools/eval -- --model=OUT_DIR --hellaswag=hellaswag_val.jsonl
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/cpu/cpu_backend.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"
#include "tools/command_line.h"
#include "tools/eval/hellaswag.h"
#include "tools/eval/validation.h"
#include "tools/output_files.h"
#include "tools/sample/decoder.h"
#include "tools/sample/saved_model.h"
#include "tools/sample/text_codec.h"

ABSL_FLAG(std::string, model, "",
          "An --out_dir, a checkpoint's folder, or a model.safetensors of track1 or track2.");
ABSL_FLAG(std::string, merges, "",
          "GPT-2's vocab.bpe (merges.txt), for HellaSwag with models of GPT-2's tokens; default: "
          "data/gpt2/merges.txt under $DATA_PATH or here, where fetch_fineweb --vocab puts it.");
ABSL_FLAG(int64_t, window, 0,
          "Tokens of the long attention window, whole blocks of the record's; the short one is "
          "half of it. 0: those that the checkpoint's step has.");
ABSL_FLAG(bool, val, true, "Compute the validation loss.");
ABSL_FLAG(std::string, val_files, "",
          "Globs of validation shards; default: FineWeb's under $DATA_PATH or here or, for a model "
          "of the demo's tokens, the demo's own.");
ABSL_FLAG(int64_t, val_tokens, 0, "Of the validation shards; 0: as many as the record takes.");
ABSL_FLAG(std::string, hellaswag, "", "HellaSwag's JSONL, such as hellaswag_val.jsonl.");
ABSL_FLAG(int64_t, limit, 0, "HellaSwag: the first so many examples; 0: all.");
ABSL_FLAG(bool, bos, true,
          "HellaSwag: begin each context with a document's first token, as in training; false: as "
          "evaluations of GPT-2 do.");
ABSL_FLAG(std::string, out, "", "Write the results to this file, as JSON.");
ABSL_FLAG(bool, overwrite, false, "Replace the file that --out names, if it is there.");
ABSL_FLAG(int32_t, threads, 0, "CPU threads; 0: one a core.");

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

absl::Status CheckFlags() {
  if (absl::GetFlag(FLAGS_model).empty()) {
    return absl::InvalidArgumentError(
        "--model: give an --out_dir of track1 or track2, or a model.safetensors");
  }
  if (!absl::GetFlag(FLAGS_val) && absl::GetFlag(FLAGS_hellaswag).empty()) {
    return absl::InvalidArgumentError("--val=false without --hellaswag leaves nothing to do");
  }
  struct Count {
    const char* flag;
    int64_t value;
  };
  for (const Count& count : {Count{"window", absl::GetFlag(FLAGS_window)},
                             {"val_tokens", absl::GetFlag(FLAGS_val_tokens)},
                             {"limit", absl::GetFlag(FLAGS_limit)},
                             {"threads", absl::GetFlag(FLAGS_threads)}}) {
    if (count.value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", count.flag, "=", count.value, ": must not be negative"));
    }
  }
  return absl::OkStatus();
}

// The examples' tokens, and the longest's count. An example that does not fit is an error: without
// its beginning or its end it would be another one.
absl::StatusOr<std::vector<HellaSwagTokens>> TokenizeAll(
    const std::vector<HellaSwagExample>& examples, const SavedModel& saved, const TextCodec& codec,
    int64_t* context_tokens) {
  std::vector<HellaSwagTokens> all;
  *context_tokens = 0;
  for (const HellaSwagExample& example : examples) {
    const HellaSwagTokens& tokens =
        all.emplace_back(Tokenize(example, codec, absl::GetFlag(FLAGS_bos)));
    *context_tokens = std::max(*context_tokens, ContextTokens(tokens));
    if (ContextTokens(tokens) > saved.recipe.data.val_slot_tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat(absl::GetFlag(FLAGS_hellaswag), ": line ", example.line, " has ",
                       ContextTokens(tokens), " tokens, and ", saved.recipe.record, " has ",
                       saved.recipe.data.val_slot_tokens, " positions; leave it out"));
    }
  }
  return all;
}

// The standard error of a share of n.
double StandardError(double share, int64_t n) {
  return std::sqrt(share * (1 - share) / static_cast<double>(n));
}

absl::Status RunHellaSwag(const SavedModel& saved, const sched::Windows& windows,
                          kernels::Queue& queue, nlohmann::json* results) {
  const std::string path = absl::GetFlag(FLAGS_hellaswag);
  ABSL_ASSIGN_OR_RETURN(const std::vector<HellaSwagExample> examples,
                        ReadHellaSwag(path, absl::GetFlag(FLAGS_limit)));
  ABSL_ASSIGN_OR_RETURN(const TextCodec codec,
                        TextCodec::Create(saved.token_map, absl::GetFlag(FLAGS_merges)));
  int64_t context_tokens = 0;
  ABSL_ASSIGN_OR_RETURN(const std::vector<HellaSwagTokens> tokens,
                        TokenizeAll(examples, saved, codec, &context_tokens));
  ModelState state =
      StateAt(saved.recipe.model, saved.recipe.schedules, saved.step, saved.weights->parameters());
  state.windows = windows;
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> model,
                        Decoder::Create(state, context_tokens, kernels::CpuBackend(), queue));
  HellaSwagScore score;
  const Clock::time_point start = Clock::now();
  for (size_t i = 0; i < examples.size(); ++i) {
    score.Add(ScoreEndings(*model, tokens[i]), examples[i].label);
    if (score.examples % 100 == 0) {
      std::fprintf(stderr, "eval: %lld of %zu examples, %.1f/s, acc_norm %.4f\n",
                   static_cast<long long>(score.examples), examples.size(),
                   score.examples / SecondsSince(start), score.Accuracy(score.right_per_token));
    }
  }
  const double seconds = SecondsSince(start);
  const double acc = score.Accuracy(score.right), norm = score.Accuracy(score.right_per_token),
               chars = score.Accuracy(score.right_per_character);
  const int64_t n = score.examples;
  std::printf(
      "hellaswag examples:%lld acc:%.4f+-%.4f acc_norm:%.4f+-%.4f acc_norm_chars:%.4f+-%.4f "
      "seconds:%.1f examples/s:%.2f\n",
      static_cast<long long>(n), acc, StandardError(acc, n), norm, StandardError(norm, n), chars,
      StandardError(chars, n), seconds, n / seconds);
  (*results)["hellaswag"] = {{"file", path}, {"examples", n},    {"bos", absl::GetFlag(FLAGS_bos)},
                             {"acc", acc},   {"acc_norm", norm}, {"acc_norm_chars", chars}};
  return absl::OkStatus();
}

absl::Status RunValidation(const SavedModel& saved, const sched::Windows& windows,
                           kernels::Queue& queue, nlohmann::json* results) {
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                        ValidationFiles(saved, absl::GetFlag(FLAGS_val_files)));
  const Clock::time_point start = Clock::now();
  ABSL_ASSIGN_OR_RETURN(const ValidationLoss loss,
                        Validate(saved, files, absl::GetFlag(FLAGS_val_tokens), windows, queue));
  const double seconds = SecondsSince(start);
  std::printf("val_loss:%.4f tokens:%lld seconds:%.1f tokens/s:%.0f\n", loss.loss,
              static_cast<long long>(loss.tokens), seconds, loss.tokens / seconds);
  (*results)["val_loss"] = loss.loss;
  (*results)["val_tokens"] = loss.tokens;
  if (std::isfinite(loss.loss)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the validation loss is ", loss.loss));
}

// All there is so far, so that a path that cannot be written is found before hours of work.
absl::Status WriteResults(const nlohmann::json& results) {
  const std::string out = absl::GetFlag(FLAGS_out);
  if (out.empty()) return absl::OkStatus();
  const std::string text = results.dump(2) + "\n";
  const absl::Status written = WriteFileAtomically(out, {text});
  if (written.ok()) return written;
  return absl::FailedPreconditionError(absl::StrCat("--out: ", written.message()));
}

absl::Status Run(const std::vector<std::string>& arguments) {
  ABSL_RETURN_IF_ERROR(NoArguments(arguments));
  ABSL_RETURN_IF_ERROR(CheckFlags());
  ABSL_RETURN_IF_ERROR(kernels::CheckCpuBackend());
  ABSL_RETURN_IF_ERROR(
      CheckOutputFiles({{"out", absl::GetFlag(FLAGS_out)}}, absl::GetFlag(FLAGS_overwrite)));
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(absl::GetFlag(FLAGS_threads));
  const std::string path = absl::GetFlag(FLAGS_model);
  ABSL_ASSIGN_OR_RETURN(const SavedModel saved,
                        LoadSavedModel(path, kernels::CpuBackend(), *queue));
  ABSL_ASSIGN_OR_RETURN(const sched::Windows windows,
                        EvaluationWindows(saved, absl::GetFlag(FLAGS_window)));
  std::printf("model:%s record:%s preset:%s step:%lld window:%lld short_window:%lld\n",
              path.c_str(), saved.recipe.record.c_str(), saved.recipe.preset.c_str(),
              static_cast<long long>(saved.step), static_cast<long long>(windows.long_tokens),
              static_cast<long long>(windows.short_tokens));
  nlohmann::json results = {{"model", path},
                            {"record", saved.recipe.record},
                            {"preset", saved.recipe.preset},
                            {"step", saved.step},
                            {"window", windows.long_tokens},
                            {"short_window", windows.short_tokens}};
  ABSL_RETURN_IF_ERROR(WriteResults(results));
  if (absl::GetFlag(FLAGS_val)) {
    ABSL_RETURN_IF_ERROR(RunValidation(saved, windows, *queue, &results));
    ABSL_RETURN_IF_ERROR(WriteResults(results));
  }
  if (absl::GetFlag(FLAGS_hellaswag).empty()) return absl::OkStatus();
  ABSL_RETURN_IF_ERROR(RunHellaSwag(saved, windows, *queue, &results));
  return WriteResults(results);
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "eval",
      .summary =
          "measures a checkpoint, on the CPU: its validation loss, as the training computes "
          "it, and HellaSwag (acc: the ending of least loss; acc_norm: of least loss a "
          "token; acc_norm_chars: of least loss a character).",
      .usage = "bazel run //tools/eval -- --model=OUT_DIR [flags]",
      .examples = {{"the validation loss", "bazel run //tools/eval -- --model=OUT_DIR"},
                   {"the same at a window of 1,024 tokens",
                    "bazel run //tools/eval -- --model=OUT_DIR --window=1024"},
                   {"HellaSwag alone",
                    "bazel run //tools/eval -- --model=OUT_DIR --val=false "
                    "--hellaswag=hellaswag_val.jsonl --limit=1000"}},
      .groups = {{"Model", {"model", "merges", "window"}},
                 {"Validation loss", {"val", "val_files", "val_tokens"}},
                 {"HellaSwag", {"hellaswag", "limit", "bos"}},
                 {"Results and speed", {"out", "overwrite", "threads"}}}};
  return tools::RunTool(argc, argv, help, tools::Run);
}
