#include "tools/export_hf/export_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/bpe/byte_tokens.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "nlohmann/json.hpp"
#include "tools/checkpoint/files.h"
#include "tools/checkpoint/safetensors.h"
#include "tools/export_hf/modeling_files.h"
#include "tools/export_hf/test_model.h"
#include "tools/export_hf/tokenizer_files.h"

namespace tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A test model in a folder of its own, perhaps with more metadata, and its export.
class Exported {
 public:
  explicit Exported(const std::string& record,
                    const std::map<std::string, std::string>& metadata = {}) {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->name()) + "_" + record;
    std::replace(name.begin(), name.end(), '/', '_');
    root = testing::TempDir() + "/" + name;
    fs::remove_all(root);
    fs::create_directories(root);
    original = root + "/model.safetensors";
    folder = root + "/hf";
    SafetensorsFile file = TestModel(record);
    file.metadata.insert(metadata.begin(), metadata.end());
    EXPECT_TRUE(WriteSafetensors(original, file).ok());
    const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
    auto loaded = LoadSavedModel(original, kernels::CpuBackend(), *queue);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    saved = *std::move(loaded);
    const absl::Status written = Export({.out = folder, .merges = "", .overwrite = false});
    EXPECT_TRUE(written.ok()) << written;
  }

  absl::Status Export(const ExportOptions& options) const {
    const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
    return ExportModel(saved, options, *queue).status();
  }
  std::string Text(const std::string& name) const { return *ReadFile(folder + "/" + name); }
  json Config() const { return json::parse(Text("config.json")); }
  SafetensorsFile Weights() const { return *ReadSafetensors(folder + "/model.safetensors"); }
  void SetWeights(const SafetensorsFile& file) const {
    ASSERT_TRUE(WriteSafetensors(folder + "/model.safetensors", file).ok());
  }
  absl::StatusOr<std::vector<std::string>> Import(bool round = false) const {
    return ImportModel(
        {.folder = folder, .out = root + "/imported", .round = round, .overwrite = true});
  }
  std::string Imported() const { return *ReadFile(root + "/imported"); }

  std::string root, original, folder;
  SavedModel saved;
};

// Its message holds all the texts.
void ExpectRefused(const absl::Status& status, const std::vector<std::string>& texts) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& text : texts) {
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
        << "no \"" << text << "\" in: " << status;
  }
}

class EveryRecord : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Records, EveryRecord,
                         testing::Values("muon_custom_sizing", "fix_muon_lr", "unified_optimizers",
                                         "anvil", "record7"),
                         [](const auto& record) { return std::string(record.param); });

TEST_P(EveryRecord, ComesBackBitForBit) {
  const Exported exported(GetParam());
  const auto converted = exported.Import();
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_TRUE(converted->empty());
  EXPECT_EQ(exported.Imported(), *ReadFile(exported.original));
}

TEST_P(EveryRecord, WeightsAreTheCheckpoints) {
  const Exported exported(GetParam());
  const SafetensorsFile file = exported.Weights();
  EXPECT_EQ(file.tensors, TestModel(GetParam()).tensors);
  EXPECT_EQ(file.metadata.at("format"), "pt");  // transformers refuses files without
}

