#include "tools/tokenize/text_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "data/bpe/pretokenizer.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/trainer/interrupt.h"

namespace tools {
namespace {

constexpr char kStandardInput[] = "-";
constexpr int kPollMs = 200;

std::string ErrorText(int error) { return std::generic_category().message(error); }

absl::StatusOr<int> Open(const std::string& path) {
  if (path == kStandardInput) return STDIN_FILENO;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) return fd;
  const std::string message = absl::StrCat(path, ": cannot open: ", ErrorText(errno));
  if (errno == ENOENT) return absl::NotFoundError(message);
  return absl::InvalidArgumentError(message);
}

// What a file is that is no text, by its first bytes, and what to do with it: a command that writes
// its text, or advice.
struct NoText {
  absl::string_view begin, what, command, advice;
};
constexpr NoText kNoTexts[] = {
    {"\x1F\x8B", "compressed by gzip", "gzip -dc", ""},
    {"\x28\xB5\x2F\xFD", "compressed by zstd", "zstd -dc", ""},
    {"BZh", "compressed by bzip2", "bzip2 -dc", ""},
    {"\xFD"
     "7zXZ",
     "compressed by xz", "xz -dc", ""},
    {"PK\x03\x04", "a zip archive", "unzip -p", ""},
    {"PAR1", "a Parquet file", "", "write its text as JSONL first"},
    {"ARROW1", "an Arrow file", "", "write its text as JSONL first"},
    {"%PDF-", "a PDF", "", "extract its text first"},
    {"\xFF\xFE", "UTF-16", "iconv -f UTF-16 -t UTF-8", ""},
    {"\xFE\xFF", "UTF-16", "iconv -f UTF-16 -t UTF-8", ""},
    {"\x88\xD8\x34\x01", "a token shard already", "", "train on it as it is"},
    {"\x01\x34\xD8\x88", "a token shard in big-endian byte order", "",
     "shards are little-endian: write it again"},
};

constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kBeginningBytes = 4096;  // what is looked at of an input

bool NamesJsonLines(absl::string_view path) {
  const std::string name = absl::AsciiStrToLower(path);
  return absl::StrContains(name, ".jsonl") || absl::StrContains(name, ".ndjson");
}

// "PROGRAM PATH | tokenize -", which reads as JSONL what its name says to be.
std::string Piped(absl::string_view program, const Input& input) {
  const bool json = input.format == TextFormat::kJsonLines || NamesJsonLines(input.path);
  return absl::StrCat(program, " ", input.path == kStandardInput ? "" : input.path + " ",
                      "| tokenize ", json ? "--format=jsonl " : "", "-");
}

// Takes `token` off the front, and white space before it; false if it is not there.
bool Take(absl::string_view token, absl::string_view* text) {
  *text = absl::StripLeadingAsciiWhitespace(*text);
  return absl::ConsumePrefix(text, token);
}

// Text that begins as {"..., {}, [{"... or ["... is taken for JSON.
absl::Status RefuseJson(const Input& input, absl::string_view begin) {
  absl::ConsumePrefix(&begin, kByteOrderMark);
  const absl::string_view first_line =
      absl::StripAsciiWhitespace(absl::StripLeadingAsciiWhitespace(begin).substr(
          0, absl::StripLeadingAsciiWhitespace(begin).find('\n')));
  const bool list = Take("[", &begin);
  const bool object = Take("{", &begin);
  if (!list && !object) return absl::OkStatus();
  const bool key = Take("\"", &begin);
  if (!key && !(object && Take("}", &begin))) return absl::OkStatus();
  constexpr char kElse[] = "; --format=text if the JSON itself is to be the text";
  if (list) {
    return absl::InvalidArgumentError(
        absl::StrCat(input.path, ": is a list in JSON; write an object a line: jq -c '.[]' ",
                     input.path, " | tokenize --format=jsonl -", kElse));
  }
  if (!absl::EndsWith(first_line, "}") && absl::StrContains(begin, '\n')) {
    return absl::InvalidArgumentError(absl::StrCat(
        input.path, ": is JSON whose objects take several lines; write one a line: jq -c . ",
        input.path, " | tokenize --format=jsonl -", kElse));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(input.path,
                   ": begins as lines of JSON, and its name does not end in .jsonl; give "
                   "--format=jsonl, for all inputs, or that name, to take --field of each line",
                   kElse));
}

// `begin`: the first bytes of the input, kBeginningBytes or all it has.
absl::Status CheckBeginning(const Input& input, absl::string_view begin) {
  begin = begin.substr(0, kBeginningBytes);
  for (const NoText& no_text : kNoTexts) {
    if (!absl::StartsWith(begin, no_text.begin)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        input.path, ": is ", no_text.what, "; ",
        no_text.command.empty() ? std::string(no_text.advice) : Piped(no_text.command, input)));
  }
  if (input.format != TextFormat::kText || input.format_given) return absl::OkStatus();
  if (const size_t zero = begin.find('\0'); zero != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(input.path, ": byte ", zero,
                     " is zero: it is no text, or UTF-16 without a byte order mark (",
                     Piped("iconv -f UTF-16LE -t UTF-8", input),
                     "); --format=text if it is to be taken as it is"));
  }
  return RefuseJson(input, begin);
}

