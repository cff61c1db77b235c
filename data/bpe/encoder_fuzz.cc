// Texts of any bytes under GPT-2's vocabulary: the quick encoder has the ids of the plain one, and
// decoding gives the bytes back.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/bpe/bpe.h"
#include "data/bpe/encoder.h"
#include "third_party/absl_compat/check.h"

namespace {

const data::Bpe& Vocabulary() {
  static const data::Bpe& bpe = *[] {
    absl::StatusOr<data::Bpe> loaded = data::Bpe::Load("data/bpe/testdata/vocab.bpe");
    CHECK(loaded.ok()) << loaded.status();
    return new data::Bpe(*std::move(loaded));
  }();
  return bpe;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<uint16_t> ids = Vocabulary().Encode(text);
  CHECK_EQ(*Vocabulary().Decode(ids), std::string(text));
  // Kept from input to input, as from document to document.
  static data::BpeEncoder& encoder = *new data::BpeEncoder(&Vocabulary());
  std::vector<uint16_t> faster;
  encoder.Append(text, &faster);
  CHECK(faster == ids);
  return 0;
}