TEST_P(EveryRecord, ConfigIsTheModels) {
  const Exported exported(GetParam());
  const json config = exported.Config();
  const model::GptConfig& model = exported.saved.recipe.model;
  EXPECT_EQ(config["model_type"], "nanospeed");
  EXPECT_EQ(config["vocab_size"], 384);
  EXPECT_EQ(config["embedding_rows"], 384);
  EXPECT_EQ(config["hidden_size"], 128);
  EXPECT_EQ(config["intermediate_size"], 512);
  EXPECT_EQ(config["num_attention_heads"], 2);
  EXPECT_EQ(config["head_dim"], 64);
  EXPECT_EQ(config["num_hidden_layers"], model.layers.size());
  ASSERT_EQ(config["layers"].size(), model.layers.size());
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const json& layer = config["layers"][i];
    EXPECT_EQ(layer["attention"], model.layers[i].attention) << i;
    EXPECT_EQ(layer["mlp"], model.layers[i].mlp) << i;
    EXPECT_EQ(layer["long_window"], model.layers[i].long_window) << i;
    EXPECT_EQ(layer["paired_heads"], model.layers[i].paired_heads) << i;
    EXPECT_EQ(layer["key_offset"], model.layers[i].key_offset) << i;
    EXPECT_EQ(layer["value_embedding"], model.layers[i].value_embedding) << i;
    EXPECT_EQ(layer["skip_from"], model.layers[i].skip_from) << i;
  }
  EXPECT_EQ(config["split_attention_banks"], model.split_attention_banks);
  EXPECT_EQ(config["backout_layer"], model.backout_layer);
  EXPECT_EQ(config["softcap"], model.softcap);
  EXPECT_EQ(config["bos_token_id"], 256);
  const sched::Schedules& s = exported.saved.recipe.schedules;
  const sched::Rotary rotary = sched::RotaryAt(s.rotary, s.window, s.run, exported.saved.step);
  EXPECT_EQ(config["rotary_frequencies"].get<std::vector<float>>(), rotary.frequencies);
  EXPECT_EQ(config["attention_scale"].get<float>(), static_cast<float>(rotary.attn_scale));
  const json generation = json::parse(exported.Text("generation_config.json"));
  ASSERT_EQ(generation["suppress_tokens"].size(), 384u - 257);
  EXPECT_EQ(generation["suppress_tokens"].front(), 257);
}

TEST_P(EveryRecord, K2_09_NamesBeginningEndAndPadding) {
  const Exported exported(GetParam());
  const json generation = json::parse(exported.Text("generation_config.json"));
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    EXPECT_EQ(exported.Config()[key], 256) << key;
    EXPECT_EQ(generation[key], 256) << key;
    EXPECT_NE(std::string(kConfigurationFile).find(std::string("self.") + key + " = "),
              std::string::npos);
  }
  const json tokenizer = json::parse(exported.Text("tokenizer_config.json"));
  for (const char* key : {"bos_token", "eos_token", "pad_token"}) {
    EXPECT_EQ(tokenizer[key], "<|endoftext|>") << key;
  }
}

// 25 of 40 steps: the middle is in it.
TEST(Export, ExtensionOfItsOwnLength) {
  const Exported exported("unified_optimizers", {{"extension_steps", "25"}});
  EXPECT_EQ(exported.saved.recipe.schedules.run.scheduled_steps, 15);
  EXPECT_EQ(exported.Config()["long_window"], 13 * 16);
  EXPECT_EQ(exported.Config()["nanospeed"]["extension_steps"], "25");
  const auto converted = exported.Import();
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_EQ(exported.Imported(), *ReadFile(exported.original));

  SafetensorsFile file = TestModel("unified_optimizers");
  file.metadata["extension_steps"] = "41";
  const std::string path = exported.root + "/more.safetensors";
  ASSERT_TRUE(WriteSafetensors(path, file).ok());
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
  ExpectRefused(LoadSavedModel(path, kernels::CpuBackend(), *queue).status(),
                {"extension_steps=41", "total_steps=40"});
}

// Windows in the middle of each demo's run, in tokens: 7 blocks of 16, or the growing window.
TEST(Export, Windows) {
  struct Case {
    const char* record;
    int short_window, long_window, window_block;
  };
  for (const Case& c : {Case{"muon_custom_sizing", 48, 112, 0}, Case{"fix_muon_lr", 48, 112, 0},
                        Case{"unified_optimizers", 48, 112, 0}, Case{"record7", 48, 112, 16}}) {
    const json config = Exported(c.record).Config();
    EXPECT_EQ(config["short_window"], c.short_window) << c.record;
    EXPECT_EQ(config["long_window"], c.long_window) << c.record;
    EXPECT_EQ(config["window_block"], c.window_block) << c.record;
  }
}

