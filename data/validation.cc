#include "data/validation.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace data {

ValidationStream::ValidationStream(Shard shard, int slots, int64_t slot_tokens,
                                   int64_t max_documents, const TokenMap& token_map)
    : shard_(std::move(shard)),
      slots_(slots),
      slot_tokens_(slot_tokens),
      max_documents_(max_documents),
      token_map_(token_map) {}

absl::StatusOr<ValidationStream> ValidationStream::Create(const std::vector<std::string>& files,
                                                          int slots, int64_t slot_tokens,
                                                          int64_t max_documents,
                                                          const TokenMap& token_map) {
  if (files.empty()) return absl::InvalidArgumentError("no validation file");
  const BatchOptions options = {slots, slot_tokens, /*max_doc_len=*/slot_tokens, max_documents};
  ABSL_RETURN_IF_ERROR(ValidateBatchOptions(options));
  ABSL_ASSIGN_OR_RETURN(Shard shard, Shard::Open(files.front()));
  const int64_t needed = slots * slot_tokens + 1;
  const int64_t present = static_cast<int64_t>(shard.tokens().size());
  if (present < needed) {
    return absl::OutOfRangeError(
        absl::StrCat(shard.path(), ": validation needs ", needed, " tokens (", slots, " slots of ",
                     slot_tokens, ", and one more as the last target), this file holds ", present,
                     files.size() > 1 ? "; only the first validation file is read" : "",
                     "; give a larger file or lower --val_tokens"));
  }
  ABSL_RETURN_IF_ERROR(token_map.CheckTokens(shard, needed));
  ValidationStream stream(std::move(shard), slots, slot_tokens, MaxDocuments(options), token_map);
  ABSL_RETURN_IF_ERROR(stream.CheckBoundaries());
  return stream;
}

absl::Status ValidationStream::CheckBoundaries() const {
  for (int j = 0; j < slots_; ++j) {
    const absl::Span<const uint16_t> inputs =
        shard_.tokens().subspan(j * slot_tokens_, slot_tokens_);
    // The tail at the front counts as a document too.
    const int64_t documents = 1 + std::count(inputs.begin(), inputs.end(), kGpt2Bos);
    if (documents >= max_documents_) {
      return absl::InvalidArgumentError(
          absl::StrCat(shard_.path(), ": validation slot ", j, " has ", documents,
                       " documents in tokens ", j * slot_tokens_, " to ", (j + 1) * slot_tokens_,
                       ", its boundaries table of ", max_documents_, " entries holds at most ",
                       max_documents_ - 1, "; use a smaller validation slot or a longer table"));
    }
  }
  return absl::OkStatus();
}

SlotBatch ValidationStream::Slot(int j) const {
  CHECK(j >= 0 && j < slots_) << "validation slot " << j << " of " << slots_;
  return BuildStreamSlot(shard_.tokens().subspan(j * slot_tokens_, slot_tokens_ + 1),
                         max_documents_, token_map_);
}

}  // namespace data
