#include "tools/eval/hellaswag.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/testing.h"
#include "tools/recipes/recipe.h"
#include "tools/sample/decoder.h"
#include "tools/sample/whole_context.h"
#include "tools/trainer/test_run.h"

namespace tools {
namespace {

constexpr char kFile[] = "tools/eval/testdata/endings.jsonl";

TextCodec Bytes() { return *TextCodec::Create(data::TokenMap::ByteVocabulary(), ""); }

TEST(ReadHellaSwag, TheCommittedFile) {
  const auto examples = ReadHellaSwag(kFile, 0);
  ASSERT_TRUE(examples.ok()) << examples.status();
  ASSERT_EQ(examples->size(), 3u);
  EXPECT_EQ((*examples)[0].context, "The kettle began to whistle, so she");
  EXPECT_EQ((*examples)[0].endings[3], "dug.");
  EXPECT_EQ((*examples)[0].label, 0);
  EXPECT_EQ((*examples)[1].label, 2);
  EXPECT_EQ((*examples)[1].endings[2], "n\xC3\xA9 \xC3\xA0 \xE4\xB8\x8A\xE6\xB5\xB7");
  EXPECT_EQ((*examples)[2].line, 3);
  EXPECT_EQ(ReadHellaSwag(kFile, 2)->size(), 2u);
}

std::string Message(const std::string& text) {
  const std::string path = testing::TempDir() + "/bad.jsonl";
  std::ofstream(path) << text;
  const auto examples = ReadHellaSwag(path, 0);
  EXPECT_EQ(examples.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(examples.status().message());
}

TEST(ReadHellaSwag, SaysWhichLineIsWrongAndHow) {
  const std::string good = R"({"ctx": "a", "endings": ["b", "c", "d", "e"], "label": 1})"
                           "\n";
  const struct {
    std::string line, want;
  } cases[] = {
      {"not json", "line 2 is no JSON object"},
      {"", "line 2 is no JSON object"},
      {R"(["ctx"])", "line 2 is no JSON object"},
      {R"({"endings": ["b", "c", "d", "e"], "label": 1})", "line 2 has no \"ctx\""},
      {R"({"ctx": 3, "endings": ["b", "c", "d", "e"], "label": 1})", "\"ctx\" is not a text"},
      {R"({"ctx": "", "endings": ["b", "c", "d", "e"], "label": 1})", "\"ctx\" is empty"},
      {R"({"ctx": "a", "endings": ["b", "c", "d"], "label": 1})", "no list of 4"},
      {R"({"ctx": "a", "endings": ["b", "", "d", "e"], "label": 1})", "ending 1 is empty"},
      {R"({"ctx": "a", "endings": ["b", "c", "d", "e"]})", "has no \"label\""},
      {R"({"ctx": "a", "endings": ["b", "c", "d", "e"], "label": 4})", "\"label\" is 4"},
      {R"({"ctx": "a", "endings": ["b", "c", "d", "e"], "label": "x"})", "\"label\" is \"x\""},
      {R"({"ctx": "a", "endings": ["b", "c", "d", "e"], "label": 1.5})", "\"label\" is 1.5"},
  };
  for (const auto& [line, want] : cases) {
    const std::string message = Message(good + line + "\n" + good);
    EXPECT_NE(message.find(want), std::string::npos) << message;
    EXPECT_NE(message.find("line 2"), std::string::npos) << message;
  }
  EXPECT_NE(Message("").find("has no lines"), std::string::npos);
  EXPECT_EQ(ReadHellaSwag("/no/such.jsonl", 0).status().code(), absl::StatusCode::kNotFound);
}

TEST(ReadHellaSwag, K2_13_BlankLinesAtTheEndArePassedOver) {
  const std::string path = testing::TempDir() + "/blank_end.jsonl";
  const std::string line = R"({"ctx": "a", "endings": ["b", "c", "d", "e"], "label": 1})";
  for (const char* end : {"\n", "\n\n", "\r\n\r\n", "\n \t\n\n"}) {
    std::ofstream(path) << "\xEF\xBB\xBF" << line << "\n" << line << end;
    const auto examples = ReadHellaSwag(path, 0);
    ASSERT_TRUE(examples.ok()) << examples.status();
    EXPECT_EQ(examples->size(), 2u);
    EXPECT_EQ(examples->back().line, 2);
  }
  EXPECT_NE(Message(line + "\n\n\n" + line + "\n").find("line 2 is no JSON object: it is blank"),
            std::string::npos);
  EXPECT_NE(Message("\n \n").find("has no lines"), std::string::npos);
}

TEST(Tokenize, EndingsBeginWithASpaceOfTheirOwn) {
  const HellaSwagExample example = {
      .line = 1, .context = "ab", .endings = {"c", "d\xC3\xA9", "e", "f"}, .label = 0};
  const HellaSwagTokens tokens = Tokenize(example, Bytes(), true);
  EXPECT_EQ(tokens.context.size(), 3u);
  EXPECT_EQ(tokens.context[0], Bytes().bos());
  EXPECT_EQ(tokens.endings[0], Bytes().Encode(" c"));
  EXPECT_EQ(tokens.endings[1].size(), 4u);
  EXPECT_EQ(tokens.characters[1], 2);
  EXPECT_EQ(ContextTokens(tokens), 3 + 4 - 1);
  EXPECT_EQ(Tokenize(example, Bytes(), false).context, Bytes().Encode("ab"));
}

TEST(LeastLoss, InAllAndATokenAndACharacter) {
  const EndingLosses losses = {
      .sum = {6, 4, 9, 4}, .tokens = {3, 1, 5, 1}, .characters = {3, 4, 6, 5}};
  EXPECT_EQ(LeastLoss(losses), 1);              // 4, before the other 4
  EXPECT_EQ(LeastLossPerToken(losses), 2);      // 2, 4, 1.8, 4
  EXPECT_EQ(LeastLossPerCharacter(losses), 3);  // 2, 1, 1.5, 0.8
  HellaSwagScore score;
  for (int label : {1, 2, 3}) score.Add(losses, label);
  score.Add(losses, 0);
  EXPECT_EQ(score.examples, 4);
  EXPECT_EQ(score.right, 1);
  EXPECT_EQ(score.right_per_token, 1);
  EXPECT_EQ(score.right_per_character, 1);
  EXPECT_EQ(score.Accuracy(score.right), 0.25);
}

class ScoreTest : public testing::TestWithParam<const char*> {};

// log softmax of the logits of whole passes, one a token, in float64.
double PlainLoss(WholeContext& model, const std::vector<int32_t>& context,
                 const std::vector<int32_t>& ending) {
  std::vector<int32_t> tokens = context;
  double sum = 0;
  for (int32_t token : ending) {
    const std::vector<float> logits = model.Logits(tokens);
    double exponentials = 0;
    for (float logit : logits) exponentials += std::exp(double{logit});
    sum += std::log(exponentials) - logits[token];
    tokens.push_back(token);
  }
  return sum;
}

TEST_P(ScoreTest, LossesAreThoseOfAFullPassForEachEnding) {
  const auto queue = kernels::MakeCpuQueue(2);
  const Recipe recipe = *FindRecipe(GetParam(), "demo", 384);
  const auto weights = model::testing::MakeWeights(recipe.model, 0);
  model::testing::SetHashedWeights(recipe.model, *weights, *queue);
  const ModelState state = StateAt(recipe.model, recipe.schedules, 0, weights->parameters());
  const auto examples = *ReadHellaSwag(kFile, 0);
  constexpr int64_t kContext = 128;
  const auto whole = *WholeContext::Create(state, kContext, kernels::CpuBackend(), *queue);
  const auto decoder = *Decoder::Create(state, kContext, kernels::CpuBackend(), *queue);
  for (const HellaSwagExample& example : examples) {
    const HellaSwagTokens tokens = Tokenize(example, Bytes(), true);
    ASSERT_LE(ContextTokens(tokens), kContext);
    const EndingLosses with = ScoreEndings(*decoder, tokens);
    const EndingLosses without = ScoreEndings(*whole, tokens);
    for (int i = 0; i < kEndings; ++i) {
      // A token's loss moves by what a rounding to bf16 in a hidden state moves logits: see
      // DecoderTest; signs mix, and the sum of some tokens stays below.
      EXPECT_NEAR(with.sum[i], without.sum[i], 0.05 * with.tokens[i]) << example.line << ", " << i;
      if (example.line == 3 || i == 3) {  // the short ones
        EXPECT_NEAR(without.sum[i], PlainLoss(*whole, tokens.context, tokens.endings[i]),
                    1e-4 * with.tokens[i])
            << example.line << ", " << i;
      }
      EXPECT_EQ(with.tokens[i], static_cast<int64_t>(tokens.endings[i].size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Records, ScoreTest, AllRecords(), RecordName);

}  // namespace
}  // namespace tools
