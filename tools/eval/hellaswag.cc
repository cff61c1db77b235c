#include "tools/eval/hellaswag.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

using Json = nlohmann::json;

// What is wrong with one field; the caller adds file and line.
absl::StatusOr<std::string> TextOf(const Json& value, const std::string& name) {
  if (!value.is_string()) return absl::InvalidArgumentError(name + " is not a text");
  std::string text = value.get<std::string>();
  if (text.empty()) return absl::InvalidArgumentError(name + " is empty");
  return text;
}

absl::StatusOr<int> LabelOf(const Json& object) {
  const auto label = object.find("label");
  if (label == object.end()) {
    return absl::InvalidArgumentError("has no \"label\" (the test split has none; use val)");
  }
  if (label->is_number_integer()) {
    const auto value = label->get<int64_t>();
    if (value >= 0 && value < kEndings) return static_cast<int>(value);
  } else if (label->is_string()) {
    const std::string text = label->get<std::string>();
    if (text.size() == 1 && text[0] >= '0' && text[0] < '0' + kEndings) return text[0] - '0';
  }
  return absl::InvalidArgumentError(absl::StrCat("\"label\" is ", label->dump(), ", not 0 to 3"));
}

absl::StatusOr<HellaSwagExample> ParseLine(const std::string& line) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("is no JSON object");
  HellaSwagExample example;
  for (const char* name : {"ctx", "endings"}) {
    if (!object.contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat("has no \"", name, "\""));
    }
  }
  ABSL_ASSIGN_OR_RETURN(example.context, TextOf(object["ctx"], "\"ctx\""));
  const Json& endings = object["endings"];
  if (!endings.is_array() || endings.size() != kEndings) {
    return absl::InvalidArgumentError("\"endings\" is no list of 4 texts");
  }
  for (int i = 0; i < kEndings; ++i) {
    ABSL_ASSIGN_OR_RETURN(example.endings[i], TextOf(endings[i], absl::StrCat("ending ", i)));
  }
  ABSL_ASSIGN_OR_RETURN(example.label, LabelOf(object));
  return example;
}

// Every character has one byte that does not continue another; JSON texts are well-formed UTF-8.
int64_t Characters(const std::string& utf8) {
  return std::count_if(utf8.begin(), utf8.end(),
                       [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

template <typename F>
int FirstOfLeast(const F& loss) {
  int least = 0;
  for (int i = 1; i < kEndings; ++i) {
    if (loss(i) < loss(least)) least = i;
  }
  return least;
}

}  // namespace

absl::StatusOr<std::vector<HellaSwagExample>> ReadHellaSwag(const std::string& path,
                                                            int64_t limit) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("--hellaswag=", path, ": cannot be read: ", std::strerror(errno)));
  }
  std::vector<HellaSwagExample> examples;
  std::string line;
  int64_t blank = 0;  // the first blank line
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (absl::StripAsciiWhitespace(line).empty()) {
      if (blank == 0) blank = number;
      continue;
    }
    if (blank > 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": line ", blank, " is no JSON object: it is blank, and not the file's end"));
    }
    absl::StatusOr<HellaSwagExample> example = ParseLine(line);
    if (!example.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": line ", number, " ", example.status().message()));
    }
    example->line = number;
    examples.push_back(*std::move(example));
    if (limit > 0 && static_cast<int64_t>(examples.size()) == limit) break;
  }
  if (file.bad()) return absl::DataLossError(absl::StrCat(path, ": cannot be read to its end"));
  if (examples.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": has no lines"));
  return examples;
}

HellaSwagTokens Tokenize(const HellaSwagExample& example, const TextCodec& codec, bool bos) {
  HellaSwagTokens tokens;
  if (bos) tokens.context.push_back(codec.bos());
  for (int32_t token : codec.Encode(example.context)) tokens.context.push_back(token);
  for (int i = 0; i < kEndings; ++i) {
    tokens.endings[i] = codec.Encode(" " + example.endings[i]);
    tokens.characters[i] = Characters(example.endings[i]);
  }
  return tokens;
}

int64_t ContextTokens(const HellaSwagTokens& tokens) {
  size_t longest = 0;
  for (const std::vector<int32_t>& ending : tokens.endings) {
    longest = std::max(longest, ending.size());
  }
  return static_cast<int64_t>(tokens.context.size() + longest) - 1;
}

EndingLosses ScoreEndings(TextModel& model, const HellaSwagTokens& tokens) {
  EndingLosses losses;
  losses.characters = tokens.characters;
  for (int i = 0; i < kEndings; ++i) {
    std::vector<int32_t> all = tokens.context;
    all.insert(all.end(), tokens.endings[i].begin(), tokens.endings[i].end());
    losses.sum[i] = 0;
    losses.tokens[i] = static_cast<int64_t>(tokens.endings[i].size());
    const std::vector<float> nats = model.Losses(all, static_cast<int64_t>(tokens.context.size()));
    CHECK_EQ(nats.size(), tokens.endings[i].size());
    for (float loss : nats) losses.sum[i] += loss;
  }
  return losses;
}

int LeastLoss(const EndingLosses& losses) {
  return FirstOfLeast([&](int i) { return losses.sum[i]; });
}
int LeastLossPerToken(const EndingLosses& losses) {
  return FirstOfLeast([&](int i) { return losses.sum[i] / losses.tokens[i]; });
}
int LeastLossPerCharacter(const EndingLosses& losses) {
  return FirstOfLeast([&](int i) { return losses.sum[i] / losses.characters[i]; });
}

void HellaSwagScore::Add(const EndingLosses& losses, int label) {
  ++examples;
  right += LeastLoss(losses) == label;
  right_per_token += LeastLossPerToken(losses) == label;
  right_per_character += LeastLossPerCharacter(losses) == label;
}

}  // namespace tools
