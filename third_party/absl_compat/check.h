// CHECK, CHECK_EQ and friends with Abseil's spelling (absl/log/check.h), which Debian 12's
// Abseil (20220623) does not have yet. For broken invariants of our own code only; bad
// input from outside is an absl::Status.
//
//   CHECK(rank < size) << "rank " << rank;
//   CHECK_EQ(x.rows(), y.rows()) << "RmsNorm";   // prints both sides
#ifndef THIRD_PARTY_ABSL_COMPAT_CHECK_H_
#define THIRD_PARTY_ABSL_COMPAT_CHECK_H_

#include <memory>
#include <sstream>
#include <string>

namespace absl_compat {

// Collects the message; its destructor prints it to stderr and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const std::string& condition) {
    stream_ << file << ":" << line << ": Check failed: " << condition << " ";
  }
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Turns the stream expression into void, so that both arms of ?: agree.
struct Voidify {
  void operator&(std::ostream&) {}
};

// The text "a == b (3 vs. 4)", or null when the comparison holds.
template <typename A, typename B, typename Compare>
std::unique_ptr<std::string> CompareText(const A& a, const B& b, const char* text,
                                         Compare compare) {
  if (compare(a, b)) return nullptr;
  std::ostringstream out;
  out << text << " (" << a << " vs. " << b << ")";
  return std::make_unique<std::string>(out.str());
}

}  // namespace absl_compat

#define CHECK(condition)                   \
  (condition) ? (void)0                    \
              : ::absl_compat::Voidify() & \
                    ::absl_compat::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define NANOSPEED_CHECK_OP(a, b, op)                                                     \
  while (std::unique_ptr<std::string> nanospeed_check_text = ::absl_compat::CompareText( \
             (a), (b), #a " " #op " " #b,                                                \
             [](const auto& left, const auto& right) { return left op right; }))         \
  ::absl_compat::CheckFailure(__FILE__, __LINE__, *nanospeed_check_text).stream()

#define CHECK_EQ(a, b) NANOSPEED_CHECK_OP(a, b, ==)
#define CHECK_NE(a, b) NANOSPEED_CHECK_OP(a, b, !=)
#define CHECK_LT(a, b) NANOSPEED_CHECK_OP(a, b, <)
#define CHECK_LE(a, b) NANOSPEED_CHECK_OP(a, b, <=)
#define CHECK_GT(a, b) NANOSPEED_CHECK_OP(a, b, >)
#define CHECK_GE(a, b) NANOSPEED_CHECK_OP(a, b, >=)

#endif  // THIRD_PARTY_ABSL_COMPAT_CHECK_H_
