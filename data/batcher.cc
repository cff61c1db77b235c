#include "data/batcher.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace data {
namespace {

SlotBatch BuildSlot(const BatchOptions& options, const std::vector<Piece>& pieces,
                    absl::Span<const uint16_t> tokens, const TokenMap& map) {
  const int64_t slot_tokens = options.slot_tokens;
  std::vector<int32_t> buffer;
  buffer.reserve(slot_tokens + 1);
  SlotBatch slot;
  slot.boundaries.reserve(MaxDocuments(options));
  for (const Piece& piece : pieces) {
    slot.boundaries.push_back(static_cast<int32_t>(buffer.size()));
    for (int64_t at = piece.begin; at < piece.end; ++at) buffer.push_back(*map.Map(tokens[at]));
  }
  CHECK_EQ(static_cast<int64_t>(buffer.size()), slot_tokens + 1);
  CHECK_LT(static_cast<int64_t>(slot.boundaries.size()), MaxDocuments(options));
  // The last token is a target only, so the last document ends at T, like the filler.
  slot.boundaries.resize(MaxDocuments(options), static_cast<int32_t>(slot_tokens));
  slot.targets.assign(buffer.begin() + 1, buffer.end());
  buffer.pop_back();
  slot.inputs = std::move(buffer);
  return slot;
}

absl::Status TooManyDocuments(const BatchOptions& options, int slot, const std::string& start) {
  const int64_t length = MaxDocuments(options);
  return absl::InvalidArgumentError(absl::StrCat(
      "slot ", slot, " of the batch that starts at ", start, " has more than ", length - 1,
      " documents in ", options.slot_tokens, " tokens, the most that its boundaries table of ",
      length, " entries can hold; raise the recipe's max_documents"));
}

absl::StatusOr<std::optional<BatchPlan>> PlanStream(const BatchOptions& options,
                                                    absl::Span<const int64_t> bos, int64_t tokens,
                                                    int64_t start) {
  const int64_t batch = options.slots * options.slot_tokens;
  if (start + batch + 1 >= tokens) return std::optional<BatchPlan>();
  BatchPlan plan;
  plan.next_document = start + batch;
  for (int k = 0; k < options.slots; ++k) {
    const int64_t begin = start + k * options.slot_tokens;
    const int64_t end = begin + options.slot_tokens;
    const auto first = std::lower_bound(bos.begin(), bos.end(), begin);
    const auto last = std::lower_bound(first, bos.end(), end);
    // The table has a row for what comes before the first BOS, and one that ends the last document.
    if (1 + (last - first) >= MaxDocuments(options)) {
      return TooManyDocuments(options, k, absl::StrCat("token ", start));
    }
    const bool fragment = first == bos.end() || *first != begin;
    plan.stats.documents += last - first + (fragment ? 1 : 0);
    plan.slots.push_back({{begin, end + 1}});
  }
  return std::optional<BatchPlan>(std::move(plan));
}

void Count(const Piece& piece, int64_t document_end, int64_t max_doc_len, BatchStats* stats) {
  const int64_t kept_end = std::min(document_end, piece.begin + max_doc_len);
  ++stats->documents;
  if (kept_end < document_end) ++stats->documents_truncated;
  stats->tokens_truncated += document_end - kept_end;
  stats->tokens_cut += kept_end - piece.end;
}

}  // namespace

int64_t DefaultMaxDocuments(int64_t slot_tokens, BatchMode mode) {
  const int64_t per_document = mode == BatchMode::kStream ? 128 : 300;
  // At least one row: even a slot of few tokens holds a document.
  return std::max<int64_t>(1, (slot_tokens / per_document + 127) / 128) * 128;
}

int64_t MaxDocuments(const BatchOptions& options) {
  return options.max_documents > 0 ? options.max_documents
                                   : DefaultMaxDocuments(options.slot_tokens, options.mode);
}

