// How texts are written where the user does not say it.
#include "cli/generation_settings.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace meshwright::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GenerationSettings : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(WriteFileAtomic(folder_.File(name), text).ok());
  }

  TempDir folder_ = TempDir::Make().value();
};

TEST_F(GenerationSettings, TheEndOfATextIsTheConfigsWhereNothingElseSaysIt) {
  EXPECT_TRUE(SettingsOfFolder(folder_.path())->stops.empty());
  Write("config.json", R"({"eos_token_id": 7, "top_k": 9, "decoder_start_token_id": 4})");
  EXPECT_EQ(SettingsOfFolder(folder_.path())->sampling.top_k, 9);
  Write("generation_config.json", R"({"_from_model_config": true, "top_k": 5})");
  const auto settings = SettingsOfFolder(folder_.path());
  ASSERT_TRUE(settings) << settings.error();
  EXPECT_THAT(settings->stops, ElementsAre(7));
  EXPECT_EQ(settings->start, 4);
  EXPECT_EQ(settings->sampling.top_k, 5);
  Write("generation_config.json", R"({"eos_token_id": [8, 9]})");
  EXPECT_THAT(SettingsOfFolder(folder_.path())->stops, ElementsAre(8, 9));
}

TEST_F(GenerationSettings, WhatIsNotBuiltIsRefusedWithItsFile) {
  Write("generation_config.json", R"({"guidance_scale": 3})");
  const auto settings = SettingsOfFolder(folder_.path());
  ASSERT_FALSE(settings);
  EXPECT_THAT(settings.error().message(), HasSubstr("guidance_scale"));
  EXPECT_THAT(settings.error().message(), HasSubstr("generation_config.json"));
}

TEST_F(GenerationSettings, AJobHasThoseOfTheFolderWhoseTokensItReads) {
  Write("config.json", "{}");
  Write("generation_config.json", R"({"eos_token_id": [8, 9], "top_k": 5})");
  ir::JobRequest job;
  const auto stops = [&](const std::string& training) {
    job.config_text = fmt::format("[model]\nhf_path = \"{}\"\n[training]\nseq_len = 8\n{}",
                                  folder_.path(), training);
    const auto settings = SettingsOfJob(job, 1);
    EXPECT_TRUE(settings) << settings.error();
    return settings ? settings->stops : std::set<int32_t>();
  };
  EXPECT_THAT(stops("dataset_format = \"text\"\n"), ElementsAre(8, 9));
  EXPECT_THAT(stops(fmt::format("dataset_format = \"text\"\ntokenizer = \"{}\"\n",
                                folder_.File("tokenizer.json"))),
              ElementsAre(8, 9));
  EXPECT_THAT(stops("dataset_format = \"bytes\"\n"), ElementsAre());
  const TempDir other = TempDir::Make().value();
  EXPECT_THAT(stops(fmt::format("dataset_format = \"text\"\ntokenizer = \"{}\"\n",
                                other.File("tokenizer.json"))),
              ElementsAre());
}

TEST(MostNewTokens, TheUserCountsBeforeTheModel) {
  GenerateArgs args;
  generation::Settings settings;
  EXPECT_EQ(*MostNewTokens(args, settings, 3), 128);
  settings.max_length = 40;
  EXPECT_EQ(*MostNewTokens(args, settings, 3), 37);
  EXPECT_THAT(MostNewTokens(args, settings, 40).error().message(), HasSubstr("--max-new-tokens"));
  settings.max_new_tokens = 5;
  EXPECT_EQ(*MostNewTokens(args, settings, 40), 5);
  args.max_new_tokens = 9;
  EXPECT_EQ(*MostNewTokens(args, settings, 40), 9);
}

TEST(RulesOfGeneration, TheUserCountsBeforeTheModel) {
  GenerateArgs args;
  generation::Settings settings;
  settings.rules.no_repeat_ngram = 3;
  settings.rules.min_new_tokens = 4;
  settings.rules.forced_eos = {2};
  EXPECT_EQ(RulesOf(args, settings).no_repeat_ngram, 3);
  args.no_repeat_ngram_size = 0;
  args.min_new_tokens = 7;
  args.ignore_stops = true;
  const generation::TextRules rules = RulesOf(args, settings);
  EXPECT_EQ(rules.no_repeat_ngram, 0);
  EXPECT_EQ(rules.min_new_tokens, 7);
  EXPECT_TRUE(rules.forced_eos.empty());
}

}  // namespace
}  // namespace meshwright::cli
