#include "tools/export_hf/tokenizer_files.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "data/bpe/bpe.h"
#include "data/bpe/byte_tokens.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/checkpoint/files.h"

namespace tools {
namespace {

using nlohmann::json;

constexpr char kEndOfText[] = "<|endoftext|>";
constexpr int kGpt2Merges = 50'000;

// The character that stands for a byte in GPT-2's files: printable ones for themselves, the others
// for those from U+0100 on, in the order of their tokens.
std::string CharacterOfToken(int token) {
  const int byte = data::kByteOfToken[token];
  const int printable = 188;
  const int code = token < printable ? byte : 256 + token - printable;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

using Merges = std::vector<std::pair<std::string, std::string>>;

// Of a file that Bpe::Load has read.
Merges ParseMerges(const std::string& text) {
  Merges merges;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (merges.empty() && absl::StartsWith(line, "#version")) continue;
    const std::vector<std::string> parts = absl::StrSplit(line, ' ');
    CHECK_EQ(parts.size(), 2u) << line;
    merges.emplace_back(parts[0], parts[1]);
  }
  return merges;
}

json ByteLevel() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", true}};
}

// Puts the end of the text before into the front of each.
json PostProcessor(int64_t end_of_text) {
  const json special = {{"SpecialToken", {{"id", kEndOfText}, {"type_id", 0}}}};
  const auto text = [](const char* name) -> json {
    return {{"Sequence", {{"id", name}, {"type_id", 0}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", json::array({special, text("A")})},
          {"pair", json::array({special, text("A"), special, text("B")})},
          {"special_tokens",
           {{kEndOfText, {{"id", kEndOfText}, {"ids", {end_of_text}}, {"tokens", {kEndOfText}}}}}}};
}

std::string TokenizerJson(const Merges& merges) {
  json vocab = json::object(), pairs = json::array();
  int64_t next = 0;
  for (; next < data::kByteTokens; ++next) vocab[CharacterOfToken(static_cast<int>(next))] = next;
  for (const auto& [left, right] : merges) {
    vocab[left + right] = next++;
    pairs.push_back({left, right});
  }
  vocab[kEndOfText] = next;
  const json out = {{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", json::array({{{"id", next},
                                                   {"content", kEndOfText},
                                                   {"single_word", false},
                                                   {"lstrip", false},
                                                   {"rstrip", false},
                                                   {"normalized", false},
                                                   {"special", true}}})},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", ByteLevel()},
                    {"post_processor", PostProcessor(next)},
                    {"decoder", ByteLevel()},
                    {"model",
                     {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"vocab", vocab},
                      {"merges", pairs}}}};
  return out.dump() + "\n";
}

}  // namespace

absl::StatusOr<std::string> Gpt2TokenizerJson(const std::string& merges_path) {
  ABSL_ASSIGN_OR_RETURN(const data::Bpe bpe, data::Bpe::Load(merges_path));
  if (bpe.merges() != kGpt2Merges) {
    return absl::InvalidArgumentError(absl::StrCat(merges_path, ": ", bpe.merges(),
                                                   " merges; GPT-2's vocab.bpe has ", kGpt2Merges));
  }
  ABSL_ASSIGN_OR_RETURN(const std::string text, ReadFile(merges_path));
  return TokenizerJson(ParseMerges(text));
}

std::string ByteTokenizerJson() { return TokenizerJson({}); }

std::string TokenizerConfigJson() {
  const json out = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                    {"bos_token", kEndOfText},
                    {"eos_token", kEndOfText},
                    {"pad_token", kEndOfText},
                    {"padding_side", "left"},
                    {"clean_up_tokenization_spaces", false},
                    {"model_input_names", {"input_ids", "attention_mask"}}};
  return out.dump(2) + "\n";
}

}  // namespace tools
