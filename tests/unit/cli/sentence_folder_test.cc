// What a folder of sentence-transformers says of vectors, in its older and its newer form.
#include "cli/sentence_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace meshwright::cli {
namespace {

using client::Pooling;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SentenceFolderTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    const std::string path = dir_.File(name);
    ASSERT_TRUE(MakeDirs(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(path, text).ok());
  }
  SentenceFolder Read() {
    const auto read = ReadSentenceFolder(dir_.path());
    EXPECT_TRUE(read.has_value()) << read.error();
    return read.value_or(SentenceFolder());
  }
  std::string Error() {
    const auto read = ReadSentenceFolder(dir_.path());
    return read.has_value() ? "no error" : read.error().message();
  }
  static std::string Modules(const std::string& kind) {
    return R"([{"path":"0_T","type":"sentence_transformers.models.Transformer"},)"
           R"({"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},)"
           R"({"path":"2_More","type":"sentence_transformers.models.)" +
           kind + R"("}])";
  }

  TempDir dir_ = TempDir::Make("mw-sentences").value();
};

TEST_F(SentenceFolderTest, APlainModelGivesMeansAsTheyAre) {
  const SentenceFolder plain = Read();
  EXPECT_EQ(plain.model, dir_.path());
  EXPECT_THAT(plain.rules.poolings, ElementsAre(Pooling::kMean));
  EXPECT_FALSE(plain.rules.normalised);
  EXPECT_FALSE(plain.most_tokens.has_value());
}

TEST_F(SentenceFolderTest, ModulesAreDoneInTheirOrder) {
  Write("modules.json", Modules("Normalize"));
  Write("1_Pooling/config.json",
        R"({"word_embedding_dimension":4,"pooling_mode_cls_token":true,)"
        R"("pooling_mode_mean_tokens":true,"pooling_mode_max_tokens":false})");
  Write("0_T/sentence_bert_config.json", R"({"max_seq_length": 256})");
  const SentenceFolder found = Read();
  EXPECT_EQ(found.model, dir_.File("0_T"));
  EXPECT_THAT(found.rules.poolings, ElementsAre(Pooling::kFirst, Pooling::kMean));
  EXPECT_TRUE(found.rules.normalised);
  EXPECT_EQ(found.most_tokens, 256);
  Write("1_Pooling/config.json", R"({"pooling_mode":"cls"})");
  EXPECT_THAT(Read().rules.poolings, ElementsAre(Pooling::kFirst));
}

TEST_F(SentenceFolderTest, WhatIsNotBuiltIsRefusedByName) {
  Write("modules.json", Modules("Dense"));
  Write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens":true})");
  EXPECT_THAT(Error(), HasSubstr("module 'Dense' is not built"));
  Write("modules.json", Modules("Normalize"));
  Write("1_Pooling/config.json", R"({"pooling_mode_max_tokens":true})");
  EXPECT_THAT(Error(), HasSubstr("1_Pooling/config.json: pooling_mode_max_tokens is not built"));
  Write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens":false})");
  EXPECT_THAT(Error(), HasSubstr("says no pooling_mode"));
  Write("1_Pooling/config.json", "{");
  EXPECT_THAT(Error(), HasSubstr("is no JSON"));
  Write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens":true})");
  Write("0_T/sentence_bert_config.json", R"({"max_seq_length": 1e9})");
  EXPECT_THAT(Error(), HasSubstr("max_seq_length"));
}

}  // namespace
}  // namespace meshwright::cli
