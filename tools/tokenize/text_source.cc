#include "tools/tokenize/text_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

// What a file is that is no text, by its first bytes, and what to do with it.
struct NoText {
  absl::string_view begin, what;
};
constexpr NoText kNoTexts[] = {
    {"\x1F\x8B", "compressed by gzip; unpack it: gzip -dc FILE | tokenize -"},
    {"\x28\xB5\x2F\xFD", "compressed by zstd; unpack it: zstd -dc FILE | tokenize -"},
    {"BZh", "compressed by bzip2; unpack it: bzip2 -dc FILE | tokenize -"},
    {"\xFD"
     "7zXZ",
     "compressed by xz; unpack it: xz -dc FILE | tokenize -"},
    {"PK\x03\x04", "a zip archive; unpack it"},
    {"PAR1", "a Parquet file; write its text as JSONL first"},
    {"\xFF\xFE", "UTF-16; recode it: iconv -f UTF-16 -t UTF-8 FILE | tokenize -"},
    {"\xFE\xFF", "UTF-16; recode it: iconv -f UTF-16 -t UTF-8 FILE | tokenize -"},
    {"\x88\xD8\x34\x01", "a token shard already"},
};

}  // namespace

TextSource::TextSource(std::vector<Input> inputs, TextSourceOptions options)
    : inputs_(std::move(inputs)), options_(std::move(options)) {}

TextSource::~TextSource() {
  if (fd_ > STDIN_FILENO) close(fd_);
}

absl::Status TextSource::CheckInputs() const {
  for (const Input& input : inputs_) {
    ABSL_ASSIGN_OR_RETURN(const int fd, Open(input.path));
    struct stat info = {};
    const bool is_folder = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
    if (fd != STDIN_FILENO) close(fd);
    if (is_folder) {
      return absl::InvalidArgumentError(
          absl::StrCat(input.path, ": is a folder; give the files in it, as ", input.path,
                       input.path.back() == '/' ? "" : "/", "*.txt"));
    }
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
  return CheckBeginning();
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

absl::Status TextSource::CheckBeginning() const {
  for (const NoText& no_text : kNoTexts) {
    if (absl::StartsWith(pending_, no_text.begin)) {
      return absl::InvalidArgumentError(absl::StrCat(path(), ": is ", no_text.what));
    }
  }
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
