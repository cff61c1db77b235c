// How a shard's GPT-2 token ids become the model's ids.
#ifndef DATA_TOKEN_MAP_H_
#define DATA_TOKEN_MAP_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "data/shard.h"

namespace data {

inline constexpr int64_t kGpt2Vocabulary = 50257;
inline constexpr uint16_t kGpt2Bos = 50256;  // begins each document of a shard

// A small value; cheap to copy.
class TokenMap {
 public:
  // Tokens stay as they are. All ids of the model's padded vocabulary are accepted: those from
  // `ids` on are rows that the embedding has, even if GPT-2's tokenizer never writes them.
  static TokenMap Identity(int64_t ids);  // padded to a multiple of 128
  static TokenMap Identity(int64_t ids, int64_t padded);
  // GPT-2's ids of the single bytes, 0 to 255, stay; BOS becomes 256; nothing else is accepted.
  static TokenMap ByteVocabulary();

  TokenMap() : TokenMap(Identity(kGpt2Vocabulary)) {}

  bool is_identity() const { return identity_; }
  int64_t vocab_size() const { return ids_; }  // without padding
  int32_t bos() const;                         // the model's id of BOS

  // Nothing for a token outside the vocabulary.
  std::optional<int32_t> Map(uint16_t token) const {
    if (token < direct_) return token;
    if (!identity_ && token == kGpt2Bos) return kByteBos;
    return std::nullopt;
  }
  // The inverse. Nothing for an id that no token has.
  std::optional<uint16_t> Unmap(int32_t id) const;

  // DataLoss with file, position and token if one of the shard's (first `tokens`) tokens has no
  // id.
  absl::Status CheckTokens(const Shard& shard) const;
  absl::Status CheckTokens(const Shard& shard, int64_t tokens) const;

 private:
  static constexpr int32_t kByteBos = 256;

  TokenMap(bool identity, int64_t ids, int64_t direct)
      : identity_(identity), ids_(ids), direct_(direct) {}

  bool identity_;
  int64_t ids_;
  int64_t direct_;  // tokens below are their own ids
};

}  // namespace data

#endif  // DATA_TOKEN_MAP_H_
