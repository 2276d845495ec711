#include "cli/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/job_config.h"

namespace meshwright::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

std::string ResolvedText(const std::string& file) {
  config::ConfigSource source;
  source.text = file;
  source.environment_names = {};
  const auto config = config::ParseJobConfig(source);
  EXPECT_TRUE(config.has_value());
  return config ? config::FormatJobConfig(*config) : "";
}

JobStory SomeStory() {
  JobStory story;
  story.info.id = 3;
  story.info.name = "gpt";
  story.info.state = client::JobState::kRunning;
  story.info.steps = 600;
  story.info.steps_done = 120;
  story.info.loss = 2.312;
  story.info.layout = "data=2 tensor=1";
  story.info.submitted_unix_ms = 1'700'000'000'000;
  story.info.started_unix_ms = 1'700'000'001'000;
  story.info.device_memory_bytes = int64_t{1} << 30;
  story.info.device_budget_bytes = int64_t{4} << 30;
  story.info.checkpoint_step = 100;
  story.info.checkpoint_folder.path = "ckpt/3";
  story.info.directory = "state/jobs/3";
  story.request.programs.emplace_back();
  story.request.train.global_batch = 8;
  story.request.train.sequence = 128;
  story.request.config_text = ResolvedText(
      "[job]\nowner = \"ann@alpha\"\n[training]\nsteps = 600\n[model]\nn_layers = 6\n");
  story.events = {"2026-11-27T05:30:22.204Z submitted job 3 'gpt'",
                  "2026-11-27T05:30:22.880Z planned data=2 tensor=1 on 2 devices of 2 workers "
                  "(generation 1)",
                  "2026-11-27T05:31:00.000Z recovered in 1.30 s: letting go 0.02"};
  return story;
}

constexpr int64_t kStoryNow = 1'700'000'001'000 + 12'000;

TEST(Describe, TellsAllOfAJobOnOneScreen) {
  const std::string text = FormatDescription(SomeStory(), 2, kStoryNow, false);
  EXPECT_EQ(text,
            "job 3 gpt RUNNING  step 120 of 600 (20 %)\n"
            "  owner       ann@alpha\n"
            "  time        submitted 2023-11-14 22:13:20 UTC, started 1 s later, 12 s ago; "
            "48 s left\n"
            "  loss        2.3120, 100 ms a step, 10,240 tokens/s\n"
            "  layout      data=2 tensor=1\n"
            "  devices     2 devices of 2 workers, 1.00 GiB of 4.00 GiB planned on the fullest\n"
            "  checkpoints newest after step 100, in ckpt/3\n"
            "  recoveries  1\n"
            "  files       state/jobs/3\n"
            "configuration, where it is not the default\n"
            "  model.n_layers = 6\n"
            "  training.steps = 600\n"
            "last events\n"
            "  2026-11-27T05:30:22.880Z planned data=2 tensor=1 on 2 devices of 2 workers "
            "(generation 1)\n"
            "  2026-11-27T05:31:00.000Z recovered in 1.30 s: letting go 0.02\n");
}

TEST(Describe, AJobThatWaitsAndOneThatFailed) {
  JobStory story = SomeStory();
  story.info.state = client::JobState::kQueued;
  story.info.steps_done = 0;
  story.info.started_unix_ms = 0;
  story.info.message = "waits behind job 2";
  story.request = {};
  story.events.clear();
  std::string text = FormatDescription(story, 8, kStoryNow, false);
  EXPECT_THAT(text, HasSubstr("  cause       waits behind job 2\n"));
  EXPECT_THAT(text, HasSubstr("not started in 13 s\n"));
  EXPECT_THAT(text, Not(HasSubstr("loss")));
  EXPECT_THAT(text, Not(HasSubstr("configuration")));
  story = SomeStory();
  story.info.state = client::JobState::kFailed;
  story.info.reason = "WorkerLost";
  story.info.message = "w0 was lost";
  story.info.ended_unix_ms = kStoryNow;
  text = FormatDescription(story, 8, kStoryNow + 99'000, true);
  EXPECT_THAT(text, HasSubstr("\x1b[31mFAILED\x1b[0m"));
  EXPECT_THAT(text, HasSubstr("WorkerLost: w0 was lost"));
  EXPECT_THAT(text, HasSubstr("ran 12 s\n"));
}

TEST(Describe, JsonHasTheSame) {
  const auto json = nlohmann::json::parse(DescriptionJson(SomeStory(), 1, kStoryNow));
  EXPECT_EQ(json["state"], "RUNNING");
  EXPECT_EQ(json["seconds_left"], 48.0);
  EXPECT_EQ(json["recoveries"], 1);
  EXPECT_EQ(json["configuration"]["model.n_layers"], "6");
  EXPECT_EQ(json["events"].size(), 1u);
}

TEST(ChangedKeys, WhatFollowsFromOthersIsNoChange) {
  const auto changed = ChangedKeys(ResolvedText("[training]\nsteps = 7\nglobal_batch_size = 4\n"));
  ASSERT_TRUE(changed.has_value()) << changed.error();
  EXPECT_THAT(*changed,
              ElementsAre(Pair("training.global_batch_size", "4"), Pair("training.steps", "7")));
  EXPECT_FALSE(ChangedKeys("[training]\nnosuch = 1\n").has_value());
}

}  // namespace
}  // namespace meshwright::cli
