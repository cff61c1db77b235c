#include "tools/tokenize/json_line.h"

#include <string>

#include "gtest/gtest.h"

namespace tools {
namespace {

// The field "text", or the error.
std::string Text(const std::string& line) {
  const absl::StatusOr<std::string> text = StringField(line, "text");
  return text.ok() ? *text : "ERROR " + std::string(text.status().message());
}

testing::AssertionResult Fails(const std::string& line, const std::string& part) {
  const std::string text = Text(line);
  if (text.rfind("ERROR ", 0) == 0 && text.find(part) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << line << " gives " << text;
}

TEST(StringField, FindsTheField) {
  EXPECT_EQ(Text(R"({"text": "a b"})"), "a b");
  EXPECT_EQ(Text(" {\"id\":1,\t\"text\" :\"\",\"x\":[]} \r"), "");
  EXPECT_EQ(Text(R"({"meta": {"text": "inner"}, "text": "outer"})"), "outer");
  EXPECT_EQ(Text(R"({"text": "first", "text": "last"})"), "last");
  EXPECT_EQ(Text(R"({"t\u0065xt": "escaped name"})"), "escaped name");
  EXPECT_EQ(*StringField(R"({"text": "a", "body": "b"})", "body"), "b");
}

TEST(StringField, Escapes) {
  EXPECT_EQ(Text(R"({"text": "\"\\\/\b\f\n\r\t"})"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(Text(R"({"text": "\u0041\u00e9\u00E9\u4e2d\u0000"})"),
            std::string("A\u00e9\u00e9\u4e2d\0", 9));
  EXPECT_EQ(Text("{\"text\": \"\u4e2d\x7f\"}"), "\u4e2d\x7f");
}

// What tiktoken 0.14 encodes of json.loads of the same line:
// text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").
TEST(StringField, Surrogates) {
  EXPECT_EQ(Text(R"({"text": "\ud83d\ude00"})"), "\U0001f600");
  EXPECT_EQ(Text(R"({"text": "\uD83D\uDE00\uDE00"})"), "\U0001f600\uFFFD");
  EXPECT_EQ(Text(R"({"text": "\ud83d"})"), "\uFFFD");
  EXPECT_EQ(Text(R"({"text": "\ude00x"})"), "\uFFFDx");
  EXPECT_EQ(Text(R"({"text": "\ud83dx\ude00"})"), "\uFFFDx\uFFFD");
  EXPECT_EQ(Text(R"({"text": "\ud83d\ud83d\ude00"})"), "\uFFFD\U0001f600");
  EXPECT_EQ(Text(R"({"text": "\ud83d\n"})"), "\uFFFD\n");
  EXPECT_EQ(Text(R"({"text": "\ud83d\u0041"})"), "\uFFFDA");
  EXPECT_EQ(Text(R"({"text": "\udbff\udfff\ud800\udc00"})"), "\U0010ffff\U00010000");
}

TEST(StringField, OtherValuesAreChecked) {
  EXPECT_EQ(
      Text(R"({"a": [1, -2.5e-3, 0, true, false, null, {}, [], [[]], {"b": [{}]}], "text":"x"})"),
      "x");
  EXPECT_EQ(Text(R"({"a": NaN, "b": [Infinity, -Infinity], "text": "x"})"), "x");
  EXPECT_TRUE(Fails(R"({"a": [1,], "text": "x"})", "at byte 10 of the line: expected a value"));
  EXPECT_TRUE(Fails(R"({"a": [1 2], "text": "x"})", "expected a comma, or the end of the array"));
  EXPECT_TRUE(Fails(R"({"a": [1}, "text": "x"})", "expected a comma"));
  EXPECT_TRUE(Fails(R"({"a": {"b"}, "text": "x"})", "expected a colon, found \"}"));
  EXPECT_TRUE(Fails(R"({"a": {b: 1}, "text": "x"})", "expected a string"));
  EXPECT_TRUE(Fails(R"({"a": {"b": 1,}, "text": "x"})", "expected a string"));
  EXPECT_TRUE(Fails(R"({"a": 01, "text": "x"})", "expected a comma"));
  EXPECT_TRUE(Fails(R"({"a": 1., "text": "x"})", "expected a digit"));
  EXPECT_TRUE(Fails(R"({"a": 1e, "text": "x"})", "expected a digit"));
  EXPECT_TRUE(Fails(R"({"a": nul, "text": "x"})", "expected a value"));
  EXPECT_TRUE(Fails(R"({"a": , "text": "x"})", "expected a value"));
}

TEST(StringField, BadLines) {
  EXPECT_TRUE(Fails("", "expected an object"));
  EXPECT_TRUE(Fails("text", "byte 1 of the line: expected an object"));
  EXPECT_TRUE(Fails("[{\"text\": \"x\"}]", "an array, where each line should be an object"));
  EXPECT_TRUE(Fails("{", "expected a string, found the end"));
  EXPECT_TRUE(Fails("{\"text\"", "expected a colon, found the end"));
  EXPECT_TRUE(Fails("{\"text\": \"x", "the string's closing quote, found the end"));
  EXPECT_TRUE(Fails("{\"text\": \"x\"", "expected a comma, or the object's end"));
  EXPECT_TRUE(Fails("{\"text\": \"x\",}", "expected a string, found \"}\""));
  EXPECT_TRUE(Fails("{\"text\": \"x\"} {}", "expected the line's end"));
  EXPECT_TRUE(Fails(std::string("{\"text\": \"x\"}\0", 14), "expected the line's end"));
  EXPECT_TRUE(Fails("{\"text\": \"a\tb\"}", "control characters"));
  EXPECT_TRUE(Fails(R"({"text": "\x41"})", "expected an escape"));
  EXPECT_TRUE(Fails(R"({"text": "\u12"})", "four hexadecimal digits"));
  EXPECT_TRUE(Fails(R"({"text": "\u12g4"})", "four hexadecimal digits"));
  EXPECT_TRUE(Fails("{\"text\": \"\\u123", "four hexadecimal digits"));
  EXPECT_TRUE(Fails("{\"text\": \"\\", "expected an escape"));
}

TEST(StringField, WrongField) {
  EXPECT_TRUE(Fails("{}", "no field \"text\"; it has no fields"));
  EXPECT_TRUE(Fails(R"({"id": 1, "body": "x"})", "it has the fields \"id\", \"body\": name"));
  EXPECT_TRUE(Fails(R"({"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1})", "and 1 more"));
  EXPECT_TRUE(Fails(R"({"text": null})", "is no string"));
  EXPECT_TRUE(Fails(R"({"text": ["x"]})", "is no string"));
  EXPECT_TRUE(Fails(R"({"text": "x", "text": 1})", "is no string"));
}

TEST(StringField, DeepNestingNeedsNoStack) {
  const int depth = 2'000'000;
  const std::string open(depth, '['), close(depth, ']');
  EXPECT_EQ(Text("{\"a\": " + open + close + ", \"text\": \"x\"}"), "x");
  EXPECT_TRUE(Fails("{\"a\": " + open, "expected a value, found the end"));
}

}  // namespace
}  // namespace tools
