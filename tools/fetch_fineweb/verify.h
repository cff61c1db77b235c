// Whether a file on disk is what it should be.
#ifndef TOOLS_FETCH_FINEWEB_VERIFY_H_
#define TOOLS_FETCH_FINEWEB_VERIFY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tools {

enum class FileKind {
  kShard,   // tokens of documents, cut anywhere: it may begin in the middle of one
  kMerges,  // GPT-2's vocab.bpe, also called merges.txt
};

inline constexpr int kGpt2Merges = 50'000;

// What the file holds, such as "100,000,000 tokens". Reads all of it. NotFound if there is none;
// DataLoss, with path and position:
//   shard   magic, version, size as the header promises, each token an id of GPT-2, and at least
//           one end-of-text, without which the loader would find no document
//   merges  50,000 merges that data::Bpe accepts
absl::StatusOr<std::string> VerifyContents(const std::string& path, FileKind kind);

// Lower-case hexadecimal.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path);

// DataLoss, with both sums, if the file's SHA-256 is not `want`.
absl::Status VerifySha256(const std::string& path, const std::string& want);

}  // namespace tools

#endif  // TOOLS_FETCH_FINEWEB_VERIFY_H_
