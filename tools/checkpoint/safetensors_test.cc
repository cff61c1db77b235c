#include "tools/checkpoint/safetensors.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/checkpoint/files.h"

namespace tools {
namespace {

std::string TempPath(const std::string& name) { return testing::TempDir() + "/" + name; }

SafetensorsFile Example() {
  SafetensorsFile file;
  file.metadata["recipe"] = "muon_custom_sizing";
  file.tensors["a.weight"] = {kernels::DType::kF32, {2, 3}, std::string(24, 'x')};
  file.tensors["b"] = {kernels::DType::kBF16, {5}, "0123456789"};
  file.tensors["empty"] = {kernels::DType::kF32, {0, 4}, ""};
  return file;
}

// A file of the given JSON header and data bytes.
std::string WriteRaw(const std::string& name, const std::string& header, const std::string& data,
                     uint64_t claimed = 0) {
  const uint64_t length = claimed ? claimed : header.size();
  std::string content(reinterpret_cast<const char*>(&length), 8);
  content += header + data;
  const std::string path = TempPath(name);
  EXPECT_TRUE(WriteFileAtomically(path, {content}).ok());
  return path;
}

void ExpectError(const std::string& path, absl::StatusCode code, const std::string& part) {
  const absl::StatusOr<SafetensorsFile> file = ReadSafetensors(path);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), code) << file.status();
  EXPECT_NE(file.status().message().find(part), absl::string_view::npos) << file.status();
  EXPECT_NE(file.status().message().find(path), absl::string_view::npos) << file.status();
}

TEST(Safetensors, RoundTrip) {
  const std::string path = TempPath("round_trip.safetensors");
  const SafetensorsFile file = Example();
  ASSERT_TRUE(WriteSafetensors(path, file).ok());
  const absl::StatusOr<SafetensorsFile> read = ReadSafetensors(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tensors, file.tensors);
  EXPECT_EQ(read->metadata, file.metadata);
  // Nothing temporary is left beside it.
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(path).parent_path())) {
    const std::string other = entry.path().string();
    EXPECT_TRUE(other == path || other.rfind(path, 0) != 0) << other;
  }
}

TEST(Safetensors, TheHeaderIsTheDocumentedOne) {
  const std::string path = TempPath("header.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, Example()).ok());
  const std::string content = *ReadFile(path);
  uint64_t length = 0;
  std::memcpy(&length, content.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_NE(content.find(R"("a.weight":{"data_offsets":[0,24],"dtype":"F32","shape":[2,3]})"),
            std::string::npos)
      << content.substr(8, length);
  EXPECT_EQ(content.size(), 8 + length + 34);
}

TEST(Safetensors, X5_TruncatedAtEveryByte) {
  const std::string whole_path = TempPath("whole.safetensors");
  ASSERT_TRUE(WriteSafetensors(whole_path, Example()).ok());
  const std::string whole = *ReadFile(whole_path);
  const std::string path = TempPath("cut.safetensors");
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_TRUE(WriteFileAtomically(path, {absl::string_view(whole).substr(0, size)}).ok());
    const absl::StatusOr<SafetensorsFile> file = ReadSafetensors(path);
    ASSERT_FALSE(file.ok()) << size << " of " << whole.size() << " bytes";
    EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss) << file.status();
  }
}

TEST(Safetensors, HeaderClaimsMoreThanTheFileHolds) {
  ExpectError(WriteRaw("claims.safetensors", "{}", "", 1000), absl::StatusCode::kDataLoss,
              "claims 1000 bytes, the file holds 2");
  ExpectError(WriteRaw("huge.safetensors", "{}", "", ~uint64_t{0}), absl::StatusCode::kDataLoss,
              "claims 18446744073709551615");
}

TEST(Safetensors, BadEntriesAreNamed) {
  ExpectError(WriteRaw("j.safetensors", "[1]", ""), absl::StatusCode::kDataLoss, "JSON object");
  ExpectError(WriteRaw("k.safetensors", R"({"w":{"dtype":"F32"}})", ""),
              absl::StatusCode::kDataLoss, "tensor w");
  ExpectError(
      WriteRaw("l.safetensors", R"({"w":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}})", "x"),
      absl::StatusCode::kInvalidArgument, "is F8");
  ExpectError(WriteRaw("m.safetensors", R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
                       "xxxx"),
              absl::StatusCode::kDataLoss, "needs 8 bytes");
  ExpectError(WriteRaw("n.safetensors", R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                       "xxxx"),
              absl::StatusCode::kDataLoss, "the file holds 4");
  ExpectError(WriteRaw("o.safetensors",
                       R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "xxxxxxxx"),
              absl::StatusCode::kDataLoss, "whole number");
  ExpectError(
      WriteRaw("p.safetensors",
               R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
               "xxxxxxxx"),
      absl::StatusCode::kDataLoss, "overflows");
  ExpectError(WriteRaw("q.safetensors", R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                       "xxxxy"),
              absl::StatusCode::kDataLoss, "the file holds 5");
}

