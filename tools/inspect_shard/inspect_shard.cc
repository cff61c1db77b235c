// inspect_shard SHARD...: shows what token shards hold, and finds what is wrong with them.
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "data/bpe/bpe.h"
#include "data/shard.h"
#include "data/token_map.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/command_line.h"
#include "tools/data_path.h"
#include "tools/inspect_shard/report_text.h"
#include "tools/inspect_shard/shard_report.h"

ABSL_FLAG(int, top, 10, "how many of the most frequent tokens to list");
ABSL_FLAG(int, documents, 3, "how many of the first documents to show");
ABSL_FLAG(int, max_tokens, 200, "how many tokens of a document to show");
ABSL_FLAG(std::string, merges, "",
          "GPT-2's vocab.bpe (merges.txt) or gpt2.tiktoken, to decode all tokens. Default: "
          "data/gpt2/merges.txt under $DATA_PATH or here, where fetch_fineweb --vocab puts it; if "
          "it is not there, only single bytes are decoded.");
ABSL_FLAG(int, vocab_size, data::kGpt2Vocabulary, "tokens from this id on are a fault");
ABSL_FLAG(bool, check, false,
          "end with exit code 1 if a shard has a fault; print nothing but the faults");

namespace {

absl::Status CheckFlags() {
  struct Range {
    const char* flag;
    int value, least, most;
  };
  const Range ranges[] = {
      {"top", absl::GetFlag(FLAGS_top), 0, 65536},
      {"documents", absl::GetFlag(FLAGS_documents), 0, INT32_MAX},
      {"max_tokens", absl::GetFlag(FLAGS_max_tokens), 0, INT32_MAX},
      {"vocab_size", absl::GetFlag(FLAGS_vocab_size), 1, 65536},
  };
  for (const Range& range : ranges) {
    if (range.value < range.least || range.value > range.most) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", range.flag, "=", range.value, ": must be from ", range.least, " to ", range.most));
    }
  }
  return absl::OkStatus();
}

// Prints the report of one shard, or its faults alone with --check. Returns whether it is sound.
bool Show(const std::string& path, const tools::ReportOptions& options) {
  const absl::StatusOr<data::Shard> shard = data::Shard::Open(path);
  if (!shard.ok()) {
    std::fprintf(stderr, "inspect_shard: %s\n", std::string(shard.status().message()).c_str());
    return false;
  }
  const tools::ShardReport report = tools::Inspect(*shard, absl::GetFlag(FLAGS_vocab_size));
  if (!absl::GetFlag(FLAGS_check)) {
    std::fputs(tools::ReportText(*shard, report, options).c_str(), stdout);
    return true;
  }
  for (const std::string& fault : report.faults) {
    std::fprintf(stderr, "inspect_shard: %s: %s\n", path.c_str(), fault.c_str());
  }
  return report.faults.empty();
}

// The vocabulary of --merges, or of the usual place if there is one.
absl::StatusOr<std::optional<data::Bpe>> LoadVocabulary() {
  const std::string flag = absl::GetFlag(FLAGS_merges);
  absl::StatusOr<data::Bpe> bpe = data::Bpe::Load(flag.empty() ? tools::DefaultMergesPath() : flag);
  if (flag.empty() && absl::IsNotFound(bpe.status())) return std::nullopt;
  if (!bpe.ok()) return bpe.status();
  return *std::move(bpe);
}

absl::Status Run(const std::vector<std::string>& globs) {
  ABSL_RETURN_IF_ERROR(CheckFlags());
  if (globs.empty()) {
    return absl::InvalidArgumentError("no shards; give their files as arguments");
  }
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> paths, data::ListShards(globs));
  ABSL_ASSIGN_OR_RETURN(const std::optional<data::Bpe> bpe, LoadVocabulary());
  const tools::ReportOptions options = {
      .top = absl::GetFlag(FLAGS_top),
      .documents = absl::GetFlag(FLAGS_documents),
      .max_tokens = absl::GetFlag(FLAGS_max_tokens),
      .bpe = bpe.has_value() ? &*bpe : nullptr,
  };
  size_t faulty = 0;
  for (const std::string& path : paths) faulty += Show(path, options) ? 0 : 1;
  if (faulty == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(faulty, " of ", paths.size(), " shards are faulty"));
}

}  // namespace

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "inspect_shard",
      .summary =
          "shows what token shards hold: header, documents and their lengths, the histogram of "
          "tokens, the first texts; and checks them.",
      .usage = "bazel run //tools/inspect_shard -- [flags] SHARDS...   (names or globs)",
      .examples = {{"a shard's contents",
                    "bazel run //tools/inspect_shard -- --merges=vocab.bpe train_000001.bin"},
                   {"before a long run: ends with code 1 if a shard has a fault",
                    "bazel run //tools/inspect_shard -- --check 'data/fineweb10B/*.bin'"}},
      .groups = {{"What to show", {"top", "documents", "max_tokens", "merges"}},
                 {"Faults", {"check", "vocab_size"}}}};
  return tools::RunTool(argc, argv, help, Run);
}
