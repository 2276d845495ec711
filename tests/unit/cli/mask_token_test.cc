// What stands where tokens are hidden: the tokenizer's mask, whatever the family's usual id is.
#include "cli/mask_token.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/prepare_training.h"

namespace meshwright::cli {
namespace {

using ::testing::HasSubstr;

// A tokenizer of words, in the order of their ids.
std::string TokenizerOfWords(const std::vector<std::string>& words) {
  std::string vocabulary;
  for (size_t i = 0; i < words.size(); ++i) {
    vocabulary += fmt::format("{}\"{}\": {}", i > 0 ? ", " : "", words[i], i);
  }
  return R"({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},)"
         R"("model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {)" +
         vocabulary + "}}}";
}

class MaskToken : public ::testing::Test {
 protected:
  MaskToken() : dir_(*TempDir::Make()) {}

  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(dir_.File(name), text).ok());
  }
  // A folder of BERT with `more` in its config.json, and a text.
  void WriteFolder(const std::string& more = "", int64_t vocabulary = 120) {
    Write("config.json",
          fmt::format(R"({{"model_type": "bert", "architectures": ["BertForMaskedLM"],
"vocab_size": {}, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
"intermediate_size": 32, "max_position_embeddings": 64{}}})",
                      vocabulary, more));
    Write("tokenizer.json", TokenizerOfWords({"[UNK]", "a", "b", "c", "[MASK]"}));
    Write("text.txt", "a b c a b c");
  }
  Result<config::JobConfig> Config(const std::vector<std::string>& overrides = {}) {
    config::ConfigSource source;
    source.text = fmt::format(
        "[model]\nhf_path = \"{}\"\nfrom_scratch = true\n[training]\nseq_len = 8\ndataset_path = "
        "\"{}\"\ndataset_format = \"text\"\n",
        dir_.path(), dir_.File("text.txt"));
    source.overrides = overrides;
    source.environment_names = {};
    return config::ParseJobConfig(source);
  }
  // The mask of the job, or why it has none.
  std::string Mask(const std::vector<std::string>& overrides = {}) {
    auto config = Config(overrides);
    if (!config.has_value()) return config.error().message();
    const auto prepared = PrepareTraining(*config);
    if (!prepared.has_value()) return prepared.error().message();
    return fmt::format("{}", prepared->model.sizes.mask_token.value_or(-1));
  }

  TempDir dir_;
};

TEST_F(MaskToken, IsThatOfTheTokenizer) {
  WriteFolder();
  EXPECT_EQ(Mask(), "4");
  auto config = Config();
  ASSERT_TRUE(config.has_value()) << config.error();
  ASSERT_TRUE(PrepareTraining(*config).has_value());
  EXPECT_THAT(config::FormatJobConfig(*config), HasSubstr("mask_token = 4")) << "it is on record";
  // A vocabulary that has no token 103.
  WriteFolder("", 60);
  EXPECT_EQ(Mask(), "4");
  // Files of tokens are of the folder's tokenizer; without one nothing is known.
  EXPECT_EQ(Mask({"training.dataset_format=uint16"}), "4");
  WriteFolder();
  std::filesystem::remove(dir_.File("tokenizer.json"));
  EXPECT_EQ(Mask({"training.dataset_format=uint16"}), "103");
}

TEST_F(MaskToken, HasTheNameThatTheFolderGivesIt) {
  WriteFolder();
  Write("tokenizer_config.json", R"({"mask_token": {"content": "b", "lstrip": false}})");
  EXPECT_EQ(Mask(), "2");
  Write("tokenizer_config.json", R"({"mask_token": "c"})");
  EXPECT_EQ(Mask(), "3");
  Write("tokenizer_config.json", "{}");
  Write("special_tokens_map.json", R"({"mask_token": "a"})");
  EXPECT_EQ(Mask(), "1");
}

TEST_F(MaskToken, ThatIsSaidOtherwiseIsRefused) {
  WriteFolder();
  EXPECT_EQ(Mask({"model.mask_token=4"}), "4");
  EXPECT_THAT(Mask({"model.mask_token=103"}), HasSubstr("model.mask_token is 103, and the mask"));
  WriteFolder(R"(, "mask_token_id": 7)");
  EXPECT_THAT(Mask(), HasSubstr("mask_token_id of the config.json of " + dir_.path() + " is 7"));
  EXPECT_EQ(Mask({"model.mask_token=4"}), "4") << "the job counts before the folder";
}

TEST_F(MaskToken, ThatNobodyKnowsIsRefused) {
  WriteFolder();
  Write("tokenizer.json", TokenizerOfWords({"[UNK]", "a", "b", "c"}));
  EXPECT_THAT(Mask(), HasSubstr("has no token that stands for a hidden one"));
  EXPECT_EQ(Mask({"model.mask_token=3"}), "3");
}

TEST_F(MaskToken, IsNoByteOfAText) {
  WriteFolder("", 300);
  EXPECT_THAT(Mask({"training.dataset_format=bytes"}),
              HasSubstr("model.mask_token is 103, which is also a byte of the text"));
  EXPECT_EQ(Mask({"training.dataset_format=bytes", "model.mask_token=256"}), "256");
}

TEST_F(MaskToken, ThatABytesJobDoesNotKnowIsRefused) {
  WriteFolder("", 60);
  std::filesystem::remove(dir_.File("tokenizer.json"));
  EXPECT_THAT(Mask({"training.dataset_format=uint16"}), HasSubstr("model.mask_token = ID"));
  EXPECT_EQ(Mask({"training.dataset_format=uint16", "model.mask_token=5"}), "5");
}

