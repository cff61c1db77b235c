// The modeling file's logits, computed by PyTorch and committed, against our forward pass.
// testdata/RECORD.safetensors is written by verify_hf.py --write_fixture: its head says how.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/export_hf/modeling_files.h"
#include "tools/export_hf/own_logits.h"
#include "tools/export_hf/test_model.h"
#include "tools/sample/saved_model.h"
#include "tools/trainer/crc32c.h"

namespace tools {
namespace {

template <typename T>
std::vector<T> Values(const HostTensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

struct Difference {
  double largest = 0;
  double rms = 0;
};

// Of the rows that the fixture has.
Difference Compare(const std::vector<float>& own, const std::vector<int32_t>& positions,
                   const std::vector<float>& theirs) {
  const size_t vocab = theirs.size() / positions.size();
  Difference difference;
  for (size_t i = 0; i < theirs.size(); ++i) {
    const double d = double{own[positions[i / vocab] * vocab + i % vocab]} - theirs[i];
    difference.largest = std::max(difference.largest, std::abs(d));
    difference.rms += d * d / static_cast<double>(theirs.size());
  }
  difference.rms = std::sqrt(difference.rms);
  return difference;
}

class Logits : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Records, Logits,
                         testing::Values("muon_custom_sizing", "fix_muon_lr", "unified_optimizers",
                                         "anvil", "record7"),
                         [](const auto& record) { return std::string(record.param); });

TEST_P(Logits, AreTheModelingFiles) {
  const std::string record = GetParam();
  const auto fixture =
      ReadSafetensors(absl::StrCat("tools/export_hf/testdata/", record, ".safetensors"));
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  ASSERT_EQ(fixture->metadata.at("modeling_crc32c"), absl::StrCat(Crc32c(kModelingFile)))
      << "modeling_nanospeed.py has changed: write the fixture again";

  const std::string path = testing::TempDir() + "/" + record + ".safetensors";
  ASSERT_TRUE(WriteSafetensors(path, TestModel(record)).ok());
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
  const auto saved = LoadSavedModel(path, kernels::CpuBackend(), *queue);
  ASSERT_TRUE(saved.ok()) << saved.status();
  const auto logits = OwnLogits(*saved, Values<int32_t>(fixture->tensors.at("tokens")),
                                kernels::CpuBackend(), *queue);
  ASSERT_TRUE(logits.ok()) << logits.status();
  const std::vector<float> own = Values<float>(*logits);
  const std::vector<int32_t> positions = Values<int32_t>(fixture->tensors.at("positions"));
  const Difference f32 = Compare(own, positions, Values<float>(fixture->tensors.at("logits_f32")));
  const Difference bf16 =
      Compare(own, positions, Values<float>(fixture->tensors.at("logits_bf16")));
  // Our pass rounds to bf16 at some 10 places a layer, and the raw logits themselves, of up to 30
  // or so, to steps of 1/8. On the machine of the fixture that makes rms differences of 0.023 to
  // 0.031 from float32, and of 0.027 to 0.037 from bfloat16, where both sides round; other
  // instruction sets round otherwise, but no more. The smallest mistakes that were tried are above
  // the bounds: a window 16 tokens too long makes 0.07 and more, an attention scale 10% too large
  // 0.07, rotary frequencies 2% too large 0.05, a part left out (skip, backout, value embedding,
  // key offset, pairs of heads, documents) 0.3 to 3.
  EXPECT_LT(f32.rms, 0.045);
  EXPECT_LT(bf16.rms, 0.055);
  EXPECT_LT(f32.largest, 0.4);  // three steps of the largest raw logits
  EXPECT_LT(bf16.largest, 0.4);
}

}  // namespace
}  // namespace tools
