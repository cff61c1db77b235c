// Generates text from a checkpoint.
//
//   bazel run //tools/sample -- --model=OUT_DIR --prompt="The " --temperature=0.8
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "data/bpe/bpe.h"
#include "data/bpe/byte_tokens.h"
#include "kernels/cpu/cpu_backend.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/command_line.h"
#include "tools/sample/sampler.h"
#include "tools/sample/saved_model.h"

ABSL_FLAG(std::string, model, "",
          "An --out_dir, a checkpoint's folder, or a model.safetensors that track1 wrote.");
ABSL_FLAG(std::string, merges, "", "GPT-2's vocab.bpe; needed for models of GPT-2 tokens.");
ABSL_FLAG(std::string, prompt, "", "Text to continue; empty: a new document.");
ABSL_FLAG(int32_t, max_tokens, 100, "Tokens to generate at most.");
ABSL_FLAG(int32_t, samples, 1, "How many answers.");
ABSL_FLAG(double, temperature, 0.8, "0: greedy.");
ABSL_FLAG(int64_t, seed, 0, "Seed of the first answer; the next ones count up.");

namespace tools {
namespace {

// Text to the model's tokens and back.
class Codec {
 public:
  static absl::StatusOr<Codec> Create(const data::TokenMap& map, const std::string& merges) {
    Codec codec(map);
    if (map.is_identity()) {
      if (merges.empty()) {
        return absl::InvalidArgumentError(
            "this model has GPT-2 tokens: give --merges=vocab.bpe, GPT-2's merges file");
      }
      ABSL_ASSIGN_OR_RETURN(codec.bpe_, data::Bpe::Load(merges));
    }
    return codec;
  }

  std::vector<int32_t> Encode(const std::string& text) const {
    std::vector<int32_t> tokens = {map_.bos()};
    if (bpe_) {
      for (uint16_t token : bpe_->Encode(text)) tokens.push_back(token);
    } else {
      for (unsigned char byte : text) tokens.push_back(data::kTokenOfByte[byte]);
    }
    return tokens;
  }

  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& tokens) const {
    if (bpe_) return bpe_->Decode(std::vector<uint16_t>(tokens.begin(), tokens.end()));
    std::string text;
    for (int32_t token : tokens) text += static_cast<char>(data::kByteOfToken[token]);
    return text;
  }

 private:
  explicit Codec(const data::TokenMap& map) : map_(map) {}

  data::TokenMap map_;
  std::optional<data::Bpe> bpe_;
};

absl::Status Run(const std::vector<std::string>& arguments) {
  ABSL_RETURN_IF_ERROR(NoArguments(arguments));
  const std::string path = absl::GetFlag(FLAGS_model);
  if (path.empty()) {
    return absl::InvalidArgumentError(
        "--model: give an --out_dir of track1, or a model.safetensors");
  }
  const int32_t max_tokens = absl::GetFlag(FLAGS_max_tokens);
  if (max_tokens < 1 || max_tokens > 1'000'000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_tokens=", max_tokens, ": must be from 1 to 1000000"));
  }
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue();
  ABSL_ASSIGN_OR_RETURN(const SavedModel saved,
                        LoadSavedModel(path, kernels::CpuBackend(), *queue));
  ABSL_ASSIGN_OR_RETURN(const Codec codec,
                        Codec::Create(saved.token_map, absl::GetFlag(FLAGS_merges)));
  const std::string prompt = absl::GetFlag(FLAGS_prompt);
  const std::vector<int32_t> tokens = codec.Encode(prompt);
  ABSL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Sampler> sampler,
      Sampler::Create(saved.recipe.model, saved.recipe.schedules, saved.step,
                      saved.weights->parameters(), static_cast<int64_t>(tokens.size()) + max_tokens,
                      static_cast<int32_t>(saved.token_map.vocab_size()), kernels::CpuBackend(),
                      *queue));
  for (int32_t i = 0; i < absl::GetFlag(FLAGS_samples); ++i) {
    ABSL_ASSIGN_OR_RETURN(
        const std::vector<int32_t> answer,
        sampler->Generate(tokens, saved.token_map.bos(),
                          {.max_tokens = max_tokens,
                           .temperature = absl::GetFlag(FLAGS_temperature),
                           .seed = static_cast<uint64_t>(absl::GetFlag(FLAGS_seed) + i)}));
    ABSL_ASSIGN_OR_RETURN(const std::string text, codec.Decode(answer));
    std::printf("%s%s\n", prompt.c_str(), text.c_str());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "sample",
      .summary = "generates text from a checkpoint.",
      .usage = "bazel run //tools/sample -- --model=OUT_DIR [flags]",
      .examples = {{"a continuation",
                    "bazel run //tools/sample -- --model=OUT_DIR --prompt=\"The \""}},
      .groups = {{"Model", {"model", "merges"}},
                 {"Text", {"prompt", "max_tokens", "samples", "temperature", "seed"}}}};
  return tools::RunTool(argc, argv, help, tools::Run);
}
