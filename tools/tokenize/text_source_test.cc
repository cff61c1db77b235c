#include "tools/tokenize/text_source.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tools {
namespace {

using Strings = std::vector<std::string>;

std::string WriteFile(const std::string& name, const std::string& contents) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

// All that a source gives: the documents put together, and how it was cut.
struct Read {
  Strings documents;
  std::string all;  // the bytes of all chunks
  int chunks = 0;
  absl::Status status;
};

Read ReadAll(std::vector<Input> inputs, const TextSourceOptions& options) {
  TextSource source(std::move(inputs), options);
  Read read;
  Chunk chunk;
  int64_t offset = 0;
  size_t input = 0;
  while (true) {
    const absl::StatusOr<bool> more = source.Next(&chunk);
    if (!more.ok() || !*more) {
      read.status = more.status();
      return read;
    }
    if (chunk.input != input) offset = 0;
    input = chunk.input;
    EXPECT_EQ(chunk.offset, offset);
    offset += static_cast<int64_t>(chunk.bytes.size());
    ++read.chunks;
    read.all += chunk.bytes;
    for (const Chunk::Part& part : chunk.parts) {
      if (part.new_document) read.documents.emplace_back();
      read.documents.back() += chunk.bytes.substr(part.begin, part.end - part.begin);
    }
  }
}

Read ReadText(const std::string& text, const std::string& split_on, int64_t chunk_bytes) {
  return ReadAll({{WriteFile("text", text), TextFormat::kText}},
                 {.split_on = split_on, .chunk_bytes = chunk_bytes, .max_line_bytes = 100});
}

TEST(TextSource, AFileIsADocument) {
  for (const int64_t chunk_bytes : {1, 2, 3, 5, 8, 1000}) {
    const std::string text = "Some words, caf\u00e9 \u4e2d\u6587\u3002\u4e2d and\n\n  more. ";
    const Read read = ReadText(text, "", chunk_bytes);
    EXPECT_TRUE(read.status.ok()) << read.status;
    EXPECT_EQ(read.documents, (Strings{text}));
    EXPECT_GT(read.chunks, chunk_bytes < 9 ? 3 : 0);
  }
  EXPECT_EQ(ReadText("", "", 8).documents, (Strings{""}));
}

TEST(TextSource, SplitsAtSeparatorsWhereverChunksEnd) {
  for (const int64_t chunk_bytes : {1, 2, 3, 4, 5, 6, 7, 1000}) {
    const auto documents = [&](const std::string& text) {
      const Read read = ReadText(text, "<->", chunk_bytes);
      EXPECT_TRUE(read.status.ok()) << read.status;
      EXPECT_EQ(read.all, text);
      return read.documents;
    };
    EXPECT_EQ(documents("one two<->three<-four<->five"),
              (Strings{"one two", "three<-four", "five"}));
    EXPECT_EQ(documents("one\n<->"), (Strings{"one\n"}));
    EXPECT_EQ(documents("<->one<-><->two"), (Strings{"", "one", "", "two"}));
    EXPECT_EQ(documents("one <-"), (Strings{"one <-"}));
    EXPECT_EQ(documents("<->"), (Strings{""}));
    EXPECT_EQ(documents(""), (Strings{""}));
    EXPECT_EQ(documents("<-<-><->->"), (Strings{"<-", "", "->"}));
  }
}

// A cut would fit inside these.
TEST(TextSource, SeparatorsOfSeveralWords) {
  for (const int64_t chunk_bytes : {1, 2, 3, 4, 5, 6, 7, 1000}) {
    EXPECT_EQ(ReadText("a b\n-- c\n--\nd\n--\n", "\n--\n", chunk_bytes).documents,
              (Strings{"a b\n-- c", "d"}));
    EXPECT_EQ(ReadText("one. end 7 two", " end 7", chunk_bytes).documents,
              (Strings{"one.", " two"}));
  }
}

TEST(TextSource, SeveralInputsOneAfterTheOther) {
  const Read read = ReadAll({{WriteFile("a", "first"), TextFormat::kText},
                             {WriteFile("empty", ""), TextFormat::kText},
                             {WriteFile("c", "third text"), TextFormat::kText}},
                            {});
  EXPECT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(read.documents, (Strings{"first", "", "third text"}));
}

TEST(TextSource, JsonLinesAreCutAtLineEnds) {
  const std::string lines = "{\"text\": \"a b\"}\n\n{\"text\": \"c\"}\n{\"text\": \"last\"}";
  for (const int64_t chunk_bytes : {1, 7, 1000}) {
    TextSource source({{WriteFile("lines", lines), TextFormat::kJsonLines}},
                      {.chunk_bytes = chunk_bytes, .max_line_bytes = 100});
    std::string all;
    Chunk chunk;
    while (source.Next(&chunk).value()) {
      EXPECT_TRUE(chunk.parts.empty());
      all += chunk.bytes;
      EXPECT_TRUE(all.size() == lines.size() || chunk.bytes.back() == '\n') << chunk.bytes;
    }
    EXPECT_EQ(all, lines);
  }
}

TEST(TextSource, RefusesWhatItCannotHold) {
  const Read word = ReadText("short " + std::string(300, 'x'), "", 16);
  EXPECT_EQ(word.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(
      word.status.message().find(
          "text: byte 5: a stretch of text without an end of a word is longer than 100 bytes"),
      std::string::npos)
      << word.status;
  EXPECT_TRUE(ReadText("short " + std::string(60, 'x') + " y", "", 16).status.ok());

  const Read line =
      ReadAll({{WriteFile("l", "{}\n" + std::string(300, ' ')), TextFormat::kJsonLines}},
              {.chunk_bytes = 16, .max_line_bytes = 100});
  EXPECT_NE(line.status.message().find("l: byte 3: a line is longer than 100 bytes"),
            std::string::npos)
      << line.status;
  EXPECT_NE(line.status.message().find("--max_line_mib"), std::string::npos) << line.status;
}

TEST(TextSource, NamesFilesThatAreNoText) {
  const auto error = [](const std::string& begin) {
    const Read read = ReadText(begin + "rest", "", 8);
    EXPECT_EQ(read.status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(read.status.message());
  };
  EXPECT_NE(error("\x1F\x8B").find("text: is compressed by gzip"), std::string::npos);
  EXPECT_NE(error("PAR1").find("a Parquet file"), std::string::npos);
  EXPECT_NE(error("\xFF\xFE").find("UTF-16"), std::string::npos);
  EXPECT_NE(error("\x88\xD8\x34\x01").find("a token shard already"), std::string::npos);
}

// What a source says of a file whose format was not given.
std::string GuessedError(const std::string& name, const std::string& contents) {
  const std::string path = WriteFile(name, contents);
  const Input input = {path, FormatOfName(path), /*format_given=*/false};
  const absl::Status before = TextSource({input}, {}).CheckInputs();
  const Read read = ReadAll({input}, {});
  EXPECT_EQ(read.status, before);
  EXPECT_EQ(ReadAll({{path, FormatOfName(path)}}, {}).status.ok(), true) << "format_given";
  return std::string(before.message());
}

TEST(TextSource, K2_04_JsonUnderAnotherNameIsRefusedUnlessTheFormatIsGiven) {
  const std::string line = "{\"text\": \"a b\"}\n";
  for (const char* name : {"pages.json", "pages.jsonl.txt", "pages", "pages.txt"}) {
    for (const std::string& contents :
         {line + line, "\xEF\xBB\xBF" + line, "\n  " + line, line.substr(0, line.size() - 1),
          std::string("{}\n"), "{ \"id\": 1, \"text\": \"" + std::string(9000, 'x') + "\"}\n"}) {
      const std::string error = GuessedError(name, contents);
      EXPECT_NE(error.find(std::string("/") + name + ": begins as lines of JSON"),
                std::string::npos)
          << error;
      EXPECT_NE(error.find("--format=jsonl"), std::string::npos) << error;
      EXPECT_NE(error.find("--format=text"), std::string::npos) << error;
    }
  }
  const std::string list = GuessedError("pages.json", "[\n " + line + "]\n");
  EXPECT_NE(list.find("pages.json: is a list in JSON"), std::string::npos) << list;
  EXPECT_NE(list.find("jq -c '.[]' "), std::string::npos) << list;
  EXPECT_NE(GuessedError("words.json", "[\"a\", \"b\"]").find("is a list"), std::string::npos);
  const std::string several = GuessedError("pages.json", "{\n  \"text\": \"a\"\n}\n");
  EXPECT_NE(several.find("objects take several lines"), std::string::npos) << several;
  EXPECT_NE(several.find("jq -c . "), std::string::npos) << several;
}

TEST(TextSource, K2_04_TextThatIsNoJsonStaysText) {
  for (const char* text : {"", " ", "{", "[", "{x}", "{{\"a\"}}", "[[link]] and text", "[1, 2]",
                           "\"{\"", "text {\"a\": 1}", "{ a \"b\" }", "[x] {\"y\"}"}) {
    EXPECT_EQ(GuessedError("story.txt", text), "") << text;
  }
}

TEST(TextSource, K2_04_NamesInAnyCase) {
  for (const char* name : {"a.jsonl", "a.JSONL", "a.JsonL", "a.ndjson", "dir.txt/A.NDJSON"}) {
    EXPECT_EQ(FormatOfName(name), TextFormat::kJsonLines) << name;
  }
  for (const char* name : {"a.json", "a.jsonl.txt", "jsonl", "-", "a.txt"}) {
    EXPECT_EQ(FormatOfName(name), TextFormat::kText) << name;
  }
}

TEST(TextSource, K2_04_ZeroBytesAreNoText) {
  const std::string error = GuessedError("wide.txt", std::string("a\0b\0", 4));
  EXPECT_NE(error.find("wide.txt: byte 1 is zero"), std::string::npos) << error;
  EXPECT_NE(error.find("iconv -f UTF-16LE"), std::string::npos) << error;
}

// Who follows the advice gets the format that the name promises.
TEST(TextSource, K2_24_TheAdviceForCompressedFilesIsACommandForThem) {
  const auto error = [](const std::string& name, const std::string& begin) {
    const std::string path = WriteFile(name, begin);
    const absl::Status status = TextSource({{path, FormatOfName(path), false}}, {}).CheckInputs();
    return std::string(status.message());
  };
  EXPECT_NE(error("pages.jsonl.gz", "\x1F\x8B").find("pages.jsonl.gz | tokenize --format=jsonl -"),
            std::string::npos);
  EXPECT_NE(error("book.txt.zst", "\x28\xB5\x2F\xFD").find("book.txt.zst | tokenize -"),
            std::string::npos);
  EXPECT_NE(error("pages.jsonl", "\xFF\xFE").find("pages.jsonl | tokenize --format=jsonl -"),
            std::string::npos);
}

TEST(TextSource, D13_ABigEndianShardIsNamedAsSuch) {
  const Read read = ReadText("\x01\x34\xD8\x88rest", "", 8);
  EXPECT_NE(read.status.message().find("a token shard in big-endian byte order"), std::string::npos)
      << read.status;
}

TEST(TextSource, ChecksInputsBeforehand) {
  const auto check = [](const std::string& path) {
    return TextSource({{path, TextFormat::kText}}, {}).CheckInputs();
  };
  EXPECT_TRUE(check(WriteFile("x", "")).ok());
  EXPECT_EQ(check("/no/such/file").code(), absl::StatusCode::kNotFound);
  EXPECT_NE(check("/no/such/file").message().find("/no/such/file: cannot open"), std::string::npos);
  EXPECT_NE(check(testing::TempDir()).message().find("is a folder"), std::string::npos);
}

TEST(TextSource, TotalBytes) {
  const Input ten = {WriteFile("ten", "0123456789"), TextFormat::kText};
  EXPECT_EQ(TextSource({ten, ten}, {}).TotalBytes(), 20);
  EXPECT_EQ(TextSource({ten, {"/dev/null", TextFormat::kText}}, {}).TotalBytes(), -1);
}

}  // namespace
}  // namespace tools
