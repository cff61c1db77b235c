#include "data/token_map.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"

namespace data {

TokenMap TokenMap::Identity(int64_t ids) { return Identity(ids, (ids + 127) / 128 * 128); }

TokenMap TokenMap::Identity(int64_t ids, int64_t padded) {
  CHECK_GT(ids, kGpt2Bos) << "BOS needs an id";
  CHECK_GE(padded, ids);
  return TokenMap(/*identity=*/true, ids, padded);
}

TokenMap TokenMap::ByteVocabulary() { return TokenMap(/*identity=*/false, kByteBos + 1, kByteBos); }

int32_t TokenMap::bos() const { return identity_ ? kGpt2Bos : kByteBos; }

std::optional<uint16_t> TokenMap::Unmap(int32_t id) const {
  if (id >= 0 && id < direct_ && id <= UINT16_MAX) return static_cast<uint16_t>(id);
  if (!identity_ && id == kByteBos) return kGpt2Bos;
  return std::nullopt;
}

absl::Status TokenMap::CheckTokens(const Shard& shard) const {
  return CheckTokens(shard, static_cast<int64_t>(shard.tokens().size()));
}

absl::Status TokenMap::CheckTokens(const Shard& shard, int64_t tokens) const {
  const absl::Span<const uint16_t> checked = shard.tokens().subspan(0, tokens);
  const auto bad = std::find_if(checked.begin(), checked.end(),
                                [this](uint16_t token) { return !Map(token).has_value(); });
  if (bad == checked.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      shard.path(), ": token ", *bad, " at position ", bad - checked.begin(),
      identity_ ? absl::StrCat(" is outside the vocabulary of ", direct_, " ids")
                : absl::StrCat(" is neither a single byte (0 to 255) nor BOS (", kGpt2Bos, ")"),
      "; the shard was written for another vocabulary or is damaged"));
}

}  // namespace data
