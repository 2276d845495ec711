#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/run_history.h"

namespace meshwright::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Args>
Args ParsedAs(const std::vector<std::string>& words) {
  const ParsedArgs parsed = ParseArgs(words);
  EXPECT_TRUE(parsed.invocation.has_value()) << parsed.text;
  return parsed.invocation ? std::get<Args>(parsed.invocation->command) : Args{};
}

TEST(RecordArgs, FormatsAreSeparatedByCommas) {
  const auto plain = ParsedAs<RecordsArgs>({"records", "3", "--to", "d"});
  EXPECT_EQ(plain.id, 3);
  EXPECT_EQ(plain.to, "d");
  EXPECT_THAT(plain.formats, ElementsAre("tensorboard"));
  EXPECT_FALSE(plain.follow);
  const auto both =
      ParsedAs<RecordsArgs>({"records", "3", "--to", "d", "--format", "jsonl,csv", "-f"});
  EXPECT_THAT(both.formats, ElementsAre("jsonl", "csv"));
  EXPECT_TRUE(both.follow);
  EXPECT_EQ(ParseArgs({"records", "3"}).exit_code, kExitUsage);
  EXPECT_EQ(ParseArgs({"records", "0", "--to", "d"}).exit_code, kExitUsage);
  EXPECT_EQ(ParseArgs({"records", "3", "--to", "d", "--format", "xml"}).exit_code, kExitUsage);
}

TEST(RecordArgs, TwoRunsOrMoreAreCompared) {
  const auto args = ParsedAs<CompareArgs>({"compare", "3", "runs/a", "--svg", "x.svg"});
  EXPECT_THAT(args.runs, ElementsAre("3", "runs/a"));
  EXPECT_EQ(args.svg, "x.svg");
  EXPECT_TRUE(ParseArgs({"compare", "1", "2", "-o", "json"}).invocation->global.json);
  EXPECT_EQ(ParseArgs({"compare", "3"}).exit_code, kExitUsage);
}

TEST(Compare, FilesNeedNoController) {
  const TempDir folder = TempDir::Make().value();
  const std::string step = "{\"step\":0,\"loss\":2.5,\"tokens\":64,\"seconds\":0.5}\n";
  ASSERT_TRUE(WriteFileAtomic(folder.File("metrics.jsonl"), step).ok());
  CompareArgs args;
  args.runs = {folder.path(), folder.File("metrics.jsonl")};
  args.svg = folder.File("curves.svg");
  GlobalArgs nowhere;
  nowhere.address = "127.0.0.1:1";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunCompare(args, nowhere), kExitOk);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("2.5000"));
  EXPECT_THAT(ReadFile(args.svg).value(), HasSubstr("<polyline"));
}

client::JobUpdate UpdateWithSteps(int64_t first, int64_t count) {
  client::JobUpdate update;
  update.info.id = 3;
  update.info.name = "gpt";
  for (int64_t i = 0; i < count; ++i) {
    client::StepMetrics step;
    step.step = first + i;
    step.seconds = 1;
    update.steps.push_back(step);
  }
  return update;
}

TEST(LiveRecords, BeginWithTheFirstStepAndGoOn) {
  const TempDir folder = TempDir::Make().value();
  LiveRecords records(folder.File("tb"));
  ASSERT_TRUE(records.Prepare().ok());
  records.OnUpdate(UpdateWithSteps(0, 0), {});
  EXPECT_FALSE(FileExists(folder.File("tb/gpt-3")));
  records.OnUpdate(UpdateWithSteps(0, 2), {});
  records.OnUpdate(UpdateWithSteps(2, 1), {});
  const std::string lines = ReadFile(folder.File("tb/gpt-3/metrics.jsonl")).value();
  EXPECT_THAT(lines, HasSubstr("{\"step\":2,"));
}

TEST(LiveRecords, WhatCannotBeWrittenIsToldOnceAndEndsThem) {
  const TempDir folder = TempDir::Make().value();
  ASSERT_TRUE(WriteFileAtomic(folder.File("file"), "x").ok());
  EXPECT_FALSE(LiveRecords(folder.File("file")).Prepare().ok());
  LiveRecords records(folder.File("file"));
  ::testing::internal::CaptureStderr();
  records.OnUpdate(UpdateWithSteps(0, 1), {});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("meshwright records 3"));
  ::testing::internal::CaptureStderr();
  records.OnUpdate(UpdateWithSteps(1, 1), {});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace meshwright::cli
