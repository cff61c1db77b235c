// pack_corpus --out_train=T.bin --out_val=V.bin FORTUNES...: fortune files into two token shards.
//
// Without any input both files become empty: the build goes on where the package with the texts
// is absent, and FindDemoCorpus() tells what is missing.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "data/corpus/packer.h"
#include "data/shard.h"
#include "third_party/absl_compat/status_macros.h"

ABSL_FLAG(std::string, out_train, "", "the training shard to write");
ABSL_FLAG(std::string, out_val, "", "the validation shard to write");

namespace {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot read it, or it is empty; give readable fortune files"));
  }
  return text.str();
}

absl::Status WriteEmpty(const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.close();
  if (!file) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot create it"));
  return absl::OkStatus();
}

absl::Status WritePart(const char* name, const std::string& path,
                       const data::PackedCorpus::Part& part) {
  ABSL_RETURN_IF_ERROR(data::WriteShard(path, part.tokens));
  std::printf("%s: %lld documents, %zu tokens\n", name, static_cast<long long>(part.documents),
              part.tokens.size());
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& inputs) {
  const std::string out_train = absl::GetFlag(FLAGS_out_train);
  const std::string out_val = absl::GetFlag(FLAGS_out_val);
  if (out_train.empty() || out_val.empty()) {
    return absl::InvalidArgumentError("give --out_train and --out_val, the shards to write");
  }
  if (inputs.empty()) {
    ABSL_RETURN_IF_ERROR(WriteEmpty(out_train));
    return WriteEmpty(out_val);
  }
  std::vector<std::string> documents;
  for (const std::string& path : inputs) {
    ABSL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    for (std::string& document : data::SplitFortunes(text)) {
      documents.push_back(std::move(document));
    }
  }
  const data::PackedCorpus packed = data::Pack(std::move(documents));
  ABSL_RETURN_IF_ERROR(WritePart("train", out_train, packed.train));
  return WritePart("val", out_val, packed.val);
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Packs fortune files into token shards.\n"
      "  pack_corpus --out_train=T.bin --out_val=V.bin FORTUNES...");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const absl::Status status = Run({arguments.begin() + 1, arguments.end()});
  if (status.ok()) return 0;
  std::fprintf(stderr, "pack_corpus: %s\n", std::string(status.message()).c_str());
  return 1;
}
