#include "tools/tokenize/tokenize.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/tokenize/ordered_workers.h"

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;

// What a worker hands back.
struct Done {
  size_t input;
  int64_t bytes;
  EncodedChunk encoded;
};

// Puts encoded chunks into the shards, in order.
class Collector {
 public:
  Collector(const std::vector<Input>& inputs, ShardSet shards)
      : inputs_(inputs), shards_(std::move(shards)) {}

  absl::Status Add(Done done) {
    if (done.input != input_) lines_ = 0;
    input_ = done.input;
    const EncodedChunk& encoded = done.encoded;
    if (!encoded.status.ok()) return Located(encoded);
    ABSL_RETURN_IF_ERROR(shards_.Append(encoded.tokens));
    if (encoded.malformed > 0 && summary_.malformed == 0) {
      summary_.first_malformed =
          absl::StrCat(inputs_[input_].path, ": byte ", encoded.first_malformed);
    }
    lines_ += encoded.lines;
    summary_.bytes += done.bytes;
    summary_.tokens += static_cast<int64_t>(encoded.tokens.size());
    summary_.documents += encoded.documents;
    summary_.empty_documents += encoded.empty_documents;
    summary_.blank_lines += encoded.blank_lines;
    summary_.written_marks += encoded.written_marks;
    summary_.malformed += encoded.malformed;
    summary_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    return absl::OkStatus();
  }

  absl::StatusOr<TokenizeSummary> Finish() {
    ABSL_RETURN_IF_ERROR(shards_.Publish());
    summary_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    summary_.files = shards_.files();
    summary_.removed = shards_.removed();
    return summary_;
  }

  const TokenizeSummary& summary() const { return summary_; }
  void set_threads(int threads) { summary_.threads = threads; }

 private:
  absl::Status Located(const EncodedChunk& encoded) const {
    const std::string line =
        encoded.error_line > 0 ? absl::StrCat(":", lines_ + encoded.error_line) : "";
    return absl::Status(encoded.status.code(),
                        absl::StrCat(inputs_[input_].path, line, ": ", encoded.status.message()));
  }

  const std::vector<Input>& inputs_;
  ShardSet shards_;
  const Clock::time_point start_ = Clock::now();
  size_t input_ = 0;
  int64_t lines_ = 0;  // of this input, before the chunk
  TokenizeSummary summary_;
};

std::string Minutes(double seconds) {
  const int64_t whole = static_cast<int64_t>(seconds + 0.5);
  return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
}

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

}  // namespace

absl::StatusOr<TokenizeSummary> Tokenize(
    const TokenizeConfig& config, const data::Bpe& bpe,
    const std::function<void(const TokenizeSummary&)>& progress) {
  TextSource source(config.inputs, config.source);
  ABSL_RETURN_IF_ERROR(source.CheckInputs());
  ABSL_ASSIGN_OR_RETURN(ShardSet shards, ShardSet::Create(config.shards));
  Collector collector(config.inputs, std::move(shards));
  collector.set_threads(config.threads);

  using Workers = OrderedWorkers<Chunk, Done>;
  const auto make_function = [&]() -> Workers::Function {
    const auto encoder = std::make_shared<ChunkEncoder>(&bpe, config.encode);
    return [encoder](const Chunk& chunk) {
      return Done{chunk.input, static_cast<int64_t>(chunk.bytes.size()), encoder->Encode(chunk)};
    };
  };
  Workers workers(config.threads, 2 * config.threads + 2, make_function);
  const auto take = [&]() -> absl::Status {
    ABSL_RETURN_IF_ERROR(collector.Add(workers.TakeOldest()));
    progress(collector.summary());
    return absl::OkStatus();
  };
  Chunk chunk;
  while (true) {
    ABSL_ASSIGN_OR_RETURN(const bool more, source.Next(&chunk));
    if (!more) break;
    if (workers.full()) ABSL_RETURN_IF_ERROR(take());
    workers.Submit(std::move(chunk));
    chunk = Chunk();
  }
  while (!workers.empty()) ABSL_RETURN_IF_ERROR(take());
  return collector.Finish();
}

std::string SummaryText(const TokenizeSummary& summary) {
  std::string text;
  for (const ShardSet::File& file : summary.files) {
    absl::StrAppendFormat(&text, "%s  %d tokens\n", file.path, file.tokens);
  }
  absl::StrAppendFormat(
      &text, "%d documents, %d bytes -> %d tokens with %d end-of-text (%.2f bytes a token)\n",
      summary.documents, summary.bytes, summary.tokens, summary.documents,
      static_cast<double>(summary.bytes) /
          static_cast<double>(std::max<int64_t>(summary.tokens, 1)));
  absl::StrAppendFormat(&text, "%.2f s on %d thread%s: %.1f MB/s, %.2f M tokens/s\n",
                        summary.seconds, summary.threads, summary.threads == 1 ? "" : "s",
                        PerSecond(summary.bytes, summary.seconds) / 1e6,
                        PerSecond(summary.tokens, summary.seconds) / 1e6);
  return text;
}

std::string NotesText(const TokenizeSummary& summary) {
  std::string text;
  if (summary.malformed > 0) {
    absl::StrAppend(&text, "malformed UTF-8 sequences: ", summary.malformed,
                    "; each became U+FFFD; the first: ", summary.first_malformed, "\n");
  }
  if (summary.empty_documents > 0) {
    absl::StrAppend(&text, "empty documents: ", summary.empty_documents,
                    "; an end-of-text alone was written for each\n");
  }
  if (summary.blank_lines > 0) {
    absl::StrAppend(&text, "blank lines of JSONL: ", summary.blank_lines, "; passed over\n");
  }
  if (summary.written_marks > 0) {
    absl::StrAppend(&text, "<|endoftext|> in the texts: ", summary.written_marks,
                    " times; it is text there, not the token that ends documents "
                    "(--split_on='<|endoftext|>' splits text files at it)\n");
  }
  for (const std::string& path : summary.removed) {
    absl::StrAppend(&text, "removed, of an older run: ", path, "\n");
  }
  return text;
}

std::string ProgressText(const TokenizeSummary& summary, int64_t total_bytes) {
  constexpr int kWidth = 30;
  const double speed = PerSecond(summary.bytes, summary.seconds);
  const std::string rates = absl::StrFormat("%.1f MB/s  %.2f M tokens/s", speed / 1e6,
                                            PerSecond(summary.tokens, summary.seconds) / 1e6);
  if (total_bytes <= 0) {
    return absl::StrFormat("%.1f MB  %s", static_cast<double>(summary.bytes) / 1e6, rates);
  }
  // A file that is being written to may have grown since.
  const double share =
      std::min(1.0, static_cast<double>(summary.bytes) / static_cast<double>(total_bytes));
  const int filled = static_cast<int>(kWidth * share);
  std::string bar(filled, '=');
  if (filled < kWidth) bar += '>' + std::string(kWidth - filled - 1, ' ');
  const double left = static_cast<double>(total_bytes) * (1 - share) / std::max(speed, 1.0);
  return absl::StrFormat("[%s] %3.0f %%  %s  %s left", bar, 100 * share, rates, Minutes(left));
}

}  // namespace tools
