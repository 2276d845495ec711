#include "cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

std::vector<std::string> TextsOf(const Candidates& candidates) {
  std::vector<std::string> texts;
  for (const Candidate& each : candidates.known) texts.push_back(each.text);
  return texts;
}

TEST(Completion, CommandsAndTheirOptionsComeFromTheParsersTable) {
  EXPECT_THAT(TextsOf(Complete({"sub"})), ElementsAre("submit"));
  EXPECT_THAT(TextsOf(Complete({""})), IsSupersetOf({"up", "plan", "describe", "help"}));
  EXPECT_THAT(TextsOf(Complete({"submit", "--re"})), ElementsAre("--resume", "--record"));
  EXPECT_THAT(TextsOf(Complete({"submit", "--addr"})), ElementsAre("--address"))
      << "of all commands";
  EXPECT_THAT(TextsOf(Complete({"worker", "dr"})), ElementsAre("drain"));
  EXPECT_THAT(TextsOf(Complete({"worker", "--ready"})), IsEmpty()) << "internal";
  EXPECT_THAT(TextsOf(Complete({"help", "che"})), ElementsAre("checkpoint"));
  EXPECT_THAT(TextsOf(Complete({"help", "worker", "dr"})), ElementsAre("drain"));
  EXPECT_THAT(TextsOf(Complete({"nosuch", "--no"})), Not(Contains("--no-wait")));
}

TEST(Completion, ValuesOfOptionsThatHaveOnlySome) {
  EXPECT_THAT(TextsOf(Complete({"--color", "a"})), ElementsAre("auto", "always"));
  EXPECT_THAT(TextsOf(Complete({"up", "--device=c"})),
              ElementsAre("--device=cpu", "--device=cuda"));
  EXPECT_THAT(TextsOf(Complete({"completion", ""})), ElementsAre("bash", "zsh", "fish"));
  EXPECT_FALSE(Complete({"completion", ""}).files);
}

TEST(Completion, WhatTheControllerOrTheFolderKnowsIsAskedFor) {
  EXPECT_EQ(Complete({"describe", ""}).asked, Asked::kJobs);
  EXPECT_EQ(Complete({"logs", "-f", "1"}).asked, Asked::kJobs) << "a flag takes no value";
  EXPECT_EQ(Complete({"--address", "h:1", "why", ""}).asked, Asked::kJobs);
  EXPECT_EQ(Complete({"describe", "3", ""}).asked, Asked::kNothing) << "it takes one";
  EXPECT_FALSE(Complete({"describe", ""}).files);
  EXPECT_EQ(Complete({"worker", "drain", "w"}).asked, Asked::kWorkers);
  const Candidates resume = Complete({"submit", "--resume=1"});
  EXPECT_EQ(resume.asked, Asked::kJobs);
  EXPECT_EQ(resume.before, "--resume=");
  EXPECT_EQ(Complete({"submit", "--set", "tr"}).asked, Asked::kKeys);
  EXPECT_TRUE(Complete({"submit", "exam"}).files);
  EXPECT_TRUE(Complete({"generate", ""}).files);
  EXPECT_EQ(Complete({"generate", ""}).asked, Asked::kJobs) << "a folder or a job";
  EXPECT_EQ(Complete({"compare", "1", ""}).asked, Asked::kJobs) << "a job or a file";
}

TEST(Completion, KeysAndTheirChoices) {
  const auto steps = CompleteKey("training.st");
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.front().text, "training.steps=");
  EXPECT_FALSE(steps.front().meaning.empty());
  const auto types = CompleteKey("training.dtype=b");
  ASSERT_EQ(types.size(), 1u);
  EXPECT_EQ(types.front().text, "training.dtype=bfloat16");
  EXPECT_THAT(CompleteKey("training.steps=1"), IsEmpty());
}

}  // namespace
}  // namespace meshwright::cli
