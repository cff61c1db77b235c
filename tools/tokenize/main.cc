// Turns text into token shards.
//
//   bazel run //tools/tokenize -- --merges=vocab.bpe --val_tokens=100000 book.txt pages.jsonl
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "data/bpe/bpe.h"
#include "kernels/usable_cpus.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/command_line.h"
#include "tools/data_path.h"
#include "tools/tokenize/tokenize.h"
#include "tools/trainer/interrupt.h"

ABSL_FLAG(std::string, merges, "",
          "GPT-2's vocabulary: vocab.bpe (also called merges.txt) or gpt2.tiktoken. Default: "
          "data/gpt2/merges.txt under $DATA_PATH or here, where fetch_fineweb --vocab puts it.");
ABSL_FLAG(
    std::string, format, "auto",
    "text, jsonl, or auto: jsonl for names that end in .jsonl or .ndjson, else text, and then "
    "what begins as JSON is refused.");
ABSL_FLAG(std::string, field, "text", "The field of JSONL's objects that has the text.");
ABSL_FLAG(
    std::string, split_on, "",
    "Text: what stands between documents, with C escapes (\"\\n\\n\\n\"). Empty: each file is "
    "one document.");
ABSL_FLAG(std::string, invalid_utf8, "replace",
          "replace: U+FFFD for each malformed sequence, with a note; error: refuse the input.");
ABSL_FLAG(std::string, out_dir, ".", "Where to write; made if it does not exist.");
ABSL_FLAG(std::string, prefix, "tokens",
          "Shards are PREFIX_val_000000.bin, PREFIX_train_000001.bin, ...");
ABSL_FLAG(int64_t, shard_tokens, 100'000'000, "Tokens of a shard; the last has what is left.");
ABSL_FLAG(int64_t, val_tokens, -1,
          "The first so many tokens are the validation shard; -1: --shard_tokens of them, so that "
          "the first shard is for validation, as in fineweb.py; 0: none.");
ABSL_FLAG(bool, overwrite, false, "Replace the shards of this prefix, all of them.");
ABSL_FLAG(int, threads, 0,
          "0: as many as the CPUs that this process may use. The shards are the same.");
ABSL_FLAG(int, max_line_mib, 16,
          "The longest line of JSONL, and the longest stretch of text without an end of a word.");

namespace {

constexpr int kMaxThreads = 1024;

absl::StatusOr<tools::Input> InputOf(const std::string& path) {
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format == "text") return tools::Input{path, tools::TextFormat::kText};
  if (format == "jsonl") return tools::Input{path, tools::TextFormat::kJsonLines};
  if (format == "auto") return tools::Input{path, tools::FormatOfName(path), false};
  return absl::InvalidArgumentError(
      absl::StrCat("--format=", format, ": must be text, jsonl or auto"));
}

