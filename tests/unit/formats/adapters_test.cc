// PEFT's files: written, read, joined with a model and merged into it.
#include "formats/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/file.h"

namespace meshwright::formats {
namespace {

using ::testing::HasSubstr;

constexpr char kTurned[] = "model.h.0.c_attn.weight";    // [in 2, out 3]
constexpr char kStraight[] = "model.h.0.q_proj.weight";  // [out 3, in 2]
constexpr char kHead[] = "lm_head.weight";

// As PEFT 0.21.2 writes it, but for keys that are null or empty.
constexpr char kPeftsConfig[] = R"({
  "alora_invocation_tokens": null, "alpha_pattern": {}, "auto_mapping": null,
  "base_model_name_or_path": "gpt2", "bias": "none", "corda_config": null, "eva_config": null,
  "exclude_modules": null, "fan_in_fan_out": true, "inference_mode": true,
  "init_lora_weights": true, "layer_replication": null, "layers_pattern": null,
  "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 8, "lora_bias": false,
  "lora_dropout": 0.05, "megatron_config": null, "megatron_core": "megatron.core",
  "modules_to_save": ["lm_head"], "peft_type": "LORA", "peft_version": "0.21.2", "r": 4,
  "rank_pattern": {}, "revision": null, "target_modules": ["c_attn", "c_proj"],
  "target_parameters": null, "task_type": "CAUSAL_LM", "use_dora": false, "use_qalora": false,
  "use_rslora": true
})";

struct Named {
  const char* name;
  ir::Dims shape;
  std::vector<float> values;
};

class AdapterFiles : public ::testing::Test {
 protected:
  std::string Write(const char* file, const std::vector<Named>& tensors,
                    const std::map<std::string, std::string>& metadata = {}) {
    std::vector<TensorSpec> specs;
    for (const Named& each : tensors) specs.push_back({each.name, {ir::DType::kF32, each.shape}});
    const std::string path = dir_.File(file);
    const auto writer = SafetensorsWriter::Create(path, specs, metadata).value();
    for (const Named& each : tensors) {
      const Status written = writer->Write(each.name, 0, std::as_bytes(std::span(each.values)));
      EXPECT_TRUE(written.ok()) << written;
    }
    EXPECT_TRUE(writer->Finish().ok());
    return path;
  }

  static std::vector<float> Read(const SafetensorsFile& file, const std::string& name) {
    const SafetensorsEntry* entry = file.Find(name);
    if (entry == nullptr) return {};
    const auto bytes = file.data(*entry);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  // Rank 1, alpha 2: the scale is 2.
  std::string WriteTuned() {
    AdapterConfig config;
    config.lora = {.rank = 1,
                   .alpha = 2,
                   .target_modules = {"c_attn", "q_proj"},
                   .modules_to_save = {"lm_head"}};
    config.fan_in_fan_out = true;
    const std::string of = "base_model.model.";
    const std::string turned = of + "model.h.0.c_attn", straight = of + "model.h.0.q_proj";
    return Write("tuned.safetensors",
                 {{kTurned, {2, 3}, {0, 0, 0, 0, 0, 0}},
                  {kStraight, {3, 2}, {1, 1, 1, 1, 1, 1}},
                  {kHead, {2}, {7, 8}},
                  {(turned + ".lora_A.weight").c_str(), {1, 2}, {1, 10}},
                  {(turned + ".lora_B.weight").c_str(), {3, 1}, {1, 2, 3}},
                  {(straight + ".lora_A.weight").c_str(), {1, 2}, {1, 10}},
                  {(straight + ".lora_B.weight").c_str(), {3, 1}, {1, 2, 3}}},
                 {{"adapter_config", FormatAdapterConfig(config)}});
  }

  TempDir dir_ = TempDir::Make("mw-adapters").value();
};

TEST_F(AdapterFiles, MergingAddsTheScaledProductAsTheWeightLies) {
  const auto tuned = SafetensorsFile::Open(WriteTuned()).value();
  const std::string path = dir_.File("merged.safetensors");
  const Status merged = MergeAdapter(*tuned, path);
  ASSERT_TRUE(merged.ok()) << merged;
  const auto file = SafetensorsFile::Open(path).value();
  EXPECT_EQ(file->entries().size(), 3u);
  EXPECT_EQ(Read(*file, kTurned), (std::vector<float>{2, 4, 6, 20, 40, 60}));
  EXPECT_EQ(Read(*file, kStraight), (std::vector<float>{3, 21, 5, 41, 7, 61}));
  EXPECT_EQ(Read(*file, kHead), (std::vector<float>{7, 8}));
}

TEST_F(AdapterFiles, GoToPeftsFolderAndComeBack) {
  const auto tuned = SafetensorsFile::Open(WriteTuned()).value();
  const std::string folder = dir_.File("adapter");
  ASSERT_TRUE(WriteAdapter(*tuned, folder, "the/model").ok());
  const auto adapter = SafetensorsFile::Open(folder + "/adapter_model.safetensors").value();
  EXPECT_EQ(adapter->entries().size(), 5u);
  EXPECT_EQ(Read(*adapter, "base_model.model.lm_head.weight"), (std::vector<float>{7, 8}));
  const auto config = ParseAdapterConfig(ReadFile(folder + "/adapter_config.json").value());
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->lora.modules_to_save, std::vector<std::string>{"lm_head"});
  // Another head, which the adapter's replaces.
  const std::string base = Write("base.safetensors", {{kTurned, {2, 3}, {0, 0, 0, 0, 0, 0}},
                                                      {kStraight, {3, 2}, {1, 1, 1, 1, 1, 1}},
                                                      {kHead, {2}, {0, 0}}});
  const std::string joined = dir_.File("joined.safetensors");
  const Status status = JoinAdapter(base, folder, joined);
  ASSERT_TRUE(status.ok()) << status;
  const auto file = SafetensorsFile::Open(joined).value();
  EXPECT_EQ(file->entries().size(), tuned->entries().size());
  for (const SafetensorsEntry& entry : tuned->entries()) {
    EXPECT_EQ(Read(*file, entry.name), Read(*tuned, entry.name)) << entry.name;
  }
}

