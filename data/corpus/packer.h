// Fortune files into token shards: the text that the demo trains on.
#ifndef DATA_CORPUS_PACKER_H_
#define DATA_CORPUS_PACKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace data {

// The documents of a fortune file: what stands between lines of a single "%", each with the
// newline that ends its last line, without documents of whitespace alone.
std::vector<std::string> SplitFortunes(absl::string_view text);

// Tokens of documents: 50256, then GPT-2's single-byte ids, document after document.
struct PackedCorpus {
  struct Part {
    int64_t documents = 0;
    std::vector<uint16_t> tokens;
  };
  Part train, val;
};

// Drops duplicates. A fixed hash of each text decides its place in the order, and whether it is one
// of about 5 in 100 for validation: the result depends on the set of documents alone, and a new
// document moves no other one from part to part.
PackedCorpus Pack(std::vector<std::string> documents);

}  // namespace data

#endif  // DATA_CORPUS_PACKER_H_
