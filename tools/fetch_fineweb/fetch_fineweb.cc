// Fetches the token shards that the speedrun trains on; docs/tools/fetch_fineweb.md.

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/command_line.h"
#include "tools/data_path.h"
#include "tools/fetch_fineweb/console.h"
#include "tools/fetch_fineweb/fetch.h"
#include "tools/fetch_fineweb/http_client.h"
#include "tools/fetch_fineweb/hub.h"
#include "tools/fetch_fineweb/wanted_files.h"
#include "tools/trainer/interrupt.h"

ABSL_FLAG(int, shards, 9, "training shards to fetch, of 100,000,000 tokens each: the first ones");
ABSL_FLAG(bool, val, true, "fetch the validation shard");
ABSL_FLAG(bool, vocab, false, "also fetch GPT-2's merges, which tokenize and sample need");
ABSL_FLAG(std::string, out_dir, "",
          "folder of the shards; empty: data/fineweb10B below $DATA_PATH or the current folder, "
          "where the tracks look for them");
ABSL_FLAG(std::string, vocab_file, "",
          "path of the merges; empty: data/gpt2/merges.txt below $DATA_PATH or the current folder");
ABSL_FLAG(std::string, endpoint, "",
          "address of the hub or a mirror; empty: $HF_ENDPOINT, or https://huggingface.co");
ABSL_FLAG(int, parallel, 4, "files to fetch at once");
ABSL_FLAG(int, retries, 5, "tries after a failure, in a row without progress of 1 MiB");
ABSL_FLAG(absl::Duration, retry_delay, absl::Seconds(1),
          "pause before the first of them; doubles up to a minute, and varies by half");
ABSL_FLAG(absl::Duration, stall_timeout, absl::Seconds(30),
          "a connection that brings less than 100 bytes/s for so long is given up");
ABSL_FLAG(bool, overwrite, false, "fetch files again that are there and do not verify");
ABSL_FLAG(bool, check_only, false,
          "verify the files that are there, without network; exit code 1 if one is not sound");

namespace tools {
namespace {

const CommandHelp kHelp = {
    .name = "fetch_fineweb",
    .summary =
        "Fetches FineWeb-10B as GPT-2 tokens (data set kjj0/fineweb10B-gpt2 of Hugging Face): the "
        "validation shard and the first training shards, 200 MB each. Resumes what was cut, "
        "verifies what came, keeps what is there. A file under its final name is complete.\n"
        "Honours HF_ENDPOINT, HF_TOKEN (or the token that Hugging Face's login left), the proxies "
        "of http_proxy, https_proxy and no_proxy, and the certificates of SSL_CERT_FILE.",
    .usage = "bazel run //tools/fetch_fineweb -- [flags]",
    .examples = {{"what a run of track 1 needs, into data/fineweb10B",
                  "bazel run //tools/fetch_fineweb"},
                 {"enough for a trial, with the merges for sample and tokenize",
                  "bazel run //tools/fetch_fineweb -- --shards=1 --vocab"},
                 {"only the merges",
                  "bazel run //tools/fetch_fineweb -- --vocab --shards=0 --noval"},
                 {"whether the files are sound, without network",
                  "bazel run //tools/fetch_fineweb -- --check_only"}},
    .groups = {
        {"What", {"shards", "val", "vocab"}},
        {"Where to", {"out_dir", "vocab_file", "overwrite", "check_only"}},
        {"Where from", {"endpoint", "parallel", "retries", "retry_delay", "stall_timeout"}}}};

absl::Status CheckFlags() {
  struct Range {
    const char* flag;
    int value, least, most;
  };
  for (const Range& range : {Range{"parallel", absl::GetFlag(FLAGS_parallel), 1, 16},
                             Range{"retries", absl::GetFlag(FLAGS_retries), 0, 1000}}) {
    if (range.value < range.least || range.value > range.most) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", range.flag, "=", range.value, ": must be from ", range.least, " to ", range.most));
    }
  }
  if (absl::GetFlag(FLAGS_retry_delay) <= absl::ZeroDuration() ||
      absl::GetFlag(FLAGS_retry_delay) > absl::Minutes(1)) {
    return absl::InvalidArgumentError("--retry_delay: must be over 0 and at most 1m");
  }
  if (absl::GetFlag(FLAGS_stall_timeout) < absl::Seconds(1) ||
      absl::GetFlag(FLAGS_stall_timeout) > absl::Hours(1)) {
    return absl::InvalidArgumentError("--stall_timeout: must be from 1s to 1h");
  }
  return absl::OkStatus();
}

std::string PathOr(const std::string& path, const std::string& otherwise) {
  return path.empty() ? otherwise : path;
}

absl::Status Main(const std::vector<std::string>& arguments) {
  ABSL_RETURN_IF_ERROR(NoArguments(arguments));
  ABSL_RETURN_IF_ERROR(CheckFlags());
  InstallInterruptHandlers();  // before there are other threads
  ABSL_RETURN_IF_ERROR(InitHttp());

  FetchOptions options;
  options.parallel = absl::GetFlag(FLAGS_parallel);
  options.overwrite = absl::GetFlag(FLAGS_overwrite);
  options.check_only = absl::GetFlag(FLAGS_check_only);
  options.download.retry.retries = absl::GetFlag(FLAGS_retries);
  options.download.retry.first_delay = absl::GetFlag(FLAGS_retry_delay);
  options.download.stall_timeout = absl::GetFlag(FLAGS_stall_timeout);
  options.download.interrupted = Interrupted;
  ABSL_ASSIGN_OR_RETURN(options.download.hub, FindHub(absl::GetFlag(FLAGS_endpoint)));
  ABSL_ASSIGN_OR_RETURN(
      const std::vector<WantedFile> files,
      WantedFiles(
          {.shards = absl::GetFlag(FLAGS_shards),
           .val = absl::GetFlag(FLAGS_val),
           .vocab = absl::GetFlag(FLAGS_vocab),
           .out_dir = PathOr(absl::GetFlag(FLAGS_out_dir), BelowDataPath("data/fineweb10B")),
           .vocab_file = PathOr(absl::GetFlag(FLAGS_vocab_file), DefaultMergesPath())},
          options.download.hub.endpoint));

  Console console(kHelp.name);
  if (!options.download.hub.warning.empty()) console.Note(options.download.hub.warning);
  const absl::Status status = Fetch(files, options, &console);
  if (absl::IsCancelled(status)) {
    return absl::CancelledError(
        "interrupted; what has come is kept as NAME.part, and the same command goes on from there");
  }
  return status;
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) { return tools::RunTool(argc, argv, tools::kHelp, tools::Main); }
