// Generates text from a checkpoint.
//
//   bazel run //tools/sample -- --model=OUT_DIR --prompt="The " --temperature=0.8
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_backend.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/command_line.h"
#include "tools/sample/cache_comparison.h"
#include "tools/sample/decoder.h"
#include "tools/sample/generate.h"
#include "tools/sample/saved_model.h"
#include "tools/sample/text_codec.h"
#include "tools/sample/utf8_stream.h"
#include "tools/sample/whole_context.h"

ABSL_FLAG(std::string, model, "",
          "An --out_dir, a checkpoint's folder, or a model.safetensors of track1 or track2.");
ABSL_FLAG(std::string, merges, "",
          "GPT-2's vocab.bpe (merges.txt), for models of GPT-2's tokens; default: "
          "data/gpt2/merges.txt under $DATA_PATH or here, where fetch_fineweb --vocab puts it.");
ABSL_FLAG(std::string, prompt, "",
          "Text to continue; -: all of standard input, as it is, with a line end at its end; "
          "empty: a new document. End-of-text is put before it; a written <|endoftext|> is text.");
ABSL_FLAG(int64_t, max_tokens, 100, "Tokens to generate at most.");
ABSL_FLAG(int32_t, samples, 1, "How many answers.");
ABSL_FLAG(double, temperature, 0.8, "Logits are divided by it; 0: the most probable token.");
ABSL_FLAG(int32_t, top_k, 0, "Draw from the k most probable tokens; 0: from all.");
ABSL_FLAG(double, top_p, 1,
          "Then from as few of the most probable as together have this probability.");
ABSL_FLAG(int64_t, seed, 0, "Seed of the first answer; the next ones count up.");
ABSL_FLAG(bool, kv_cache, true,
          "Keep keys and values; false: run the whole text again for each token.");
ABSL_FLAG(bool, compare_cache, false,
          "Then compute the last answer's logits with and without the cache: prints both speeds "
          "and the largest difference to standard error.");
ABSL_FLAG(int32_t, threads, 0, "CPU threads; 0: one a core.");

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

absl::Status CheckFlags(const GenerateOptions& options) {
  ABSL_RETURN_IF_ERROR(Validate(options.sampling));
  if (absl::GetFlag(FLAGS_model).empty()) {
    return absl::InvalidArgumentError(
        "--model: give an --out_dir of track1 or track2, or a model.safetensors");
  }
  if (options.max_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_tokens=", options.max_tokens, ": must be positive"));
  }
  if (absl::GetFlag(FLAGS_samples) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--samples=", absl::GetFlag(FLAGS_samples), ": must be positive"));
  }
  if (absl::GetFlag(FLAGS_threads) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--threads=", absl::GetFlag(FLAGS_threads),
                                                   ": must be positive, or 0 for one a core"));
  }
  return absl::OkStatus();
}

std::string ReadPrompt() {
  std::string prompt = absl::GetFlag(FLAGS_prompt);
  if (prompt != "-") return prompt;
  return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
}

// The longest text that the record itself ever runs in one piece. Positions behind it have
// rotary angles that no weight has met.
absl::Status CheckContext(const Recipe& recipe, int64_t prompt_tokens, int64_t max_tokens) {
  const int64_t most = recipe.data.val_slot_tokens;
  if (prompt_tokens + max_tokens <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a prompt of ", prompt_tokens, " tokens and --max_tokens=", max_tokens, " are more than the ",
      most, " positions of ", recipe.record, ": give a shorter prompt or fewer tokens"));
}

absl::StatusOr<std::unique_ptr<TextModel>> MakeModel(const ModelState& state, bool cache,
                                                     int64_t context_tokens,
                                                     kernels::Queue& queue) {
  if (!cache) {
    return WholeContext::Create(state, context_tokens, kernels::CpuBackend(), queue);
  }
  return Decoder::Create(state, context_tokens, kernels::CpuBackend(), queue);
}

// Prints the tokens as they come, and the time that they took to standard error.
absl::StatusOr<std::vector<int32_t>> Answer(TextModel& model, const TextCodec& codec,
                                            const std::vector<int32_t>& prompt,
                                            const GenerateOptions& options) {
  Utf8Stream stream;
  absl::Status decoded;
  const auto print = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const Clock::time_point start = Clock::now();
  Clock::time_point first = start;
  int64_t drawn = 0;
  ABSL_ASSIGN_OR_RETURN(
      const std::vector<int32_t> answer,
      Generate(model, prompt, codec.bos(), codec.classes(), options, [&](int32_t token) {
        if (++drawn == 1) first = Clock::now();
        const absl::StatusOr<std::string> bytes = codec.Decode(token);
        if (bytes.ok()) return print(stream.Push(*bytes));
        if (decoded.ok()) decoded = bytes.status();
      }));
  const Clock::time_point end = Clock::now();
  print(stream.Finish() + "\n");
  ABSL_RETURN_IF_ERROR(decoded);
  std::fprintf(stderr, "sample: %zu tokens of prompt in %.3f s", prompt.size(),
               Seconds(start, drawn > 0 ? first : end));
  // The last step drew the end of the document, or there were as many tokens as asked for.
  const int64_t later = drawn - 1 + (drawn < options.max_tokens ? 1 : 0);
  if (later > 0) {
    std::fprintf(stderr, ", then %lld tokens in %.3f s: %.1f tokens/s",
                 static_cast<long long>(later), Seconds(first, end),
                 static_cast<double>(later) / Seconds(first, end));
  }
  std::fprintf(stderr, "\n");
  return answer;
}