// Where the job says no format, the tokenizer in the model's folder reads its texts.
TEST_F(MaskToken, FormatOfTextsIsThatOfTheFolder) {
  const auto format = [this](const std::string& path, const char* said = "") {
    config::ConfigSource source;
    source.text = fmt::format(
        "[model]\nhf_path = \"{}\"\nfrom_scratch = true\n[training]\nseq_len = 8\ndataset_path = "
        "\"{}\"\n{}",
        dir_.path(), dir_.File(path), said);
    source.environment_names = {};
    auto config = config::ParseJobConfig(source);
    EXPECT_TRUE(config.has_value()) << config.error();
    if (!config.has_value()) return std::string();
    const size_t notes = config->notes.size();
    (void)PrepareTraining(*config);  // a vocabulary of bytes is refused
    return config->dataset_format + (config->notes.size() > notes ? " noted" : "");
  };
  WriteFolder();
  EXPECT_EQ(format("text.txt"), "text noted");
  EXPECT_EQ(format("rows.jsonl"), "jsonl noted");
  EXPECT_EQ(format("text.txt", "dataset_format = \"bytes\"\n"), "bytes");
  // Of a folder all files are asked.
  std::filesystem::create_directory(dir_.File("chats"));
  Write("chats/a.jsonl", "{}\n");
  EXPECT_EQ(format("chats"), "jsonl noted");
  Write("chats/b.txt", "b\n");
  EXPECT_EQ(format("chats"), "text noted");
  std::filesystem::remove(dir_.File("tokenizer.json"));
  EXPECT_EQ(format("text.txt"), "bytes noted") << "that the folder has none";
}

// Each set has the format of its own name, and it is on record.
TEST_F(MaskToken, FormatOfSetsIsThatOfTheirNames) {
  WriteFolder();
  config::ConfigSource source;
  source.text = fmt::format(
      "[model]\nhf_path = \"{0}\"\nfrom_scratch = true\n[training]\nseq_len = 8\ndatasets = "
      "[\"a.jsonl: weight=3\", \"b.jsonl\", \"c.txt\", \"d.jsonl: format=text\"]\n[validation]\n"
      "datasets = [\"held: e.jsonl\"]\n",
      dir_.path());
  source.environment_names = {};
  auto config = config::ParseJobConfig(source);
  ASSERT_TRUE(config.has_value()) << config.error();
  const auto prepared = PrepareTraining(*config);
  ASSERT_TRUE(prepared.has_value()) << prepared.error();
  EXPECT_THAT(config->datasets,
              ::testing::ElementsAre("a.jsonl: weight=3, format=jsonl", "b.jsonl: format=jsonl",
                                     "c.txt", "d.jsonl: format=text"));
  EXPECT_THAT(config->validation_datasets, ::testing::ElementsAre("held: e.jsonl: format=jsonl"));
}

// Words of a trained model are not bytes, unless the job says so.
TEST_F(MaskToken, BytesOfATrainedModelAreAskedFor) {
  Write("config.json", R"({"model_type": "gpt2", "vocab_size": 500, "n_embd": 16, "n_layer": 1,
"n_head": 2, "n_positions": 64})");
  Write("text.txt", "a b c a b c");
  Write("model.safetensors", "");
  const auto why = [this](const char* said) {
    config::ConfigSource source;
    source.text =
        fmt::format("[model]\nhf_path = \"{}\"\n[training]\nseq_len = 8\ndataset_path = \"{}\"\n{}",
                    dir_.path(), dir_.File("text.txt"), said);
    source.environment_names = {};
    auto config = config::ParseJobConfig(source);
    if (!config.has_value()) return config.error().message();
    const auto prepared = PrepareTraining(*config);
    return prepared.has_value() ? std::string() : prepared.error().message();
  };
  EXPECT_THAT(why(""), HasSubstr("has weights and no tokenizer that is read"));
  EXPECT_EQ(why("dataset_format = \"bytes\"\n"), "");
  std::filesystem::remove(dir_.File("model.safetensors"));
  EXPECT_EQ(why(""), "");
  Write("pytorch_model.bin", "");
  EXPECT_THAT(why(""), HasSubstr("its pytorch_model.bin is not read"));
}

TEST_F(MaskToken, FormatOfTextsIsThatOfANamedTokenizer) {
  WriteFolder();
  config::ConfigSource source;
  source.text = fmt::format(
      "[model]\nname = \"gpt2\"\nvocab_size = 300\n[training]\nseq_len = 8\ntokenizer = \"{}\"\n"
      "dataset_path = \"{}\"\n",
      dir_.File("tokenizer.json"), dir_.File("text.txt"));
  source.environment_names = {};
  auto config = config::ParseJobConfig(source);
  ASSERT_TRUE(config.has_value()) << config.error();
  ASSERT_TRUE(PrepareTraining(*config).has_value());
  EXPECT_EQ(config->dataset_format, "text");
  for (const std::string& note : config->notes) {
    EXPECT_THAT(note, ::testing::Not(HasSubstr("training.tokenizer has no effect")));
  }
  // One that is named and not there is no reason to read bytes.
  std::filesystem::remove(dir_.File("tokenizer.json"));
  config = config::ParseJobConfig(source);
  ASSERT_TRUE(config.has_value() && PrepareTraining(*config).has_value());
  EXPECT_EQ(config->dataset_format, "text");
}

TEST_F(MaskToken, IsOfModelsThatHideTokens) {
  WriteFolder();
  Write("config.json", R"({"model_type": "gpt2", "vocab_size": 60, "n_embd": 16, "n_layer": 1,
"n_head": 2, "n_positions": 64})");
  EXPECT_EQ(Mask(), "-1");
}

}  // namespace
}  // namespace meshwright::cli