TEST_F(AdapterFiles, ThatBelongToAnotherModelAreRefused) {
  const auto tuned = SafetensorsFile::Open(WriteTuned()).value();
  const std::string folder = dir_.File("adapter");
  ASSERT_TRUE(WriteAdapter(*tuned, folder, "").ok());
  const std::string base = Write("base.safetensors", {{kTurned, {2, 3}, {0, 0, 0, 0, 0, 0}}});
  const Status status = JoinAdapter(base, folder, dir_.File("joined.safetensors"));
  EXPECT_THAT(status.message(), HasSubstr("belongs to no weight of"));
}

TEST_F(AdapterFiles, PlainWeightsHaveNone) {
  const auto plain = SafetensorsFile::Open(Write("plain.safetensors", {{kHead, {1}, {1}}})).value();
  EXPECT_THAT(MergeAdapter(*plain, dir_.File("out")).message(), HasSubstr("has no adapters"));
}

TEST_F(AdapterFiles, ShapesThatDoNotFitAreNamed) {
  AdapterConfig config;
  config.lora = {.rank = 1, .target_modules = {"q_proj"}};
  const std::string path =
      Write("tuned.safetensors",
            {{kStraight, {3, 2}, {1, 1, 1, 1, 1, 1}},
             {"base_model.model.model.h.0.q_proj.lora_A.weight", {1, 4}, {1, 1, 1, 1}},
             {"base_model.model.model.h.0.q_proj.lora_B.weight", {3, 1}, {1, 1, 1}}},
            {{"adapter_config", FormatAdapterConfig(config)}});
  const auto tuned = SafetensorsFile::Open(path).value();
  EXPECT_THAT(MergeAdapter(*tuned, dir_.File("out")).message(),
              HasSubstr("the adapter of 'model.h.0.q_proj.weight' does not fit"));
}

TEST(AdapterConfigs, OfPeftAreRead) {
  const auto config = ParseAdapterConfig(kPeftsConfig);
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->lora, (ir::LoraSpec{.rank = 4,
                                        .alpha = 8,
                                        .rank_stabilized = true,
                                        .dropout = 0.05,
                                        .target_modules = {"c_attn", "c_proj"},
                                        .modules_to_save = {"lm_head"}}));
  EXPECT_TRUE(config->fan_in_fan_out);
  const auto again = ParseAdapterConfig(FormatAdapterConfig(*config));
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(again->lora, config->lora);
}

TEST(AdapterConfigs, ThatAreMoreThanLoraAreRefusedByTheirKey) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("use_dora": false)", R"("use_dora": true)"},
      {R"("bias": "none")", R"("bias": "all")"},
      {R"("rank_pattern": {})", R"("rank_pattern": {"c_attn": 2})"},
      {R"("peft_type": "LORA")", R"("peft_type": "IA3")"},
      {R"("target_modules": ["c_attn", "c_proj"])", R"("target_modules": ".*attn")"}};
  for (const auto& [was, is] : cases) {
    std::string text = kPeftsConfig;
    text.replace(text.find(was), std::strlen(was), is);
    const auto config = ParseAdapterConfig(text);
    ASSERT_FALSE(config) << is;
    const std::string key = std::string(is).substr(1, std::string(is).find('"', 1) - 1);
    EXPECT_THAT(config.error().message(), HasSubstr(key));
  }
  EXPECT_FALSE(ParseAdapterConfig("[]"));
  EXPECT_FALSE(ParseAdapterConfig(R"({"peft_type": "LORA", "r": "four"})"));
  // It threw.
  EXPECT_THAT(ParseAdapterConfig(R"({"peft_type": 7, "r": 4})").error().message(),
              HasSubstr("peft_type is 7"));
  for (const char* rank : {"1e308", "1e19", "4.5"}) {
    const auto config =
        ParseAdapterConfig(std::string(R"({"peft_type": "LORA", "r": )") + rank + "}");
    EXPECT_THAT(config.error().message(), HasSubstr("\"r\" is ")) << rank;
  }
}

}  // namespace
}  // namespace meshwright::formats