// What the parts of each record are, in the words that modeling_nanospeed.py reads.
TEST(Export, Parts) {
  const json a = Exported("muon_custom_sizing").Config(),
             c = Exported("unified_optimizers").Config(), r = Exported("record7").Config();
  const auto expect = [&](const char* key, const json& of_a, const json& of_c, const json& of_r) {
    EXPECT_EQ(a[key], of_a) << key;
    EXPECT_EQ(c[key], of_c) << key;
    EXPECT_EQ(r[key], of_r) << key;
  };
  expect("storage", "per_layer", "banks", "per_layer");
  expect("qkvo_shape", "wide", "wide", "stack");
  expect("mlp_layout", "dim_hidden", "hidden_dim", "out_in");
  EXPECT_EQ(a["mlp_names"], json({"c_fc", "c_proj"}));
  EXPECT_EQ(r["mlp_names"], json({"fc_w", "proj_w"}));
  expect("head_layout", "vocab_dim", "dim_vocab", "vocab_dim");
  expect("head_name", "lm_head.weight", "lm_head.weight", "lm_head_w");
  expect("scalar_count", 72, 36, 80);
  expect("smear_lambda", 60, 33, -1);
  expect("backout_lambda", -1, 34, -1);
  expect("attention_input", "normed", "normed", "stream");
  expect("attention_gate", true, true, false);
  expect("rotary_pairs", "halves", "neighbours", "halves");
  expect("rotary_dtype", "bf16", "bf16", "f32");
  expect("value_norm", false, false, true);
  expect("value_mix", "scalars", "gate", "scalars");
  expect("skip_weight", "sigmoid", "gate", "plain");
  EXPECT_EQ(a["layers"][6]["skip_scalar"], 0);
  EXPECT_EQ(c["layers"][6]["skip_scalar"], 35);
  EXPECT_EQ(r["layers"][9]["skip_scalar"], 6);
  EXPECT_EQ(c["layers"][6]["attention_lambda"], -1);
  EXPECT_EQ(c["layers"][1]["attention_factor"], 13);
  EXPECT_EQ(c["layers"][1]["x0_lambda"], 37);
  EXPECT_EQ(r["layers"][1]["x0_lambda"], 19);
  EXPECT_EQ(r["layers"][1]["attention_lambda"], 50);
}

TEST(Export, Files) {
  const Exported exported("record7");
  EXPECT_EQ(exported.Text("modeling_nanospeed.py"), kModelingFile);
  EXPECT_EQ(exported.Text("configuration_nanospeed.py"), kConfigurationFile);
  EXPECT_NE(exported.Text("modeling_nanospeed.py").find("class NanospeedForCausalLM"),
            std::string::npos);
  EXPECT_NE(exported.Text("README.md").find("# record7, demo"), std::string::npos);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(exported.folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"README.md", "config.json",
                                             "configuration_nanospeed.py", "generation_config.json",
                                             "model.safetensors", "modeling_nanospeed.py",
                                             "tokenizer.json", "tokenizer_config.json"}));
}

TEST(Export, ReplacesOnlyAnExportAndOnlyWhenTold) {
  const Exported exported("record7");
  ExpectRefused(exported.Export({.out = exported.folder, .merges = "", .overwrite = false}),
                {"--out=", "not empty", "--overwrite"});
  ASSERT_TRUE(WriteFileAtomically(exported.folder + "/stale", {"x"}).ok());
  ASSERT_TRUE(
      exported.Export({.out = exported.folder + "/", .merges = "", .overwrite = true}).ok());
  EXPECT_FALSE(fs::exists(exported.folder + "/stale"));

  const std::string other = exported.root + "/photos";
  fs::create_directories(other);
  EXPECT_TRUE(exported.Export({.out = other, .merges = "", .overwrite = false}).ok());  // empty
  fs::remove_all(other);
  fs::create_directories(other);
  ASSERT_TRUE(WriteFileAtomically(other + "/config.json", {"{\"model_type\": \"gpt2\"}"}).ok());
  ExpectRefused(exported.Export({.out = other, .merges = "", .overwrite = true}), {"no export"});
  EXPECT_TRUE(fs::exists(other + "/config.json"));
  ExpectRefused(exported.Export({.out = exported.original, .merges = "", .overwrite = true}),
                {"no folder"});
  ExpectRefused(
      exported.Export({.out = exported.root + "/new", .merges = "vocab.bpe", .overwrite = false}),
      {"--merges", "single bytes"});
  size_t count = 0;  // nothing temporary is left: model, hf, photos
  for (const auto& entry : fs::directory_iterator(exported.root)) count += entry.exists();
  EXPECT_EQ(count, 3u);
}

// What from_pretrained and save_pretrained make of it: f32 throughout, and metadata of their own.
SafetensorsFile AsFloat32(SafetensorsFile file) {
  for (auto& [name, tensor] : file.tensors) {
    if (tensor.dtype == kernels::DType::kF32) continue;
    std::string bytes;
    for (size_t i = 0; i < tensor.bytes.size(); i += 2) {
      bytes += std::string(2, '\0') + tensor.bytes.substr(i, 2);
    }
    tensor.bytes = bytes;
    tensor.dtype = kernels::DType::kF32;
  }
  file.metadata = {{"format", "pt"}};
  return file;
}