absl::Status ValidateBatchOptions(const BatchOptions& options) {
  const auto check = [](const char* name, int64_t value, int64_t low,
                        int64_t high) -> absl::Status {
    if (value >= low && value <= high) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", value, ", must be from ", low, " to ", high));
  };
  for (const absl::Status& status :
       {check("slots of a batch", options.slots, 1, INT32_MAX),
        // Positions and boundaries are int32.
        check("tokens of a slot", options.slot_tokens, 1, INT32_MAX - 1),
        check("maximum document length", options.max_doc_len,
              options.mode == BatchMode::kStream ? 0 : 1, INT32_MAX),
        check("length of the boundaries table", MaxDocuments(options), 2, INT32_MAX)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

int64_t ShardTokensOfBatch(const BatchOptions& options) {
  return options.mode == BatchMode::kStream ? options.slots * options.slot_tokens + 2
                                            : options.slots * (options.slot_tokens + 1);
}

absl::StatusOr<std::optional<BatchPlan>> PlanBatch(const BatchOptions& options,
                                                   absl::Span<const int64_t> bos, int64_t tokens,
                                                   int64_t start) {
  if (options.mode == BatchMode::kStream) return PlanStream(options, bos, tokens, start);
  const int64_t documents = static_cast<int64_t>(bos.size());
  const int64_t most = MaxDocuments(options) - 1;
  BatchPlan plan;
  int64_t next = start;
  for (int k = 0; k < options.slots; ++k) {
    std::vector<Piece>& pieces = plan.slots.emplace_back();
    int64_t length = 0;
    while (length <= options.slot_tokens) {
      if (next >= documents) return std::optional<BatchPlan>();
      if (static_cast<int64_t>(pieces.size()) == most) {
        return TooManyDocuments(options, k, absl::StrCat("document ", start));
      }
      const int64_t begin = bos[next];
      const int64_t document_end = next + 1 < documents ? bos[next + 1] : tokens;
      const int64_t end = std::min(
          {document_end, begin + options.max_doc_len, begin + options.slot_tokens + 1 - length});
      pieces.push_back({begin, end});
      Count(pieces.back(), document_end, options.max_doc_len, &plan.stats);
      length += end - begin;
      ++next;
    }
  }
  plan.next_document = next;
  return std::optional<BatchPlan>(std::move(plan));
}

GlobalBatch BuildBatch(const BatchOptions& options, const BatchPlan& plan,
                       absl::Span<const uint16_t> tokens, const TokenMap& map) {
  GlobalBatch batch;
  batch.stats = plan.stats;
  for (const std::vector<Piece>& pieces : plan.slots) {
    if (options.mode == BatchMode::kStream) {
      const Piece& slot = pieces.front();
      batch.slots.push_back(BuildStreamSlot(tokens.subspan(slot.begin, slot.end - slot.begin),
                                            MaxDocuments(options), map));
    } else {
      batch.slots.push_back(BuildSlot(options, pieces, tokens, map));
    }
  }
  return batch;
}

SlotBatch BuildStreamSlot(absl::Span<const uint16_t> tokens, int64_t max_documents,
                          const TokenMap& map) {
  const int64_t slot_tokens = static_cast<int64_t>(tokens.size()) - 1;
  SlotBatch slot;
  slot.inputs.reserve(slot_tokens);
  slot.targets.reserve(slot_tokens);
  slot.boundaries.reserve(max_documents);
  slot.boundaries.push_back(0);
  for (int64_t t = 0; t < slot_tokens; ++t) {
    if (tokens[t] == kGpt2Bos) slot.boundaries.push_back(static_cast<int32_t>(t));
    slot.inputs.push_back(*map.Map(tokens[t]));
    slot.targets.push_back(*map.Map(tokens[t + 1]));
  }
  CHECK_LT(static_cast<int64_t>(slot.boundaries.size()), max_documents);
  slot.boundaries.resize(max_documents, static_cast<int32_t>(slot_tokens));
  return slot;
}

std::vector<int64_t> BosPositions(absl::Span<const uint16_t> tokens) {
  std::vector<int64_t> positions;
  for (size_t at = 0; at < tokens.size(); ++at) {
    if (tokens[at] == kGpt2Bos) positions.push_back(static_cast<int64_t>(at));
  }
  return positions;
}

}  // namespace data
