#include "data/bpe/pretokenizer.h"

#include "absl/strings/match.h"
#include "data/bpe/unicode_classes.h"

namespace data {
namespace {

// The run of characters of one class: its end, and where its last character begins.
struct Run {
  size_t end, last;
};

Run RunFrom(absl::string_view text, size_t begin, CharClass char_class) {
  Run run = {begin, begin};
  while (run.end < text.size()) {
    const Char next = CharAt(text, run.end);
    if (next.char_class != char_class) break;
    run.last = run.end;
    run.end += next.bytes;
  }
  return run;
}

}  // namespace

size_t PieceLength(absl::string_view text, size_t begin) {
  const absl::string_view rest = text.substr(begin);
  for (const absl::string_view suffix : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (absl::StartsWith(rest, suffix)) return suffix.size();
  }

  // One space may lead a word, a number or a series of other characters.
  const size_t start = begin + (rest[0] == ' ' && rest.size() > 1 ? 1 : 0);
  const CharClass char_class = CharAt(text, start).char_class;
  if (char_class != CharClass::kSpace) return RunFrom(text, start, char_class).end - begin;

  // White space; the last of several belongs to what follows them.
  const Run run = RunFrom(text, begin, CharClass::kSpace);
  const bool at_end = run.end == text.size();
  return (at_end || run.last == begin ? run.end : run.last) - begin;
}

}  // namespace data
