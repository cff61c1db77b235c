#include "tools/inspect_shard/report_text.h"

#include <algorithm>
#include <cmath>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/bpe/byte_tokens.h"
#include "tools/inspect_shard/histogram.h"

namespace tools {
namespace {

std::string BytesOf(uint16_t token, const data::Bpe* bpe) {
  if (bpe != nullptr) {
    const absl::StatusOr<std::string> bytes = bpe->Decode({token});
    if (bytes.ok()) return *bytes;
  } else if (token < data::kByteTokens) {
    return std::string(1, static_cast<char>(data::kByteOfToken[token]));
  }
  return absl::StrCat("<", token, ">");
}

void AppendLengths(const ShardReport& report, std::string* text) {
  if (report.documents.empty()) return;
  const double mean = static_cast<double>(report.tokens - report.tokens_before_documents) /
                      static_cast<double>(report.documents.size());
  absl::StrAppendFormat(text, "document lengths, BOS included: mean %.1f\n ", mean);
  for (const int percent : {0, 10, 25, 50, 75, 90, 99, 100}) {
    absl::StrAppendFormat(text, "  p%d %d", percent, LengthPercentile(report, percent));
  }
  absl::StrAppend(text, "\n", HistogramText(LengthHistogram(report)));
}

void AppendMostFrequent(const ShardReport& report, const ReportOptions& options,
                        std::string* text) {
  const int64_t distinct = std::count_if(report.counts.begin(), report.counts.end(),
                                         [](int64_t count) { return count > 0; });
  absl::StrAppendFormat(text, "unigram entropy %.4f nats per token, %d distinct tokens",
                        report.unigram_entropy, distinct);
  absl::StrAppend(text, options.top > 0 ? "; the most frequent:\n" : "\n");
  for (const uint16_t token : MostFrequent(report, options.top)) {
    const int64_t count = report.counts[token];
    absl::StrAppendFormat(text, "  %5d  %10d  %6.2f %%  \"%s\"\n", token, count,
                          100.0 * static_cast<double>(count) / static_cast<double>(report.tokens),
                          absl::Utf8SafeCEscape(BytesOf(token, options.bpe)));
  }
}

void AppendDocuments(const data::Shard& shard, const ShardReport& report,
                     const ReportOptions& options, std::string* text) {
  const size_t shown = std::min<size_t>(report.documents.size(), options.documents);
  for (size_t i = 0; i < shown; ++i) {
    const Document& document = report.documents[i];
    const int64_t length = std::min<int64_t>(document.length - 1, options.max_tokens);
    absl::StrAppendFormat(text, "--- document %d, %d tokens from position %d\n", i, document.length,
                          document.begin);
    absl::StrAppend(text,
                    ReadableText(shard.tokens().subspan(document.begin + 1, length), options.bpe),
                    length < document.length - 1 ? "..." : "", "\n");
  }
}

}  // namespace

std::string ReadableText(absl::Span<const uint16_t> tokens, const data::Bpe* bpe) {
  std::string readable;
  for (const uint16_t token : tokens) {
    for (const char c : BytesOf(token, bpe)) {
      const bool control = (static_cast<uint8_t>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
      if (control) {
        absl::StrAppendFormat(&readable, "\\x%02x", static_cast<int>(c));
      } else {
        readable += c;
      }
    }
  }
  return readable;
}

std::string ReportText(const data::Shard& shard, const ShardReport& report,
                       const ReportOptions& options) {
  std::string text = absl::StrFormat("%s\n", shard.path());
  absl::StrAppendFormat(&text, "header: magic %d, version %d, %d tokens in %d bytes\n",
                        data::kShardMagic, data::kShardVersion, report.tokens,
                        data::kShardHeaderBytes + 2 * report.tokens);
  absl::StrAppendFormat(&text, "%d documents; %d tokens before the first\n",
                        report.documents.size(), report.tokens_before_documents);
  AppendLengths(report, &text);
  absl::StrAppend(&text, "tokens by id:\n", HistogramText(IdHistogram(report)));
  AppendMostFrequent(report, options, &text);
  if (options.bpe == nullptr) {
    absl::StrAppend(&text,
                    "(without --merges, GPT-2's vocab.bpe, longer tokens are shown by id)\n");
  }
  AppendDocuments(shard, report, options, &text);
  for (const std::string& fault : report.faults) absl::StrAppend(&text, "FAULT: ", fault, "\n");
  return text;
}

}  // namespace tools
