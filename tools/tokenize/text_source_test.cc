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
