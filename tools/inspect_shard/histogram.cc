#include "tools/inspect_shard/histogram.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/bpe/byte_tokens.h"
#include "data/token_map.h"

namespace tools {
namespace {

std::string RangeLabel(int64_t first, int64_t last) {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
}

}  // namespace

std::vector<Bin> IdHistogram(const ShardReport& report) {
  std::vector<Bin> bins;
  const auto add = [&](int64_t first, int64_t end, const char* name) {
    bins.push_back(
        {absl::StrCat(RangeLabel(first, end - 1), name),
         std::accumulate(report.counts.begin() + first, report.counts.begin() + end, int64_t{0})});
  };
  add(0, data::kByteTokens, " single bytes");
  for (int64_t first = data::kByteTokens; first < data::kGpt2Bos; first *= 4) {
    add(first, std::min<int64_t>(4 * first, data::kGpt2Bos), "");
  }
  add(data::kGpt2Bos, data::kGpt2Bos + 1, " end-of-text");
  add(data::kGpt2Bos + 1, static_cast<int64_t>(report.counts.size()), " beyond GPT-2");
  if (bins.back().count == 0) bins.pop_back();
  return bins;
}

std::vector<Bin> LengthHistogram(const ShardReport& report) {
  std::vector<int64_t> counts;
  for (const Document& document : report.documents) {
    size_t bin = 0;
    while (document.length >> (bin + 1) > 0) ++bin;
    if (bin >= counts.size()) counts.resize(bin + 1);
    ++counts[bin];
  }
  std::vector<Bin> bins;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (bins.empty() && counts[i] == 0) continue;
    bins.push_back({RangeLabel(int64_t{1} << i, (int64_t{2} << i) - 1), counts[i]});
  }
  return bins;
}

std::string HistogramText(const std::vector<Bin>& bins) {
  constexpr int64_t kWidth = 40;
  int64_t most = 1, all = 0;
  for (const Bin& bin : bins) {
    most = std::max(most, bin.count);
    all += bin.count;
  }
  std::string text;
  for (const Bin& bin : bins) {
    // Rounded up, so that a bar tells few from none.
    const std::string bar((kWidth * bin.count + most - 1) / most, '#');
    absl::StrAppendFormat(
        &text, "  %-24s %10d  %6.2f %%%s%s\n", bin.label, bin.count,
        all > 0 ? 100.0 * static_cast<double>(bin.count) / static_cast<double>(all) : 0.0,
        bar.empty() ? "" : "  ", bar);
  }
  return text;
}

}  // namespace tools
