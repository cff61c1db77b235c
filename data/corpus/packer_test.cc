#include "data/corpus/packer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/bpe/byte_tokens.h"
#include "data/token_map.h"
#include "gtest/gtest.h"

namespace data {
namespace {

using Strings = std::vector<std::string>;

// The documents of a part, decoded.
Strings Decode(const PackedCorpus::Part& part) {
  Strings documents;
  for (const uint16_t token : part.tokens) {
    if (token == kGpt2Bos) {
      documents.emplace_back();
    } else {
      documents.back() += static_cast<char>(kByteOfToken.at(token));
    }
  }
  return documents;
}

Strings Numbered(int count) {
  Strings documents;
  for (int i = 0; i < count; ++i) documents.push_back(absl::StrCat("number ", i, "\n"));
  return documents;
}

TEST(SplitFortunes, LinesOfOnePercentSignSeparate) {
  EXPECT_EQ(SplitFortunes("a\nb\n%\nc\n%\n"), (Strings{"a\nb\n", "c\n"}));
  EXPECT_EQ(SplitFortunes("100 %\n%%\n %\n%\nc\n"), (Strings{"100 %\n%%\n %\n", "c\n"}));
}

TEST(SplitFortunes, LastDocumentNeedsNoSeparatorAndNoNewline) {
  EXPECT_EQ(SplitFortunes("a\n%\nb"), (Strings{"a\n", "b\n"}));
}

TEST(SplitFortunes, SkipsBlankDocumentsAndKeepsBlankLines) {
  EXPECT_EQ(SplitFortunes("%\n%\n \t\n\n%\n\na\n\n%\n%"), (Strings{"\na\n\n"}));
  EXPECT_EQ(SplitFortunes(""), Strings{});
}

TEST(Pack, EveryByteComesBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const PackedCorpus packed = Pack({all, "plain text\n"});
  Strings documents = Decode(packed.train);
  for (const std::string& document : Decode(packed.val)) documents.push_back(document);
  std::sort(documents.begin(), documents.end());
  EXPECT_EQ(documents, (Strings{all, "plain text\n"}));
  EXPECT_EQ(packed.train.documents + packed.val.documents, 2);
}

TEST(Pack, OrderOfInputsAndDuplicatesDoNotMatter) {
  const PackedCorpus expected = Pack(Numbered(500));
  Strings shuffled = Numbered(500);
  std::reverse(shuffled.begin(), shuffled.end());
  for (int i = 0; i < 500; i += 3) shuffled.push_back(absl::StrCat("number ", i, "\n"));
  const PackedCorpus packed = Pack(shuffled);
  EXPECT_EQ(packed.train.tokens, expected.train.tokens);
  EXPECT_EQ(packed.val.tokens, expected.val.tokens);
  EXPECT_EQ(packed.train.documents + packed.val.documents, 500);
}

// The bytes of the built shards must be the same on every machine: so must this order be.
TEST(Pack, OrderIsFixed) {
  EXPECT_EQ(Decode(Pack(Numbered(6)).train), (Strings{"number 0\n", "number 5\n", "number 3\n",
                                                      "number 4\n", "number 2\n", "number 1\n"}));
}

TEST(Pack, OneInTwentyIsForValidation) {
  const PackedCorpus packed = Pack(Numbered(4000));
  // Binomial: 200 expected, standard deviation 14; the bound is over 5 of them.
  EXPECT_NEAR(packed.val.documents, 200, 75);
  EXPECT_EQ(packed.train.documents, 4000 - packed.val.documents);
}

TEST(Pack, NewDocumentMovesNoOtherOneToTheOtherPart) {
  Strings documents = Numbered(400);
  const Strings before = Decode(Pack(documents).val);
  documents.push_back("new\n");
  Strings after = Decode(Pack(documents).val);
  after.erase(std::remove(after.begin(), after.end(), "new\n"), after.end());
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace data
