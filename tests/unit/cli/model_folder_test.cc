// What an exported folder has beside the weights.
#include "cli/model_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/text_codec.h"

namespace meshwright::cli {
namespace {

constexpr char kSmallQwen[] =
    R"({"model_type":"qwen2","architectures":["Qwen2ForCausalLM"],"vocab_size":300,)"
    R"("hidden_size":16,"intermediate_size":24,"num_hidden_layers":2,"num_attention_heads":4,)"
    R"("num_key_value_heads":2,"eos_token_id":7,"torch_dtype":"float16"})";

constexpr char kSmallTokenizer[] =
    R"({"version":"1.0","added_tokens":[{"id":2,"content":"</s>","single_word":false,)"
    R"("lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":null,)"
    R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
    R"("use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel"},)"
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"</s>":2},"merges":[]}})";

class ModelFolder : public ::testing::Test {
 protected:
  ir::JobRequest Job(const std::string& model) const {
    ir::JobRequest job;
    job.name = "small";
    job.config_text = fmt::format("[model]\n{}[training]\nseq_len = 8\n", model);
    return job;
  }
  std::string Read(const std::string& name) const { return ReadFile(to_.File(name)).value_or(""); }

  TempDir from_ = TempDir::Make().value();
  TempDir to_ = TempDir::Make().value();
};

TEST_F(ModelFolder, WithWeightsIsNotWrittenOver) {
  EXPECT_TRUE(CheckNoWeights(to_.File("missing")).ok());
  ASSERT_TRUE(WriteFileAtomic(to_.File("config.json"), "{}").ok());
  EXPECT_TRUE(CheckNoWeights(to_.path()).ok());
  ASSERT_TRUE(WriteFileAtomic(to_.File("model-00001-of-00002.safetensors"), "").ok());
  const Status status = CheckNoWeights(to_.path());
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find("model-00001-of-00002.safetensors"), std::string::npos);
}

TEST(TokenFormat, IsThatOfTheStream) {
  ir::DataSpec data;
  EXPECT_EQ(TokenFormatOf(data), "bytes");
  data.streams = {ir::DataStream()};
  data.streams[0].fields = {ir::DataField()};
  EXPECT_EQ(TokenFormatOf(data), "bytes");
  data.streams[0].fields[0].element = ir::Element::kU16;
  EXPECT_EQ(TokenFormatOf(data), "uint16");
  data.streams[0].fields[0].element = ir::Element::kU32;
  EXPECT_EQ(TokenFormatOf(data), "uint32");
}

TEST_F(ModelFolder, HasTheFoldersConfigWithTheSizesThatWereTrained) {
  ASSERT_TRUE(WriteFileAtomic(from_.File("config.json"), kSmallQwen).ok());
  ASSERT_TRUE(WriteFileAtomic(from_.File("tokenizer.json"), "{\"a\":1}").ok());
  ASSERT_TRUE(WriteFileAtomic(from_.File("notes.txt"), "no file of a model").ok());
  const ir::JobRequest job =
      Job(fmt::format("hf_path = \"{}\"\nfrom_scratch = true\nn_layers = 3\n", from_.path()));
  const Status written = WriteModelFolder(job, ir::DType::kBF16, to_.path());
  ASSERT_TRUE(written.ok()) << written;
  const auto config = nlohmann::json::parse(Read("config.json"));
  EXPECT_EQ(config["num_hidden_layers"], 3);
  EXPECT_EQ(config["eos_token_id"], 7) << "what is no key of the model stays";
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["rope_parameters"]["rope_type"], "default");
  EXPECT_EQ(Read("tokenizer.json"), "{\"a\":1}");
  const auto generation = nlohmann::json::parse(Read("generation_config.json"));
  EXPECT_EQ(generation["eos_token_id"], 7) << "or its texts would never end";
  EXPECT_FALSE(generation.contains("pad_token_id"));
  EXPECT_FALSE(FileExists(to_.File("notes.txt")));
  ASSERT_TRUE(WriteFileAtomic(from_.File("generation_config.json"), "{\"top_k\":5}").ok());
  ASSERT_TRUE(WriteModelFolder(job, ir::DType::kF32, to_.path()).ok());
  EXPECT_EQ(Read("generation_config.json"), "{\"top_k\":5}");
}

TEST_F(ModelFolder, HasTheTokenizerThatTheJobNames) {
  ASSERT_TRUE(WriteFileAtomic(from_.File("mine.json"), "{\"b\":2}").ok());
  ASSERT_TRUE(WriteFileAtomic(from_.File("tokenizer_config.json"), "{\"c\":3}").ok());
  ASSERT_TRUE(WriteFileAtomic(from_.File("generation_config.json"), "{\"top_k\":5}").ok());
  ir::JobRequest job = Job("name = \"gemma2\"\n");
  job.config_text +=
      fmt::format("dataset_format = \"text\"\ntokenizer = \"{}\"\n", from_.File("mine.json"));
  const Status written = WriteModelFolder(job, ir::DType::kF32, to_.path());
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_EQ(Read("tokenizer.json"), "{\"b\":2}");
  EXPECT_EQ(Read("tokenizer_config.json"), "{\"c\":3}");
  EXPECT_FALSE(nlohmann::json::parse(Read("generation_config.json")).contains("eos_token_id"));
  // Of a tokenizer that can be read, its end of a text.
  ASSERT_TRUE(WriteFileAtomic(from_.File("mine.json"), kSmallTokenizer).ok());
  ASSERT_TRUE(WriteModelFolder(job, ir::DType::kF32, to_.path()).ok());
  EXPECT_EQ(nlohmann::json::parse(Read("generation_config.json"))["eos_token_id"], 2);
  ASSERT_TRUE(std::filesystem::remove(from_.File("mine.json")));
  EXPECT_NE(WriteModelFolder(job, ir::DType::kF32, to_.path()).message().find("training.tokenizer"),
            std::string::npos);
}

TEST_F(ModelFolder, OfAModelByItsNameSaysAllOfIt) {
  const Status written = WriteModelFolder(Job("name = \"gemma2\"\n"), ir::DType::kF32, to_.path());
  ASSERT_TRUE(written.ok()) << written;
  const auto config = nlohmann::json::parse(Read("config.json"));
  EXPECT_EQ(config["model_type"], "gemma2");
  EXPECT_EQ(config["architectures"][0], "Gemma2ForCausalLM");
  EXPECT_EQ(config["layer_types"][0], "sliding_attention");
}

TEST_F(ModelFolder, WhatCannotBeSaidNamesTheWayOut) {
  const auto message = [&](const ir::JobRequest& job) {
    return WriteModelFolder(job, ir::DType::kF32, to_.path()).message();
  };
  ir::JobRequest bare;
  bare.name = "bare";
  for (const auto& [found, wanted] :
       {std::pair(message(bare), "job 'bare' has no job file"),
        std::pair(message(Job("name = \"deepseek-moe\"\n")), "no config.json is written of model"),
        std::pair(message(Job("hf_path = \"/nowhere\"\n")), "model.hf_path")}) {
    EXPECT_NE(found.find(wanted), std::string::npos) << found;
    EXPECT_NE(found.find("name a file NAME.safetensors"), std::string::npos) << found;
  }
}

}  // namespace
}  // namespace meshwright::cli