// The first bytes of a regular file.
absl::StatusOr<std::string> ReadBeginning(const std::string& path, int fd) {
  std::string begin(kBeginningBytes, '\0');
  const ssize_t got = pread(fd, begin.data(), begin.size(), 0);
  if (got < 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot read: ", ErrorText(errno)));
  }
  begin.resize(static_cast<size_t>(got));
  return begin;
}

absl::Status CheckInput(const Input& input, int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(input.path, ": ", ErrorText(errno)));
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(input.path, ": is a folder; give the files in it, as ", input.path,
                     input.path.back() == '/' ? "" : "/", "*.txt"));
  }
  if (!S_ISREG(info.st_mode)) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(const std::string begin, ReadBeginning(input.path, fd));
  return CheckBeginning(input, begin);
}

}  // namespace

TextFormat FormatOfName(absl::string_view path) {
  const std::string name = absl::AsciiStrToLower(path);
  const bool json = absl::EndsWith(name, ".jsonl") || absl::EndsWith(name, ".ndjson");
  return json ? TextFormat::kJsonLines : TextFormat::kText;
}

TextSource::TextSource(std::vector<Input> inputs, TextSourceOptions options)
    : inputs_(std::move(inputs)), options_(std::move(options)) {}

TextSource::~TextSource() {
  if (fd_ > STDIN_FILENO) close(fd_);
}

absl::Status TextSource::CheckInputs() const {
  for (const Input& input : inputs_) {
    ABSL_ASSIGN_OR_RETURN(const int fd, Open(input.path));
    const absl::Status checked = fd == STDIN_FILENO ? absl::OkStatus() : CheckInput(input, fd);
    if (fd != STDIN_FILENO) close(fd);
    ABSL_RETURN_IF_ERROR(checked);
  }
  return absl::OkStatus();
}

int64_t TextSource::TotalBytes() const {
  int64_t total = 0;
  for (const Input& input : inputs_) {
    struct stat info = {};
    const int result =
        input.path == kStandardInput ? fstat(STDIN_FILENO, &info) : stat(input.path.c_str(), &info);
    if (result != 0 || !S_ISREG(info.st_mode)) return -1;
    total += info.st_size;
  }
  return total;
}

absl::Status TextSource::OpenNext() {
  ABSL_ASSIGN_OR_RETURN(fd_, Open(path()));
  offset_ = 0;
  at_end_ = false;
  pending_.clear();
  new_document_ = true;
  any_document_ = false;
  ABSL_RETURN_IF_ERROR(ReadMore());
  return CheckBeginning(inputs_[input_], pending_);
}

