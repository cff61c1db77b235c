// inspect_shard SHARD...: shows what token shards hold, and finds what is wrong with them.
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/bpe/bpe.h"
#include "data/shard.h"
#include "data/token_map.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/inspect_shard/report_text.h"
#include "tools/inspect_shard/shard_report.h"
#include "tools/working_folder.h"

ABSL_FLAG(int, top, 10, "how many of the most frequent tokens to list");
ABSL_FLAG(int, documents, 3, "how many of the first documents to show");
ABSL_FLAG(int, max_tokens, 200, "how many tokens of a document to show");
ABSL_FLAG(std::string, merges, "",
          "GPT-2's vocab.bpe (merges.txt), to decode all tokens; without, only single bytes");
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

// Whether all shards could be read and, with --check, are sound.
absl::StatusOr<bool> Run(const std::vector<std::string>& globs) {
  ABSL_RETURN_IF_ERROR(tools::EnterCallersFolder());
  ABSL_RETURN_IF_ERROR(CheckFlags());
  if (globs.empty()) {
    return absl::InvalidArgumentError("no shards; give their files as arguments");
  }
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                        data::ListShards(absl::StrJoin(globs, ",")));
  std::optional<data::Bpe> bpe;
  if (!absl::GetFlag(FLAGS_merges).empty()) {
    ABSL_ASSIGN_OR_RETURN(bpe, data::Bpe::Load(absl::GetFlag(FLAGS_merges)));
  }
  const tools::ReportOptions options = {
      .top = absl::GetFlag(FLAGS_top),
      .documents = absl::GetFlag(FLAGS_documents),
      .max_tokens = absl::GetFlag(FLAGS_max_tokens),
      .bpe = bpe.has_value() ? &*bpe : nullptr,
  };
  bool sound = true;
  for (const std::string& path : paths) sound = Show(path, options) && sound;
  return sound;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Shows what token shards hold: documents, their lengths, frequent tokens, first texts.\n"
      "  inspect_shard SHARD...             names or globs\n"
      "  inspect_shard --check SHARD...     exit code 1 if a shard has a fault");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const absl::StatusOr<bool> sound = Run({arguments.begin() + 1, arguments.end()});
  if (!sound.ok()) {
    std::fprintf(stderr, "inspect_shard: %s\n", std::string(sound.status().message()).c_str());
    return 1;
  }
  return *sound ? 0 : 1;
}
