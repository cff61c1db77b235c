#include "tools/fetch_fineweb/verify.h"

#include <openssl/evp.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "data/bpe/bpe.h"
#include "data/shard.h"
#include "data/token_map.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/fetch_fineweb/progress_text.h"

namespace tools {
namespace {

absl::StatusOr<std::string> VerifyShard(const std::string& path) {
  ABSL_ASSIGN_OR_RETURN(const data::Shard shard, data::Shard::Open(path));
  // One past the last id: the padding that a model's vocabulary has is none of a shard's.
  ABSL_RETURN_IF_ERROR(
      data::TokenMap::Identity(data::kGpt2Vocabulary, data::kGpt2Vocabulary).CheckTokens(shard));
  if (std::find(shard.tokens().begin(), shard.tokens().end(), data::kGpt2Bos) ==
      shard.tokens().end()) {
    return absl::DataLossError(absl::StrCat(path, ": none of its ", shard.tokens().size(),
                                            " tokens is end-of-text (", data::kGpt2Bos,
                                            "), which begins each document"));
  }
  return absl::StrCat(WithCommas(static_cast<int64_t>(shard.tokens().size())), " tokens");
}

absl::StatusOr<std::string> VerifyMerges(const std::string& path) {
  absl::StatusOr<data::Bpe> bpe = data::Bpe::Load(path);
  if (absl::IsNotFound(bpe.status())) return bpe.status();
  if (!bpe.ok()) return absl::DataLossError(bpe.status().message());
  if (bpe->merges() != kGpt2Merges) {
    return absl::DataLossError(
        absl::StrCat(path, ": has ", bpe->merges(), " merges, where GPT-2 has ", kGpt2Merges));
  }
  return absl::StrCat(WithCommas(bpe->merges()), " merges");
}

}  // namespace

absl::StatusOr<std::string> VerifyContents(const std::string& path, FileKind kind) {
  return kind == FileKind::kShard ? VerifyShard(path) : VerifyMerges(path);
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot read"));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  CHECK(context != nullptr) << "OpenSSL";
  CHECK_EQ(EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr), 1) << "OpenSSL";
  std::vector<char> buffer(1 << 20);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    CHECK_EQ(EVP_DigestUpdate(context.get(), buffer.data(), file.gcount()), 1) << "OpenSSL";
  }
  if (file.bad()) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot read"));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  CHECK_EQ(EVP_DigestFinal_ex(context.get(), digest, &bytes), 1) << "OpenSSL";
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), bytes});
}

absl::Status VerifySha256(const std::string& path, const std::string& want) {
  ABSL_ASSIGN_OR_RETURN(const std::string found, Sha256OfFile(path));
  if (found == want) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path, ": its SHA-256 is ", found, ", not ", want, " as the hub says"));
}

}  // namespace tools