TEST_P(EveryRecord, ComesBackFromFloat32) {
  const Exported exported(GetParam());
  exported.SetWeights(AsFloat32(exported.Weights()));
  const auto converted = exported.Import();
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_FALSE(converted->empty());
  EXPECT_NE(converted->front().find("f32 to bf16, exactly"), std::string::npos);
  EXPECT_EQ(exported.Imported(), *ReadFile(exported.original));
}

TEST(Import, RoundsOnlyWhenTold) {
  const Exported exported("unified_optimizers");
  SafetensorsFile file = AsFloat32(exported.Weights());
  const float between = 1.0f + 0x1.8p-8f;  // three quarters of the way from 1 to the next bf16
  std::memcpy(file.tensors["embed.weight"].bytes.data(), &between, sizeof(between));
  exported.SetWeights(file);
  ExpectRefused(exported.Import().status(),
                {"embed.weight", "1 of 49152 values", "bf16", "--round"});
  const auto converted = exported.Import(/*round=*/true);
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_NE(std::find_if(converted->begin(), converted->end(),
                         [](const std::string& line) {
                           return line.find("1 values rounded") != std::string::npos;
                         }),
            converted->end());
  const SafetensorsFile back = *ReadSafetensors(exported.root + "/imported");
  uint16_t bits;
  std::memcpy(&bits, back.tensors.at("embed.weight").bytes.data(), sizeof(bits));
  EXPECT_EQ(bits, 0x3F81);
}

TEST(Import, SaysWhatIsWrong) {
  const Exported exported("fix_muon_lr");
  const SafetensorsFile good = exported.Weights();
  SafetensorsFile bad = good;
  bad.tensors.erase("blocks.3.mlp.c_fc");
  exported.SetWeights(bad);
  ExpectRefused(exported.Import().status(),
                {"model.safetensors", "blocks.3.mlp.c_fc", "missing", "[128, 512]"});
  bad = good;
  bad.tensors["smear_gate.weight"].shape = {12, 1};
  exported.SetWeights(bad);
  ExpectRefused(exported.Import().status(), {"smear_gate.weight", "[12, 1]", "[1, 12]"});
  bad = good;
  bad.tensors["lora"] = good.tensors.at("scalars");
  exported.SetWeights(bad);
  ExpectRefused(exported.Import().status(), {"lora", "none of fix_muon_lr's"});
  bad = good;
  bad.tensors["scalars"].dtype = kernels::DType::kI32;
  exported.SetWeights(bad);
  ExpectRefused(exported.Import().status(), {"scalars", "i32", "f32"});
  exported.SetWeights(good);

  const auto import_with = [&](const json& config) {
    EXPECT_TRUE(WriteFileAtomically(exported.folder + "/config.json", {config.dump()}).ok());
    return exported.Import().status();
  };
  const json config = exported.Config();
  json changed = config;
  changed["model_type"] = "gpt2";
  ExpectRefused(import_with(changed), {"config.json", "\"gpt2\"", "nanospeed"});
  changed = config;
  changed.erase("nanospeed");
  ExpectRefused(import_with(changed), {"nanospeed"});
  changed = config;
  changed["nanospeed"]["record"] = "record8";
  ExpectRefused(import_with(changed), {"record8", "record7"});
  changed = config;
  changed["vocab_size"] = 50304;
  ExpectRefused(import_with(changed), {"embed.weight", "[384, 128]", "[50304, 128]"});
  ASSERT_TRUE(import_with(config).ok());

  ExpectRefused(ImportModel({.folder = exported.folder,
                             .out = exported.root + "/imported",
                             .round = false,
                             .overwrite = false})
                    .status(),
                {"--out=", "exists", "--overwrite"});
  fs::rename(exported.folder + "/model.safetensors",
             exported.folder + "/model.safetensors.index.json");
  ExpectRefused(exported.Import().status(), {"several files", "max_shard_size"});
  fs::remove_all(exported.folder);
  EXPECT_EQ(exported.Import().status().code(), absl::StatusCode::kNotFound);
}

