#include "tools/tokenize/json_line.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"
#include "tools/tokenize/utf8.h"

namespace tools {
namespace {

class Scanner {
 public:
  explicit Scanner(absl::string_view text) : text_(text) {}

  // The next character that is no white space, '\0' at the end; not consumed.
  char Peek() {
    while (position_ < text_.size() && absl::StrContains(" \t\r\n", text_.substr(position_, 1))) {
      ++position_;
    }
    return position_ < text_.size() ? text_[position_] : '\0';
  }
  bool AtEnd() { return Peek() == '\0' && position_ == text_.size(); }

  // Consumes the character if it is next.
  bool Take(char c) {
    if (Peek() != c || position_ == text_.size()) return false;
    ++position_;
    return true;
  }

  absl::Status Expected(absl::string_view what) const {
    const absl::string_view found = text_.substr(position_, 10);
    return absl::InvalidArgumentError(absl::StrCat(
        "not JSON at byte ", position_ + 1, " of the line: expected ", what, ", found ",
        found.empty() ? "the end" : absl::StrCat("\"", absl::CHexEscape(found), "\"")));
  }

  absl::Status String(std::string* value);  // null: only checked
  absl::Status Value();                     // only checked

 private:
  absl::Status Escape(std::string* value);
  absl::Status UnicodeEscape(std::string* value);
  bool Hex4(size_t position, char32_t* code) const;
  absl::Status Scalar();
  absl::Status Name();  // and the colon after it
  absl::Status Number();
  bool Digits();

  absl::string_view text_;
  size_t position_ = 0;
};

bool Scanner::Hex4(size_t position, char32_t* code) const {
  if (text_.size() < 4 || position > text_.size() - 4) return false;
  *code = 0;
  for (const char c : text_.substr(position, 4)) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
    *code = *code << 4 | static_cast<char32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return true;
}

// At the four digits after "\u".
absl::Status Scanner::UnicodeEscape(std::string* value) {
  char32_t code = 0, low = 0;
  if (!Hex4(position_, &code)) return Expected("four hexadecimal digits");
  position_ += 4;
  const bool high = code >= 0xD800 && code < 0xDC00;
  if (high && absl::StartsWith(text_.substr(position_), "\\u") && Hex4(position_ + 2, &low) &&
      low >= 0xDC00 && low < 0xE000) {
    position_ += 6;
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xD800 && code < 0xE000) {
    code = 0xFFFD;
  }
  if (value != nullptr) AppendUtf8(code, value);
  return absl::OkStatus();
}

// After a backslash.
absl::Status Scanner::Escape(std::string* value) {
  constexpr absl::string_view kNames = "\"\\/bfnrt";
  constexpr absl::string_view kBytes = "\"\\/\b\f\n\r\t";
  if (position_ < text_.size()) {
    const char name = text_[position_];
    if (name == 'u') {
      ++position_;
      return UnicodeEscape(value);
    }
    const size_t index = kNames.find(name);
    if (index != absl::string_view::npos) {
      ++position_;
      if (value != nullptr) value->push_back(kBytes[index]);
      return absl::OkStatus();
    }
  }
  return Expected("an escape: one of \"\\/bfnrtu");
}

absl::Status Scanner::String(std::string* value) {
  if (!Take('"')) return Expected("a string");
  while (true) {
    const size_t begin = position_;
    while (position_ < text_.size() && text_[position_] != '"' && text_[position_] != '\\' &&
           static_cast<uint8_t>(text_[position_]) >= 0x20) {
      ++position_;
    }
    if (value != nullptr) value->append(text_.data() + begin, position_ - begin);
    if (position_ == text_.size()) return Expected("the string's closing quote");
    if (static_cast<uint8_t>(text_[position_]) < 0x20) {
      return Expected("control characters in strings as escapes");
    }
    if (text_[position_++] == '"') return absl::OkStatus();
    ABSL_RETURN_IF_ERROR(Escape(value));
  }
}

bool Scanner::Digits() {
  const size_t begin = position_;
  while (position_ < text_.size() &&
         absl::ascii_isdigit(static_cast<unsigned char>(text_[position_]))) {
    ++position_;
  }
  return position_ > begin;
}

absl::Status Scanner::Number() {
  const auto next = [this](absl::string_view any) {
    if (position_ == text_.size() || !absl::StrContains(any, text_.substr(position_, 1))) {
      return false;
    }
    ++position_;
    return true;
  };
  next("-");
  if (!next("0") && !Digits()) return Expected("a value");
  if (next(".") && !Digits()) return Expected("a digit");
  if (next("eE")) {
    next("+-");
    if (!Digits()) return Expected("a digit");
  }
  return absl::OkStatus();
}

// A value that is neither an array nor an object.
absl::Status Scanner::Scalar() {
  if (Peek() == '"') return String(nullptr);
  for (const absl::string_view word : {"true", "false", "null", "NaN", "Infinity", "-Infinity"}) {
    if (absl::StartsWith(text_.substr(position_), word)) {
      position_ += word.size();
      return absl::OkStatus();
    }
  }
  return Number();
}

absl::Status Scanner::Name() {
  ABSL_RETURN_IF_ERROR(String(nullptr));
  return Take(':') ? absl::OkStatus() : Expected("a colon");
}

absl::Status Scanner::Value() {
  std::vector<char> closers;  // of the arrays and objects that are open
  while (true) {
    // A value begins here.
    if (Take('[')) {
      closers.push_back(']');
      if (Peek() != ']') continue;
    } else if (Take('{')) {
      closers.push_back('}');
      if (Peek() != '}') {
        ABSL_RETURN_IF_ERROR(Name());
        continue;
      }
    } else {
      ABSL_RETURN_IF_ERROR(Scalar());
    }
    // A value has ended, or an empty array or object is to be closed.
    while (!closers.empty() && Take(closers.back())) closers.pop_back();
    if (closers.empty()) return absl::OkStatus();
    if (!Take(',')) return Expected("a comma, or the end of the array or object");
    if (closers.back() == '}') ABSL_RETURN_IF_ERROR(Name());
  }
}

// The names of an object, for a message.
class Names {
 public:
  void Add(const std::string& name) {
    if (++count_ <= kShown) {
      absl::StrAppend(&text_, text_.empty() ? "" : ", ", "\"", absl::Utf8SafeCEscape(name), "\"");
    }
  }
  std::string Text() const {
    if (count_ == 0) return "no fields";
    return absl::StrCat("the fields ", text_,
                        count_ > kShown ? absl::StrCat(" and ", count_ - kShown, " more") : "");
  }

