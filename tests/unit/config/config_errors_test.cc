#include "config/config_errors.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "config/config_keys.h"
#include "config/job_config.h"

namespace meshwright::config {
namespace {

ConfigErrors ErrorsOf(std::string text, std::vector<std::string> overrides = {},
                      std::map<std::string, std::string> environment = {}) {
  ConfigSource source;
  source.text = std::move(text);
  source.overrides = std::move(overrides);
  source.environment = [environment](const std::string& name) -> std::optional<std::string> {
    const auto it = environment.find(name);
    return it == environment.end() ? std::nullopt : std::optional(it->second);
  };
  source.environment_names.clear();
  for (const auto& [name, value] : environment) source.environment_names.push_back(name);
  ConfigErrors errors;
  ParseJobConfig(source, errors);
  return errors;
}

TEST(ConfigErrors, AreAllThereWithKeysPlacesAndHints) {
  const ConfigErrors errors = ErrorsOf(
      "[training]\nstepz = 3\nseq_len = 0\n[modl]\nname = \"gpt2\"\n[optimizer]\nlr = \"high\"\n",
      {"training.steps=x", "nonsense"}, {{"MESHWRIGHT__TRAINING__SEEED", "1"}});
  std::vector<std::string> keys;
  for (const ConfigError& error : errors.all()) keys.push_back(error.key);
  // A table of TOML is in the order of its names.
  EXPECT_EQ(keys, (std::vector<std::string>{"modl", "optimizer.lr", "training.seq_len",
                                            "training.stepz", "", "training.steps", ""}));
  const ConfigError& unknown = errors.all()[3];
  EXPECT_EQ(unknown.place, "job.toml:2:1");
  EXPECT_EQ(unknown.line, 2);
  EXPECT_EQ(unknown.column, 1);
  EXPECT_EQ(unknown.hint, "did you mean 'steps'?");
  EXPECT_EQ(errors.all()[0].hint.substr(0, 29), "did you mean 'model'?; known:");
  const ConfigError& range = errors.all()[2];
  EXPECT_EQ(range.line, 3);
  EXPECT_EQ(range.hint.substr(0, 10), "it must be") << range.message;
  EXPECT_EQ(errors.all()[4].place, "environment MESHWRIGHT__TRAINING__SEEED");
  EXPECT_EQ(errors.all()[5].place, "--set training.steps=x");
  EXPECT_EQ(errors.all()[5].line, 0);
  EXPECT_EQ(errors.first().message(), errors.all()[0].message);
}

TEST(ConfigErrors, WhatKeysSayTogetherIsFoundAtOnceToo) {
  const ConfigErrors errors = ErrorsOf(
      "[job]\nname = \"a\\tb\"\n[training]\nlocal_batch_size = 4\n[optimizer]\nlr = 1e-3\n"
      "[lr_scheduler]\ndecay_type = \"cosine\"\nmin_lr = 1.0\n",
      {"parallelism.data_parallel_replicate_degree=auto"});
  std::vector<std::string> keys;
  for (const ConfigError& error : errors.all()) keys.push_back(error.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"job.name", "training.local_batch_size",
                                            "lr_scheduler.min_lr"}));
  EXPECT_EQ(errors.all()[2].line, 9);
  EXPECT_EQ(errors.all()[2].place, "job.toml:9:10");
}

TEST(ConfigErrors, TogetherTheyAreALineEach) {
  EXPECT_EQ(ErrorsOf("[training]\nstepz = 3\n[modl]\n").Together().message(),
            "2 errors:\n"
            "  job.toml:2:1: unknown key 'stepz' in [training] (did you mean 'steps'?)\n"
            "  job.toml:3:2: unknown section [modl] (did you mean 'model'?); known: " +
                Join(SectionNames(), ", "));
  const ConfigErrors one = ErrorsOf("[training]\nstepz = 3\n");
  EXPECT_EQ(one.Together().message(), one.first().message());
  EXPECT_TRUE(ErrorsOf("").Together().ok());
}

TEST(ConfigErrors, NoneOfAFileThatIsRight) {
  EXPECT_TRUE(ErrorsOf("[training]\nsteps = 3\n").empty());
  EXPECT_TRUE(ErrorsOf("").first().ok());
}

TEST(ConfigErrors, AnErrorOfTomlHasItsPlace) {
  const ConfigErrors errors = ErrorsOf("[training]\nsteps = = 3\n");
  ASSERT_EQ(errors.all().size(), 1u);
  EXPECT_EQ(errors.all()[0].line, 2);
}

TEST(ConfigErrors, AHintIsWhatStandsBehindTheCause) {
  EXPECT_EQ(HintIn("training.steps is 0; it must be at least 1"), "it must be at least 1");
  EXPECT_EQ(HintIn("unknown key 'a' (did you mean 'b'?)"), "did you mean 'b'?");
  EXPECT_EQ(HintIn("all is lost"), "");
}

}  // namespace
}  // namespace meshwright::config