// The file's bytes with the header's text changed.
void ChangeHeader(const std::string& path, const std::string& from, const std::string& to) {
  std::string file = *ReadFile(path);
  const size_t at = file.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  file.replace(at, from.size(), to);
  ASSERT_EQ(from.size(), to.size());
  ASSERT_TRUE(WriteFileAtomically(path, {file}).ok());
}

TEST(Import, K2_10_OverlappingTensorsAreRefused) {
  const Exported exported("record7");
  const std::string path = exported.folder + "/model.safetensors";
  const json first = [&] {
    const std::string file = *ReadFile(path);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    return json::parse(file.substr(sizeof(length), length));
  }();
  // The bytes of one tensor for another of the same size: a hole, and two names on the same bytes.
  std::string name, other;
  for (const auto& [a, one] : first.items()) {
    for (const auto& [b, two] : first.items()) {
      if (a >= b || a == "__metadata__" || b == "__metadata__" || one["shape"] != two["shape"] ||
          one["data_offsets"].dump().size() != two["data_offsets"].dump().size()) {
        continue;
      }
      name = a;
      other = b;
    }
  }
  ASSERT_FALSE(name.empty());
  const std::string wanted = first[name]["data_offsets"].dump();
  ChangeHeader(path, first[other]["data_offsets"].dump(), wanted);
  for (const absl::Status& status :
       {exported.Import().status(),
        LoadSavedModel(exported.folder, kernels::CpuBackend(), *kernels::MakeCpuQueue(1))
            .status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_NE(std::string(status.message()).find(path + ": tensor "), std::string::npos) << status;
  }
}

TEST(Tokenizer, OfBytes) {
  const json tokenizer = json::parse(ByteTokenizerJson());
  const json& vocab = tokenizer["model"]["vocab"];
  EXPECT_EQ(vocab.size(), 257u);
  EXPECT_EQ(vocab["!"], 0);
  EXPECT_EQ(vocab["a"], data::kTokenOfByte['a']);
  EXPECT_EQ(vocab["\u0120"], data::kTokenOfByte[' ']);   // G with dot
  EXPECT_EQ(vocab["\u0100"], data::kTokenOfByte['\0']);  // A with macron
  EXPECT_EQ(vocab["\u0143"], data::kTokenOfByte[0xAD]);  // the last of them: the soft hyphen
  EXPECT_EQ(vocab["\u00FF"], data::kTokenOfByte[0xFF]);
  EXPECT_EQ(vocab["<|endoftext|>"], 256);
  EXPECT_EQ(tokenizer["post_processor"]["special_tokens"]["<|endoftext|>"]["ids"],
            json::array({256}));
  EXPECT_TRUE(tokenizer["model"]["merges"].empty());
}

TEST(Tokenizer, OfMerges) {
  const std::string path = testing::TempDir() + "/merges.txt";
  const std::vector<std::string> printable = [] {
    std::vector<std::string> characters;
    for (char c = '!'; c <= '~'; ++c) characters.emplace_back(1, c);
    return characters;
  }();
  // Every pair, and every pair with a third: enough for 50,000 different tokens.
  std::string text = "#version: 0.2\n";
  int count = 0;
  for (const std::string& a : printable) {
    for (const std::string& b : printable) {
      text += a + " " + b + "\n";
      ++count;
    }
  }
  for (int i = 0; count < 50'000; ++i, ++count) {
    const int n = static_cast<int>(printable.size());
    text += printable[i / n / n] + printable[i / n % n] + " " + printable[i % n] + "\n";
  }
  ASSERT_TRUE(WriteFileAtomically(path, {text}).ok());
  const auto written = Gpt2TokenizerJson(path);
  ASSERT_TRUE(written.ok()) << written.status();
  const json tokenizer = json::parse(*written);
  EXPECT_EQ(tokenizer["model"]["vocab"].size(), 50257u);
  EXPECT_EQ(tokenizer["model"]["vocab"]["!!"], 256);
  EXPECT_EQ(tokenizer["model"]["vocab"]["<|endoftext|>"], 50256);
  EXPECT_EQ(tokenizer["model"]["merges"].size(), 50'000u);
  EXPECT_EQ(tokenizer["model"]["merges"][1], json::array({"!", "\""}));

  ASSERT_TRUE(WriteFileAtomically(path, {"#version: 0.2\n! !\n"}).ok());
  ExpectRefused(Gpt2TokenizerJson(path).status(), {path, "1 merges", "50000"});
  EXPECT_EQ(Gpt2TokenizerJson(path + ".no").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tools
