// Vocabulary files: what is accepted is a vocabulary, and encodes and decodes any bytes.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "data/bpe/bpe.h"
#include "data/bpe/encoder.h"
#include "data/bpe/vocabulary.h"
#include "third_party/absl_compat/check.h"
#include "tools/build/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view contents(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<std::vector<std::string>> tokens = data::ParseVocabulary(contents);
  const fuzz::File file(data, size);
  const absl::StatusOr<data::Bpe> bpe = data::Bpe::Load(file.path());
  CHECK_EQ(bpe.ok(), tokens.ok());
  if (!tokens.ok()) return 0;
  CHECK(tokens->size() > 256 && tokens->size() <= 256 + 50000);
  CHECK_EQ(std::set<std::string>(tokens->begin(), tokens->end()).size(), tokens->size());
  // The file itself is a text like any other.
  const std::vector<uint16_t> ids = bpe->Encode(contents);
  CHECK_EQ(*bpe->Decode(ids), std::string(contents));
  data::BpeEncoder encoder(&*bpe);
  std::vector<uint16_t> faster;
  encoder.Append(contents, &faster);
  CHECK(faster == ids);
  return 0;
}
