// A shard's report as text for people.
#ifndef TOOLS_INSPECT_SHARD_REPORT_TEXT_H_
#define TOOLS_INSPECT_SHARD_REPORT_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "data/bpe/bpe.h"
#include "data/shard.h"
#include "tools/inspect_shard/shard_report.h"

namespace tools {

struct ReportOptions {
  int top = 10;                    // most frequent tokens to list
  int documents = 3;               // first documents to show
  int max_tokens = 200;            // of each document shown
  const data::Bpe* bpe = nullptr;  // null: only single-byte tokens are known
};

// The text of the tokens, safe to print: "<17>" for an id that is not known, "\x1b" for a control
// character other than newline and tab.
std::string ReadableText(absl::Span<const uint16_t> tokens, const data::Bpe* bpe);

std::string ReportText(const data::Shard& shard, const ShardReport& report,
                       const ReportOptions& options);

}  // namespace tools

#endif  // TOOLS_INSPECT_SHARD_REPORT_TEXT_H_
