#include "data/corpus/demo_corpus.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/bpe/byte_tokens.h"
#include "data/corpus/packer.h"
#include "data/shard.h"
#include "data/token_map.h"
#include "gtest/gtest.h"

namespace data {
namespace {

std::vector<std::string> Decode(const Shard& shard) {
  std::vector<std::string> documents;
  for (const uint16_t token : shard.tokens()) {
    if (token == kGpt2Bos) {
      documents.emplace_back();
    } else {
      documents.back() += static_cast<char>(kByteOfToken.at(token));
    }
  }
  return documents;
}

class DemoCorpusTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<DemoCorpus> corpus = FindDemoCorpus();
    if (!FORTUNES_AVAILABLE) {  // the build defines it
      EXPECT_EQ(corpus.status().code(), absl::StatusCode::kNotFound);
      EXPECT_NE(corpus.status().message().find("install Debian's package fortunes"),
                std::string::npos)
          << corpus.status();
      GTEST_SKIP() << "The texts were absent at build time.";
    }
    ASSERT_TRUE(corpus.ok()) << corpus.status();
    absl::StatusOr<Shard> train = Shard::Open(corpus->train);
    ASSERT_TRUE(train.ok()) << train.status();
    absl::StatusOr<Shard> val = Shard::Open(corpus->val);
    ASSERT_TRUE(val.ok()) << val.status();
    shards_.push_back(*std::move(train));
    shards_.push_back(*std::move(val));
  }

  const Shard& train() const { return shards_[0]; }
  const Shard& val() const { return shards_[1]; }

  std::vector<Shard> shards_;
};

TEST_F(DemoCorpusTest, HoldsManyDocumentsOfByteTokens) {
  for (const Shard* shard : {&train(), &val()}) {
    EXPECT_EQ(shard->tokens().front(), kGpt2Bos) << shard->path();
    const absl::Status status = TokenMap::ByteVocabulary().CheckTokens(*shard);
    EXPECT_TRUE(status.ok()) << status;
  }
  // Debian's fortunes are more than 15,000.
  EXPECT_GT(Decode(train()).size() + Decode(val()).size(), 10000u);
}

TEST_F(DemoCorpusTest, NoValidationDocumentIsTrainedOn) {
  const std::vector<std::string> documents = Decode(train());
  const std::set<std::string> trained(documents.begin(), documents.end());
  EXPECT_EQ(trained.size(), documents.size());
  for (const std::string& document : Decode(val())) EXPECT_EQ(trained.count(document), 0u);
}

TEST_F(DemoCorpusTest, PackingItsTextAgainGivesTheSameTokens) {
  std::vector<std::string> documents = Decode(val());
  for (std::string& document : Decode(train())) documents.push_back(std::move(document));
  const PackedCorpus packed = Pack(std::move(documents));
  EXPECT_TRUE(absl::MakeConstSpan(packed.train.tokens) == train().tokens());
  EXPECT_TRUE(absl::MakeConstSpan(packed.val.tokens) == val().tokens());
}

}  // namespace
}  // namespace data
