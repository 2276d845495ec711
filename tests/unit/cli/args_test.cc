#include "cli/args.h"

#include <gtest/gtest.h>

namespace meshwright::cli {
namespace {

template <typename T>
T Parse(const std::vector<std::string>& args) {
  const ParsedArgs parsed = ParseArgs(args);
  EXPECT_TRUE(parsed.invocation) << parsed.text;
  if (!parsed.invocation) return T();
  const T* command = std::get_if<T>(&parsed.invocation->command);
  EXPECT_NE(command, nullptr);
  return command == nullptr ? T() : *command;
}

TEST(Args, SubmitTakesOverridesInBothForms) {
  const auto submit = Parse<SubmitArgs>(
      {"submit", "--set", "a.b=1", "job.toml", "--training.steps=5", "--no-wait"});
  EXPECT_EQ(submit.file, "job.toml");
  EXPECT_EQ(submit.overrides, (std::vector<std::string>{"a.b=1", "training.steps=5"}));
  EXPECT_TRUE(submit.no_wait);
}

TEST(Args, ShortOverridesAreRefusedWhereThereIsNoJobFile) {
  EXPECT_EQ(ParseArgs({"jobs", "--training.steps=5"}).exit_code, kExitUsage);
}

TEST(Args, RepeatedSetKeepsOrder) {
  const auto plan =
      Parse<PlanArgs>({"plan", "j.toml", "--set", "a.b=1", "--set", "a.b=2", "--devices", "4"});
  EXPECT_EQ(plan.overrides, (std::vector<std::string>{"a.b=1", "a.b=2"}));
  EXPECT_EQ(plan.devices, 4);
}

TEST(Args, GlobalOptionsWorkOnBothSidesOfTheCommand) {
  for (const auto& args : {std::vector<std::string>{"--address", "h:1", "-o", "json", "jobs"},
                           std::vector<std::string>{"jobs", "--address", "h:1", "-o", "json"}}) {
    const ParsedArgs parsed = ParseArgs(args);
    ASSERT_TRUE(parsed.invocation) << parsed.text;
    EXPECT_EQ(parsed.invocation->global.address, "h:1");
    EXPECT_TRUE(parsed.invocation->global.json);
  }
}

TEST(Args, UsageErrorsExitWithTwoAndSayWhy) {
  EXPECT_EQ(ParseArgs({"submit"}).exit_code, kExitUsage);
  EXPECT_EQ(ParseArgs({}).exit_code, kExitUsage);
  const ParsedArgs parsed = ParseArgs({"submit", "job.toml", "--frobnicate"});
  EXPECT_EQ(parsed.exit_code, kExitUsage);
  EXPECT_NE(parsed.text.find("--frobnicate"), std::string::npos);
  EXPECT_EQ(ParseArgs({"logs", "abc"}).exit_code, kExitUsage);
  EXPECT_EQ(ParseArgs({"up", "--workers", "0"}).exit_code, kExitUsage);
}

TEST(Args, HelpAndVersionExitWithZero) {
  const ParsedArgs help = ParseArgs({"--help"});
  EXPECT_EQ(help.exit_code, kExitOk);
  for (const char* command : {"up", "down", "submit", "jobs", "logs", "cancel", "status", "plan",
                              "visualize", "config", "controller", "worker"}) {
    EXPECT_NE(help.text.find(command), std::string::npos) << command;
  }
  const ParsedArgs version = ParseArgs({"--version"});
  EXPECT_EQ(version.exit_code, kExitOk);
  EXPECT_NE(version.text.find("meshwright "), std::string::npos);
}

TEST(Args, ExitCodesFollowTheStatus) {
  EXPECT_EQ(ExitCodeOf(OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(InvalidArgument("x")), 2);
  EXPECT_EQ(ExitCodeOf(Unavailable("x")), 3);
  EXPECT_EQ(ExitCodeOf(ResourceExhausted("x")), 4);
  EXPECT_EQ(ExitCodeOf(DeadlineExceeded("x")), 5);
  EXPECT_EQ(ExitCodeOf(Internal("x")), 1);
}

}  // namespace
}  // namespace meshwright::cli
