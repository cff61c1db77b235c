#include "tools/sample/text_codec.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/bpe/byte_tokens.h"
#include "tools/data_path.h"

namespace tools {

absl::StatusOr<TextCodec> TextCodec::Create(const data::TokenMap& map, const std::string& merges) {
  TextCodec codec(map);
  if (!map.is_identity()) return codec;
  const std::string path = merges.empty() ? DefaultMergesPath() : merges;
  absl::StatusOr<data::Bpe> bpe = data::Bpe::Load(path);
  if (!bpe.ok()) {
    return absl::Status(
        bpe.status().code(),
        absl::StrCat(bpe.status().message(),
                     "; this model has GPT-2's tokens: give --merges=FILE, GPT-2's vocab.bpe "
                     "(merges.txt), or put it there with: bazel run //tools/fetch_fineweb -- "
                     "--vocab --shards=0 --noval"));
  }
  codec.bpe_ = *std::move(bpe);
  return codec;
}

std::vector<int32_t> TextCodec::Encode(absl::string_view text) const {
  std::vector<int32_t> tokens;
  if (bpe_) {
    for (uint16_t token : bpe_->Encode(text)) tokens.push_back(token);
  } else {
    for (unsigned char byte : text) tokens.push_back(data::kTokenOfByte[byte]);
  }
  return tokens;
}

std::string EndOfTextNote(absl::string_view prompt, const TextCodec& codec) {
  constexpr absl::string_view kWritten = "<|endoftext|>";
  if (!absl::StrContains(prompt, kWritten)) return "";
  return absl::StrCat(kWritten, " in the prompt is text here, of ", codec.Encode(kWritten).size(),
                      " tokens; the end-of-text token itself, ", codec.bos(),
                      ", begins every prompt without being written");
}

absl::StatusOr<std::string> TextCodec::Decode(int32_t token) const {
  if (bpe_) return bpe_->Decode({static_cast<uint16_t>(token)});
  if (token < 0 || token >= data::kByteTokens) {
    return absl::InvalidArgumentError(absl::StrCat("token ", token, " is no byte"));
  }
  return std::string(1, static_cast<char>(data::kByteOfToken[token]));
}

}  // namespace tools
