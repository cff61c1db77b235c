// Case K2-10: of damaged files, the same are refused as by the reference library.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/checkpoint/safetensors.h"
#include "tools/checkpoint/safetensors_header.h"

namespace tools {
namespace {

using nlohmann::json;

struct ReferenceCase {
  std::string name, file, error;
  bool accepted;
};

// What make_safetensors_cases.py wrote.
std::vector<ReferenceCase> ReadCases() {
  std::ifstream in("tools/checkpoint/testdata/safetensors_cases.jsonl");
  std::vector<ReferenceCase> cases;
  for (std::string line; std::getline(in, line);) {
    const json value = json::parse(line);
    ReferenceCase c = {value["case"], "", value["error"], value["accepted"]};
    EXPECT_TRUE(absl::Base64Unescape(value["file"].get<std::string>(), &c.file)) << c.name;
    cases.push_back(std::move(c));
  }
  return cases;
}

bool IsRead(const SafetensorsEntry& entry) {
  const std::vector<std::string> read = {"F32", "BF16", "I32", "I64", "U16"};
  return std::find(read.begin(), read.end(), entry.dtype) != read.end() &&
         std::all_of(entry.shape.begin(), entry.shape.end(),
                     [](uint64_t dim) { return dim >> 63 == 0; });
}

TEST(SafetensorsHeader, K2_10_TheReferencesVerdicts) {
  const std::vector<ReferenceCase> cases = ReadCases();
  ASSERT_GE(cases.size(), 400u);
  int differences = 0, accepted = 0;
  for (const ReferenceCase& c : cases) {
    const auto header = ParseSafetensorsHeader("dir/f.safetensors", c.file);
    EXPECT_EQ(header.ok(), c.accepted)
        << c.name << ": " << header.status() << "; the reference: " << c.error;
    differences += header.ok() != c.accepted;
    accepted += c.accepted;
    if (!header.ok()) {
      EXPECT_TRUE(absl::StartsWith(header.status().message(), "dir/f.safetensors: "))
          << header.status();
    }
    // The reader adds only that it reads five of the dtypes.
    const bool reads =
        header.ok() && std::all_of(header->tensors.begin(), header->tensors.end(), IsRead);
    EXPECT_EQ(ParseSafetensors("dir/f.safetensors", c.file).ok(), reads) << c.name;
  }
  EXPECT_GE(accepted, 90);
  EXPECT_GE(static_cast<int>(cases.size()) - accepted, 300);
  EXPECT_EQ(differences, 0) << "of " << cases.size() << " files";
}

}  // namespace
}  // namespace tools