 private:
  static constexpr int kShown = 8;
  int count_ = 0;
  std::string text_;
};

}  // namespace

absl::StatusOr<std::string> StringField(absl::string_view line, absl::string_view field) {
  Scanner scanner(line);
  if (!scanner.Take('{')) {
    if (scanner.Peek() != '[') return scanner.Expected("an object: {\"text\": ...}");
    return absl::InvalidArgumentError(
        "an array, where each line should be an object; turn a file of one array into lines with "
        "jq -c '.[]'");
  }
  std::string value;
  Names names;
  enum { kMissing, kString, kOtherValue } found = kMissing;
  bool more = !scanner.Take('}');
  while (more) {
    std::string name;
    ABSL_RETURN_IF_ERROR(scanner.String(&name));
    if (!scanner.Take(':')) return scanner.Expected("a colon");
    const bool wanted = name == field;
    if (wanted && scanner.Peek() == '"') {
      found = kString;
      value.clear();
      ABSL_RETURN_IF_ERROR(scanner.String(&value));
    } else {
      if (wanted) found = kOtherValue;
      ABSL_RETURN_IF_ERROR(scanner.Value());
    }
    names.Add(name);
    more = scanner.Take(',');
    if (!more && !scanner.Take('}')) return scanner.Expected("a comma, or the object's end");
  }
  if (!scanner.AtEnd()) return scanner.Expected("the line's end after the object");
  if (found == kMissing) {
    return absl::InvalidArgumentError(absl::StrCat("the object has no field \"", field,
                                                   "\"; it has ", names.Text(),
                                                   ": name the one with the text by --field"));
  }
  if (found == kOtherValue) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the field \"", field, "\" is no string; name the one with the text by --field"));
  }
  return value;
}

}  // namespace tools
