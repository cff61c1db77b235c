#include "tools/fetch_fineweb/http_client.h"

#include <string>

#include "gtest/gtest.h"

namespace tools {
namespace {

HttpResponse Read(std::initializer_list<const char*> lines) {
  HttpResponse response;
  for (const char* line : lines) ReadHeaderLine(line, &response);
  return response;
}

TEST(ReadHeaderLine, WhatTheDownloaderNeeds) {
  const HttpResponse response =
      Read({"HTTP/1.1 206 Partial Content\r\n", "content-length: 900\r\n", "ETag: \"a:b\"\r\n",
            "CONTENT-RANGE:bytes 100-999/1000\r\n", "X-Linked-Size: 200001024\r\n",
            "X-Linked-ETag: \"ab\"\r\n", "Other: thing\r\n", "\r\n"});
  EXPECT_EQ(response.status, 206);
  EXPECT_EQ(response.content_length, 900);
  EXPECT_EQ(response.etag, "\"a:b\"");
  EXPECT_EQ(response.range_first, 100);
  EXPECT_EQ(response.range_total, 1000);
  EXPECT_EQ(response.linked_size, 200'001'024);
  EXPECT_EQ(response.linked_etag, "\"ab\"");
}

// A redirect's headers are not those of the file.
TEST(ReadHeaderLine, AStatusLineStartsAfresh) {
  const HttpResponse response = Read({"HTTP/2 302\r\n", "etag: \"redirect\"\r\n",
                                      "content-length: 5\r\n", "\r\n", "HTTP/2 200\r\n", "\r\n"});
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.etag, "");
  EXPECT_EQ(response.content_length, -1);
}

TEST(ReadHeaderLine, WhatCannotBeReadWasNotSent) {
  EXPECT_EQ(Read({"Content-Length: -1\r\n"}).content_length, -1);
  EXPECT_EQ(Read({"Content-Length: 12x\r\n"}).content_length, -1);
  EXPECT_EQ(Read({"Content-Length: 99999999999999999999\r\n"}).content_length, -1);
  EXPECT_EQ(Read({"Content-Range: bytes */1000\r\n"}).range_first, -1);
  EXPECT_EQ(Read({"Content-Range: items 1-2/3\r\n"}).range_first, -1);
  EXPECT_EQ(Read({"Content-Range: bytes 5-9/*\r\n"}).range_first, 5);
  EXPECT_EQ(Read({"Content-Range: bytes 5-9/*\r\n"}).range_total, -1);
  EXPECT_EQ(Read({"HTTP/1.1\r\n"}).status, 0);
}

}  // namespace
}  // namespace tools