absl::StatusOr<tools::TokenizeConfig> ConfigFromFlags(const std::vector<std::string>& paths) {
  if (paths.empty()) {
    return absl::InvalidArgumentError(
        "no input; give text or JSONL files, or - for standard input");
  }
  tools::TokenizeConfig config;
  for (const std::string& path : paths) {
    ABSL_ASSIGN_OR_RETURN(tools::Input input, InputOf(path));
    config.inputs.push_back(std::move(input));
  }
  if (std::count(paths.begin(), paths.end(), "-") > 1) {
    return absl::InvalidArgumentError("-: standard input can be read once only");
  }
  std::string error;
  if (!absl::CUnescape(absl::GetFlag(FLAGS_split_on), &config.source.split_on, &error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--split_on=", absl::GetFlag(FLAGS_split_on), ": ", error));
  }
  const std::string invalid_utf8 = absl::GetFlag(FLAGS_invalid_utf8);
  if (invalid_utf8 != "replace" && invalid_utf8 != "error") {
    return absl::InvalidArgumentError(
        absl::StrCat("--invalid_utf8=", invalid_utf8, ": must be replace or error"));
  }
  const int max_line_mib = absl::GetFlag(FLAGS_max_line_mib);
  if (max_line_mib < 1 || max_line_mib > 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_line_mib=", max_line_mib, ": must be from 1 to 1024"));
  }
  const int threads = absl::GetFlag(FLAGS_threads);
  if (threads < 0 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads=", threads, ": must be from 0 to ", kMaxThreads));
  }
  config.source.max_line_bytes = int64_t{max_line_mib} << 20;
  config.encode = {.field = absl::GetFlag(FLAGS_field),
                   .replace_malformed = invalid_utf8 == "replace",
                   .max_line_bytes = config.source.max_line_bytes};
  const int64_t shard_tokens = absl::GetFlag(FLAGS_shard_tokens);
  const int64_t val_tokens = absl::GetFlag(FLAGS_val_tokens);
  config.shards = {.out_dir = absl::GetFlag(FLAGS_out_dir),
                   .prefix = absl::GetFlag(FLAGS_prefix),
                   .shard_tokens = shard_tokens,
                   .val_tokens = val_tokens == -1 ? shard_tokens : val_tokens,
                   .overwrite = absl::GetFlag(FLAGS_overwrite)};
  config.threads = threads > 0 ? threads : kernels::UsableCpus();
  return config;
}

// Only the whole of GPT-2's vocabulary makes the tokens that models of GPT-2 tokens know.
absl::StatusOr<data::Bpe> LoadVocabulary() {
  const std::string flag = absl::GetFlag(FLAGS_merges);
  const std::string path = flag.empty() ? tools::DefaultMergesPath() : flag;
  absl::StatusOr<data::Bpe> loaded = data::Bpe::Load(path);
  if (absl::IsNotFound(loaded.status())) {
    return absl::NotFoundError(
        absl::StrCat(loaded.status().message(),
                     " by --merges, or get it: bazel run //tools/fetch_fineweb -- "
                     "--vocab --shards=0 --noval"));
  }
  ABSL_ASSIGN_OR_RETURN(data::Bpe bpe, std::move(loaded));
  if (bpe.merges() != data::Bpe::kGpt2Merges) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": has ", bpe.merges(), " merges, where GPT-2's vocabulary has ",
        data::Bpe::kGpt2Merges, ": it is cut or another model's; fetch vocab.bpe again"));
  }
  return bpe;
}

absl::Status Run(const std::vector<std::string>& paths) {
  ABSL_ASSIGN_OR_RETURN(const tools::TokenizeConfig config, ConfigFromFlags(paths));
  ABSL_ASSIGN_OR_RETURN(const data::Bpe bpe, LoadVocabulary());
  tools::InstallInterruptHandlers();

  const int64_t total = tools::TextSource(config.inputs, config.source).TotalBytes();
  const bool terminal = isatty(STDERR_FILENO) == 1;
  double drawn_at = 0;
  const auto progress = [&](const tools::TokenizeSummary& summary) {
    if (!terminal || summary.seconds - drawn_at < 0.1) return;
    drawn_at = summary.seconds;
    std::fprintf(stderr, "\r\033[K%s", tools::ProgressText(summary, total).c_str());
  };
  const absl::StatusOr<tools::TokenizeSummary> summary = tools::Tokenize(config, bpe, progress);
  if (drawn_at > 0) std::fputs("\r\033[K", stderr);
  if (!summary.ok()) return summary.status();
  std::fputs(tools::NotesText(*summary).c_str(), stderr);
  std::fputs(tools::SummaryText(*summary).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const tools::CommandHelp help = {
      .name = "tokenize",
      .summary =
          "turns text files, JSONL and standard input into shards of GPT-2 tokens, with "
          "end-of-text "
          "before each document, as the public FineWeb shards are.",
      .usage = "bazel run //tools/tokenize -- [flags] FILES...   (- is standard input)",
      .examples =
          {{"two books, of which the first 100,000 tokens are for validation",
            "bazel run //tools/tokenize -- --merges=vocab.bpe --val_tokens=100000 a.txt b.txt"},
           {"JSONL, compressed",
            "gzip -dc pages.jsonl.gz | bazel run //tools/tokenize -- --format=jsonl -"},
           {"one file of many stories",
            "bazel run //tools/tokenize -- --val_tokens=0 --split_on='<|endoftext|>' stories.txt"}},
      .groups = {
          {"Input", {"merges", "format", "field", "split_on", "invalid_utf8", "max_line_mib"}},
          {"Output", {"out_dir", "prefix", "shard_tokens", "val_tokens", "overwrite"}},
          {"Speed", {"threads"}}}};
  return tools::RunTool(argc, argv, help, Run);
}