// Up to another chunk_bytes, or to the input's end.
absl::Status TextSource::ReadMore() {
  const size_t before = pending_.size();
  size_t size = before;
  pending_.resize(before + options_.chunk_bytes);
  while (!at_end_ && size < pending_.size()) {
    pollfd ready = {fd_, POLLIN, 0};
    const int polled = poll(&ready, 1, kPollMs);  // a pipe may be silent for long
    if (Interrupted()) return absl::CancelledError("interrupted: no shard was written");
    if (polled == 0) continue;
    const ssize_t got = read(fd_, pending_.data() + size, pending_.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path(), ": cannot read at byte ", offset_ + size, ": ", ErrorText(errno)));
    }
    at_end_ = got == 0;
    size += got;
  }
  pending_.resize(size);
  return absl::OkStatus();
}

absl::Status TextSource::TooLong() const {
  const bool json = inputs_[input_].format == TextFormat::kJsonLines;
  return absl::InvalidArgumentError(absl::StrCat(
      path(), ": byte ", offset_, ": ",
      json ? "a line" : "a stretch of text without an end of a word", " is longer than ",
      options_.max_line_bytes, " bytes; if that is meant, raise --max_line_mib"));
}

// The end of the last whole line of pending_; 0 if there is none.
absl::StatusOr<size_t> TextSource::CutLines() {
  const size_t last = pending_.rfind('\n');
  size_t end = last == std::string::npos ? 0 : last + 1;
  if (at_end_) end = pending_.size();
  // Only the first line can be longer than a chunk.
  const size_t first = std::min(pending_.find('\n'), pending_.size());
  if (first > static_cast<size_t>(options_.max_line_bytes)) return TooLong();
  return end;
}

// Adds the parts before separators; `*position` is after the last one.
void TextSource::CutAtSeparators(size_t* position, std::vector<Chunk::Part>* parts) {
  if (options_.split_on.empty()) return;
  while (true) {
    const size_t separator = pending_.find(options_.split_on, *position);
    if (separator == std::string::npos) return;
    parts->push_back({*position, separator, new_document_});
    *position = separator + options_.split_on.size();
    new_document_ = true;
    any_document_ = true;
  }
}

// Adds the parts that end in pending_, and returns where what is left over begins; 0 if all is.
absl::StatusOr<size_t> TextSource::CutText(std::vector<Chunk::Part>* parts) {
  size_t position = 0;
  CutAtSeparators(&position, parts);
  const size_t size = pending_.size();
  if (at_end_) {
    if (position < size || !any_document_) parts->push_back({position, size, new_document_});
    return size;
  }
  // Before the end may stand the beginning of a separator, and of a character.
  const size_t unsure = std::max<size_t>(options_.split_on.size(), 1);
  const size_t cut =
      size > position + unsure ? data::LastCut(pending_, position, size - unsure) : 0;
  if (cut > 0) {
    parts->push_back({position, cut, new_document_});
    new_document_ = false;
    any_document_ = true;
    return cut;
  }
  if (static_cast<int64_t>(size - position) > options_.max_line_bytes) return TooLong();
  return position;
}

absl::StatusOr<bool> TextSource::Next(Chunk* chunk) {
  while (input_ < inputs_.size()) {
    if (fd_ < 0) ABSL_RETURN_IF_ERROR(OpenNext());
    chunk->parts.clear();
    ABSL_ASSIGN_OR_RETURN(const size_t cut, inputs_[input_].format == TextFormat::kText
                                                ? CutText(&chunk->parts)
                                                : CutLines());
    const bool finished = at_end_ && cut == pending_.size();
    if (cut == 0 && !finished) {
      ABSL_RETURN_IF_ERROR(ReadMore());
      continue;
    }
    chunk->input = input_;
    chunk->offset = offset_;
    chunk->bytes.assign(pending_, 0, cut);
    pending_.erase(0, cut);
    offset_ += cut;
    if (finished) {
      if (fd_ != STDIN_FILENO) close(fd_);
      fd_ = -1;
      ++input_;
    } else {
      ABSL_RETURN_IF_ERROR(ReadMore());
    }
    return true;
  }
  return false;
}

}  // namespace tools
