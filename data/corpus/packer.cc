#include "data/corpus/packer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "data/bpe/byte_tokens.h"
#include "data/token_map.h"

namespace data {
namespace {

constexpr uint64_t kOneInValidation = 20;

// FNV-1a, 64 bits (Fowler, Noll and Vo), then MurmurHash3's finaliser: FNV's high bits, which sort
// the documents, hardly depend on the last bytes.
uint64_t Hash(absl::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  hash = (hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCD;
  hash = (hash ^ (hash >> 33)) * 0xC4CEB9FE1A85EC53;
  return hash ^ (hash >> 33);
}

void Append(const std::string& document, PackedCorpus::Part* part) {
  ++part->documents;
  part->tokens.push_back(kGpt2Bos);
  for (const char c : document) part->tokens.push_back(kTokenOfByte[static_cast<uint8_t>(c)]);
}

}  // namespace

std::vector<std::string> SplitFortunes(absl::string_view text) {
  std::vector<std::string> documents;
  std::string document;
  const auto flush = [&] {
    if (!absl::StripAsciiWhitespace(document).empty()) documents.push_back(document);
    document.clear();
  };
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line == "%") {
      flush();
    } else {
      document.append(line.data(), line.size());
      document += '\n';
    }
  }
  if (absl::EndsWith(text, "\n")) document.pop_back();  // the empty rest after the last line
  flush();
  return documents;
}

PackedCorpus Pack(std::vector<std::string> documents) {
  std::vector<std::pair<uint64_t, std::string>> keyed;
  keyed.reserve(documents.size());
  for (std::string& document : documents) {
    const uint64_t hash = Hash(document);
    keyed.emplace_back(hash, std::move(document));
  }
  std::sort(keyed.begin(), keyed.end());
  keyed.erase(std::unique(keyed.begin(), keyed.end()), keyed.end());

  PackedCorpus packed;
  for (const auto& [hash, document] : keyed) {
    Append(document, hash % kOneInValidation == 0 ? &packed.val : &packed.train);
  }
  return packed;
}

}  // namespace data
