#include "config/foreign_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "base/file.h"
#include "config/config_keys.h"
#include "config/job_config.h"

namespace meshwright::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Error(const std::string& setting) {
  ConfigSource source;
  source.overrides = {setting};
  source.environment_names.clear();
  const auto config = ParseJobConfig(source);
  return config ? "" : config.error().message();
}

TEST(ForeignKeyHint, TorchTitansCommonestKeysDoNotLeadAstray) {
  EXPECT_EQ(Error("checkpoint.interval=10"), "");
  EXPECT_EQ(Error("checkpoint.load_step=10"), "");
  EXPECT_THAT(Error("checkpoint.initial_load_in_hf=true"),
              AllOf(HasSubstr("unknown key 'initial_load_in_hf' in [checkpoint]"),
                    HasSubstr("leave it out"), Not(HasSubstr("belongs to"))));
  EXPECT_THAT(Error("parallelism.fsdp_reshard_after_forward=always"), HasSubstr("zero_stage"));
  EXPECT_THAT(Error("profiling.enable_profiling=true"), HasSubstr("meshwright timeline"));
}

TEST(ForeignKeyHint, ValuesOfTorchTitanThatAreNotHereSayWhatIs) {
  EXPECT_EQ(Error("checkpoint.async_mode=disabled"), "");
  EXPECT_THAT(Error("checkpoint.async_mode=async_with_pinned_mem"),
              AllOf(HasSubstr("one of: async, disabled"), HasSubstr("write \"async\"")));
  EXPECT_THAT(Error("checkpoint.async_mode=sometimes"), Not(HasSubstr("write")));
}

TEST(ForeignKeyHint, ValuesOfOthersAndNearOnesSayWhatIsMeant) {
  EXPECT_THAT(Error("training.dtype=bf16"), HasSubstr("write \"bfloat16\""));
  EXPECT_THAT(Error("training.dtype=FP16"), HasSubstr("write \"float16\""));
  EXPECT_THAT(Error("optimizer.name=adam"), HasSubstr("write \"adamw\""));
  EXPECT_THAT(Error("optimizer.name=adafacter"), HasSubstr("did you mean 'adafactor'?"));
  EXPECT_THAT(Error("optimizer.name=shampoo"), Not(HasSubstr("did you mean")));
}

TEST(ForeignKeyHint, SynonymsOfOthersNameTheKeyThatIsMeant) {
  EXPECT_THAT(Error("optimizer.learning_rate=1"), HasSubstr("write optimizer.lr"));
  EXPECT_THAT(Error("training.grad_accum_steps=4"),
              HasSubstr("training.gradient_accumulation_steps"));
  EXPECT_THAT(Error("parallelism.gradient_accumulation_steps=4"),
              HasSubstr("write training.gradient_accumulation_steps"));
  EXPECT_THAT(Error("lora.r=8"), HasSubstr("write lora.rank"));
  EXPECT_THAT(Error("peft.lora_alpha=8"), HasSubstr("section [lora]"));
  EXPECT_THAT(Error("training.per_device_train_batch_size=4"),
              HasSubstr("training.local_batch_size"));
  EXPECT_THAT(Error("training.BF16=true"), HasSubstr("training.dtype = \"bfloat16\""));
}

TEST(ForeignKeyHint, NamesOneSectionOrNone) {
  EXPECT_THAT(Error("model.momentum=1"), HasSubstr("it belongs to [optimizer]"));
  EXPECT_THAT(Error("training.name=1"), Not(HasSubstr("belongs to"))) << "three sections have it";
}

TEST(ForeignKeyHint, OthersNamesAreKnownAsTheyWriteThem) {
  EXPECT_THAT(Error("parallelism.tensor-model-parallel-size=4"),
              HasSubstr("write parallelism.tensor_parallel_degree"));
  EXPECT_THAT(Error("zero_optimization.stage=2"),
              AllOf(HasSubstr("unknown section [zero_optimization]"),
                    HasSubstr("write parallelism.zero_stage")));
  EXPECT_THAT(Error("training.lr=1"), HasSubstr("write optimizer.lr"));
  EXPECT_THAT(Error("training.num_epochs=1"), HasSubstr("write training.steps"));
}

// Every "section.name" in a hint whose section there is.
TEST(ForeignKeys, HintsNameKeysThatThereAre) {
  const std::vector<std::string> sections = SectionNames();
  for (const ForeignKey& key : ForeignKeys()) {
    const std::string hint(key.hint);
    const std::regex word("([a-z_]+)\\.([a-z_0-9]+)");
    for (std::sregex_iterator it(hint.begin(), hint.end(), word), end; it != end; ++it) {
      const std::string section = (*it)[1];
      const bool known = std::find(sections.begin(), sections.end(), section) != sections.end();
      if (!known || it->str() == "metrics.jsonl") continue;
      EXPECT_NE(FindKey(section, (*it)[2].str()), nullptr) << hint;
    }
  }
}

// The page is made of text by hand, and of a table from here behind each mark.
TEST(ForeignKeys, ThePageComingFromHasTheTables) {
  const std::string page =
      ReadFile(std::string(MESHWRIGHT_SOURCE_DIR) + "/docs/coming-from.md").value_or("");
  for (const Origin origin : kOrigins) {
    const std::string table = ForeignKeyTable(origin);
    const std::string mark = "<!-- keys of " + std::string(OriginName(origin)) + " -->\n\n";
    EXPECT_NE(page.find(mark + table), std::string::npos)
        << "docs/coming-from.md does not have this behind " << mark << table;
  }
}

TEST(ForeignKeyHint, NoKeyOfOursIsForeign) {
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_EQ(ForeignKeyHint(key.section, key.name), "") << key.section << "." << key.name;
  }
  for (const std::string& section : SectionNames()) EXPECT_EQ(ForeignKeyHint(section, ""), "");
}

}  // namespace
}  // namespace meshwright::config