absl::Status PrintComparison(const ModelState& state, const std::vector<int32_t>& prompt,
                             const std::vector<int32_t>& answer, int64_t context_tokens,
                             kernels::Queue& queue) {
  std::vector<int32_t> tokens = prompt;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  if (static_cast<int64_t>(tokens.size()) > context_tokens) tokens.pop_back();
  ABSL_ASSIGN_OR_RETURN(const auto with, MakeModel(state, true, context_tokens, queue));
  ABSL_ASSIGN_OR_RETURN(const auto without, MakeModel(state, false, context_tokens, queue));
  with->Logits(prompt);
  const CacheComparison result =
      CompareCache(*with, *without, tokens, static_cast<int64_t>(prompt.size()));
  std::fprintf(stderr,
               "sample: %lld tokens with cache: %.1f tokens/s, without: %.1f tokens/s; logits "
               "differ by at most %.4f (the largest is %.2f), the most probable token at %lld\n",
               static_cast<long long>(result.tokens), result.tokens / result.seconds_with,
               result.tokens / result.seconds_without, result.max_difference, result.max_logit,
               static_cast<long long>(result.other_tokens));
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& arguments) {
  ABSL_RETURN_IF_ERROR(NoArguments(arguments));
  GenerateOptions options = {.max_tokens = absl::GetFlag(FLAGS_max_tokens),
                             .sampling = {.temperature = absl::GetFlag(FLAGS_temperature),
                                          .top_k = absl::GetFlag(FLAGS_top_k),
                                          .top_p = absl::GetFlag(FLAGS_top_p)}};
  ABSL_RETURN_IF_ERROR(CheckFlags(options));
  ABSL_RETURN_IF_ERROR(kernels::CheckCpuBackend());
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(absl::GetFlag(FLAGS_threads));
  ABSL_ASSIGN_OR_RETURN(const SavedModel saved,
                        LoadSavedModel(absl::GetFlag(FLAGS_model), kernels::CpuBackend(), *queue));
  ABSL_ASSIGN_OR_RETURN(const TextCodec codec,
                        TextCodec::Create(saved.token_map, absl::GetFlag(FLAGS_merges)));
  const std::string text = ReadPrompt();
  if (const std::string note = EndOfTextNote(text, codec); !note.empty()) {
    std::fprintf(stderr, "sample: %s\n", note.c_str());
  }
  std::vector<int32_t> prompt = {codec.bos()};
  for (int32_t token : codec.Encode(text)) prompt.push_back(token);
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  ABSL_RETURN_IF_ERROR(CheckContext(saved.recipe, prompt_tokens, options.max_tokens));
  const int64_t context_tokens = prompt_tokens + options.max_tokens - 1;
  const ModelState state =
      StateAt(saved.recipe.model, saved.recipe.schedules, saved.step, saved.weights->parameters());
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<TextModel> model,
                        MakeModel(state, absl::GetFlag(FLAGS_kv_cache), context_tokens, *queue));
  std::vector<int32_t> answer;
  for (int32_t i = 0; i < absl::GetFlag(FLAGS_samples); ++i) {
    options.seed = static_cast<uint64_t>(absl::GetFlag(FLAGS_seed) + i);
    std::fwrite(text.data(), 1, text.size(), stdout);
    ABSL_ASSIGN_OR_RETURN(answer, Answer(*model, codec, prompt, options));
  }
  if (!absl::GetFlag(FLAGS_compare_cache)) return absl::OkStatus();
  return PrintComparison(state, prompt, answer, context_tokens, *queue);
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "sample",
      .summary =
          "generates text from a checkpoint, on the CPU. The text goes to standard output "
          "as it comes, in whole characters (bytes that are none become U+FFFD); speeds "
          "go to standard error.",
      .usage = "bazel run //tools/sample -- --model=OUT_DIR [flags]",
      .examples = {{"a continuation",
                    "bazel run //tools/sample -- --model=OUT_DIR --prompt=\"The \""},
                   {"three answers to a file, of the likelier tokens",
                    "bazel run //tools/sample -- --model=OUT_DIR --prompt=- --samples=3 "
                    "--top_k=50 --top_p=0.9 < story.txt"},
                   {"always the most probable token",
                    "bazel run //tools/sample -- --model=OUT_DIR --temperature=0"}},
      .groups = {{"Model", {"model", "merges"}},
                 {"Text", {"prompt", "max_tokens", "samples"}},
                 {"Drawing", {"temperature", "top_k", "top_p", "seed"}},
                 {"Speed", {"kv_cache", "compare_cache", "threads"}}}};
  return tools::RunTool(argc, argv, help, tools::Run);
}