TEST(Safetensors, K2_10_TensorsThatDoNotCoverTheDataOnceAreNamed) {
  const auto entry = [](const std::string& name, int begin, int end) {
    return "\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" +
           std::to_string(std::max(0, end - begin) / 4) + "],\"data_offsets\":[" +
           std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  const auto expect = [&](const std::vector<std::string>& entries, int bytes,
                          const std::string& text) {
    std::string header = "{";
    for (const std::string& e : entries) header += (header.size() > 1 ? "," : "") + e;
    ExpectError(WriteRaw("cover.safetensors", header + "}", std::string(bytes, 'x')),
                absl::StatusCode::kDataLoss, text);
  };
  expect({entry("a", 0, 8), entry("b", 4, 12)}, 12,
         "tensor b: begins at byte 4 of the data, where tensor a has bytes 0 to 8");
  expect({entry("a", 0, 4), entry("b", 8, 12)}, 12,
         "tensor b: begins at byte 8 of the data, and bytes 4 to 8 before it are of no tensor");
  expect({entry("a", 4, 8)}, 8, "tensor a: begins at byte 4 of the data, and bytes 0 to 4");
  expect({entry("a", 0, 4), entry("b", 0, 4)}, 4, "has the bytes of tensor ");
  expect({entry("a", 0, 4), entry("b", 0, 4)}, 4, ", 0 to 4");
  // The last one counts, and the first one's bytes are nobody's.
  expect({entry("a", 0, 4), entry("a", 4, 8)}, 8, "tensor a: begins at byte 4");
  expect({entry("a", 4, 8), entry("a", 0, 4)}, 8, "end at byte 4 of the data, the file holds 8");
  expect({entry("a", 4, 0)}, 4, "tensor a: its data_offsets run backwards, from 4 to 0");
}

TEST(Safetensors, K2_10_FieldsTwiceAndOtherMetadataAreNamed) {
  ExpectError(
      WriteRaw("r.safetensors",
               R"({"w":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", "xxxx"),
      absl::StatusCode::kDataLoss, "tensor w: has shape twice");
  ExpectError(WriteRaw("s.safetensors", R"({"__metadata__":{"step":7}})", ""),
              absl::StatusCode::kDataLoss, "__metadata__ has step, which is no string");
  ExpectError(WriteRaw("t.safetensors", R"({"__metadata__":{},"__metadata__":{}})", ""),
              absl::StatusCode::kDataLoss, "has __metadata__ twice");
  // Stricter than the reference, on purpose.
  ExpectError(WriteRaw("u.safetensors", R"({"w":["F32",[1],[0,4]]})", "xxxx"),
              absl::StatusCode::kDataLoss, "tensor w");
  ExpectError(WriteRaw("v.safetensors",
                       R"({"w":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}})", "xxxx"),
              absl::StatusCode::kDataLoss, "tensor w");
}

TEST(Safetensors, D13_ABigEndianLengthIsNamedAsSuch) {
  ExpectError(WriteRaw("w.safetensors", "{}", "", uint64_t{2} << 56), absl::StatusCode::kDataLoss,
              "the length of its header, 2, is written in big-endian byte order");
}

TEST(Safetensors, GarbageIsAnErrorNotACrash) {
  const std::string whole_path = TempPath("seed.safetensors");
  ASSERT_TRUE(WriteSafetensors(whole_path, Example()).ok());
  const std::string whole = *ReadFile(whole_path);
  const std::string path = TempPath("garbage.safetensors");
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string changed = whole;
    for (int i = 0; i < 3; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    ASSERT_TRUE(WriteFileAtomically(path, {changed}).ok());
    const absl::StatusOr<SafetensorsFile> file = ReadSafetensors(path);
    if (file.ok()) continue;  // the change hit tensor data or a name
    EXPECT_NE(file.status().message().find(path), absl::string_view::npos) << file.status();
  }
}

TEST(Files, ErrorsNameThePath) {
  EXPECT_EQ(ReadFile(TempPath("absent")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadFile(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status status = WriteFileAtomically(TempPath("no/such/folder/x"), {"x"});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("no/such/folder/x"), absl::string_view::npos) << status;
}

// A rename would put a file in the place of the device.
TEST(Files, DevicesAndFoldersAreNotReplaced) {
  for (const std::string& path : {std::string("/dev/null"), testing::TempDir()}) {
    const absl::Status status = WriteFileAtomically(path, {"x"});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace tools
