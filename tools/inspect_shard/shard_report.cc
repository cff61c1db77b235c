#include "tools/inspect_shard/shard_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "data/token_map.h"
#include "data/unigram.h"
#include "third_party/absl_compat/check.h"

namespace tools {
namespace {

constexpr int64_t kPossibleIds = 65536;

std::vector<Document> FindDocuments(absl::Span<const uint16_t> tokens) {
  std::vector<Document> documents;
  const int64_t size = static_cast<int64_t>(tokens.size());
  for (int64_t i = 0; i < size; ++i) {
    if (tokens[i] == data::kGpt2Bos) documents.push_back({i, 0});
    if (!documents.empty()) ++documents.back().length;
  }
  return documents;
}

void AddVocabularyFault(absl::Span<const uint16_t> tokens, int64_t vocab_size,
                        ShardReport* report) {
  const auto outside = [vocab_size](uint16_t token) { return token >= vocab_size; };
  const auto first = std::find_if(tokens.begin(), tokens.end(), outside);
  if (first == tokens.end()) return;
  report->faults.push_back(absl::StrCat(
      std::count_if(first, tokens.end(), outside), " tokens are outside the vocabulary of ",
      vocab_size, ", the first ", *first, " at position ", first - tokens.begin(),
      "; use shards of GPT-2 tokens, or give the --vocab_size that they were made with"));
}

}  // namespace

ShardReport Inspect(const data::Shard& shard, int64_t vocab_size) {
  const absl::Span<const uint16_t> tokens = shard.tokens();
  ShardReport report = {};
  report.tokens = static_cast<int64_t>(tokens.size());
  report.documents = FindDocuments(tokens);
  report.tokens_before_documents =
      report.documents.empty() ? report.tokens : report.documents.front().begin;
  report.counts.resize(kPossibleIds);
  for (const uint16_t token : tokens) ++report.counts[token];
  report.unigram_entropy = data::UnigramEntropy(shard);
  AddVocabularyFault(tokens, vocab_size, &report);
  if (report.documents.empty()) {
    report.faults.push_back(absl::StrCat("none of the ", report.tokens, " tokens is BOS (",
                                         data::kGpt2Bos,
                                         "), so there are no documents; put it before each one"));
  }
  return report;
}

int64_t LengthPercentile(const ShardReport& report, int percent) {
  CHECK(percent >= 0 && percent <= 100) << percent;
  CHECK(!report.documents.empty());
  std::vector<int64_t> lengths;
  for (const Document& document : report.documents) lengths.push_back(document.length);
  const int64_t size = static_cast<int64_t>(lengths.size());
  const int64_t rank = std::max<int64_t>(1, (size * percent + 99) / 100);
  std::nth_element(lengths.begin(), lengths.begin() + rank - 1, lengths.end());
  return lengths[rank - 1];
}

std::vector<uint16_t> MostFrequent(const ShardReport& report, int count) {
  std::vector<uint16_t> ids;
  for (int64_t id = 0; id < kPossibleIds; ++id) {
    if (report.counts[id] > 0) ids.push_back(static_cast<uint16_t>(id));
  }
  std::stable_sort(ids.begin(), ids.end(), [&report](uint16_t a, uint16_t b) {
    return report.counts[a] > report.counts[b];
  });
  if (ids.size() > static_cast<size_t>(count)) ids.resize(count);
  return ids;
}

}  // namespace tools
