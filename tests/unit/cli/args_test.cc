#include "cli/args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

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

TEST(Args, HelpOfACommandIsItsHelp) {
  const ParsedArgs help = ParseArgs({"help", "submit"});
  EXPECT_EQ(help.exit_code, kExitOk);
  EXPECT_EQ(help.text, ParseArgs({"submit", "--help"}).text);
  EXPECT_EQ(ParseArgs({"help", "worker", "drain"}).text,
            ParseArgs({"worker", "drain", "--help"}).text);
  EXPECT_EQ(ParseArgs({"help"}).text, ParseArgs({"--help"}).text);
  const ParsedArgs unknown = ParseArgs({"help", "submitt"});
  EXPECT_EQ(unknown.exit_code, kExitUsage);
  EXPECT_NE(unknown.text.find("did you mean 'submit'?"), std::string::npos) << unknown.text;
}

TEST(Args, TheManualPageHasAllCommandsAndNoStrayRequests) {
  const ParsedArgs page = ParseArgs({"__man"});
  EXPECT_EQ(page.exit_code, kExitOk);
  for (const char* part : {".TH MESHWRIGHT 1", ".SS \"meshwright submit\"",
                           ".SS \"meshwright worker drain\"", "\\fB\\-\\-resume\\fR"}) {
    EXPECT_NE(page.text.find(part), std::string::npos) << part;
  }
  for (size_t at = page.text.find("\n."); at != std::string::npos;
       at = page.text.find("\n.", at + 1)) {
    const std::string request = page.text.substr(at + 1, 3);
    EXPECT_TRUE(request == ".TH" || request == ".SH" || request == ".SS" || request == ".TP" ||
                request == ".B ")
        << request;
  }
}

TEST(Args, EvalIsEvaluateWithOrWithoutData) {
  for (const char* name : {"evaluate", "eval"}) {
    const auto of_job = Parse<EvaluateArgs>({name, "3", "--batches", "4"});
    EXPECT_EQ(of_job.id, 3);
    EXPECT_EQ(of_job.batches, 4);
    const auto on_data = Parse<EvaluateArgs>({name, "folder", "--data", "d.jsonl", "--limit", "5"});
    EXPECT_EQ(on_data.eval.model, "folder");
    EXPECT_EQ(on_data.eval.limit, 5);
    const ParsedArgs folder = ParseArgs({name, "folder"});
    EXPECT_EQ(folder.exit_code, kExitUsage);
    EXPECT_NE(folder.text.find("--data"), std::string::npos) << folder.text;
    EXPECT_EQ(ParseArgs({name, "3", "--data", "d", "--batches", "4"}).exit_code, kExitUsage);
  }
}

TEST(Args, TheGlobalFormatHoldsForTimelineToo) {
  const ParsedArgs parsed = ParseArgs({"-o", "json", "timeline", "3"});
  ASSERT_TRUE(parsed.invocation) << parsed.text;
  EXPECT_TRUE(parsed.invocation->global.json);
  EXPECT_EQ(Parse<DescribeArgs>({"describe", "3", "--events", "0"}).events, 0);
}

TEST(Args, ShortOverridesAreRefusedWhereThereIsNoJobFile) {
  EXPECT_EQ(ParseArgs({"jobs", "--training.steps=5"}).exit_code, kExitUsage);
}

TEST(Args, WhatIsAboutACheckpointNeedsOne) {
  EXPECT_EQ(Parse<SubmitArgs>({"submit", "--resume", "3", "--step", "20"}).step, 20);
  EXPECT_EQ(Parse<SubmitArgs>({"submit", "j.toml", "--from", "d", "--exclude", "opt.*"}).exclude,
            std::vector<std::string>{"opt.*"});
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"submit", "j.toml", "--step", "20"},
                                             {"submit", "j.toml", "--exclude", "opt.*"},
                                             {"submit", "--resume", "3", "--upload"},
                                             {"submit", "--from", "d", "--data-root", "a=b"}}) {
    const ParsedArgs parsed = ParseArgs(args);
    EXPECT_EQ(parsed.exit_code, kExitUsage) << args.back();
    EXPECT_NE(parsed.text.find("--"), std::string::npos) << parsed.text;
  }
}

TEST(Args, RepeatedSetKeepsOrder) {
  const auto plan =
      Parse<PlanArgs>({"plan", "j.toml", "--set", "a.b=1", "--set", "a.b=2", "--devices", "4"});
  EXPECT_EQ(plan.overrides, (std::vector<std::string>{"a.b=1", "a.b=2"}));
  EXPECT_EQ(plan.devices, 4);
}

TEST(Args, TheTimeOfPlanningIsANumber) {
  EXPECT_EQ(Parse<PlanArgs>({"plan", "j.toml", "--plan-timeout", "0.5"}).plan_timeout_s, 0.5);
  for (const char* value : {"nan", "-1", "inf", "1e7", "abc", ""}) {
    EXPECT_EQ(ParseArgs({"plan", "j.toml", "--plan-timeout", value}).exit_code, kExitUsage)
        << value;
  }
}

TEST(Args, APlanIsForAClusterFileOrForANumberOfDevices) {
  EXPECT_EQ(Parse<PlanArgs>({"plan", "j.toml", "--cluster", "c.toml"}).cluster, "c.toml");
  EXPECT_EQ(ParseArgs({"plan", "j.toml", "--cluster", "c.toml", "--devices", "4"}).exit_code,
            kExitUsage);
}

TEST(Args, APlanIsShownExplainedOrCompared) {
  EXPECT_EQ(Parse<PlanArgs>({"plan", "j.toml"}).action, PlanAction::kShow);
  const auto explain = Parse<PlanArgs>({"plan", "explain", "j.toml", "stage", "2", "--devices=4"});
  EXPECT_EQ(explain.action, PlanAction::kExplain);
  EXPECT_EQ(explain.file, "j.toml");
  EXPECT_EQ(explain.subject, "stage 2");
  EXPECT_EQ(explain.devices, 4);
  const auto axes = Parse<PlanArgs>({"plan", "explain", "j.toml"});
  EXPECT_EQ(axes.action, PlanAction::kExplain);
  EXPECT_EQ(axes.subject, "");
  const auto diff = Parse<PlanArgs>({"plan", "--cluster", "c.toml", "diff", "a.toml", "b.toml"});
  EXPECT_EQ(diff.action, PlanAction::kDiff);
  EXPECT_EQ(diff.file, "a.toml");
  EXPECT_EQ(diff.other, "b.toml");
  EXPECT_EQ(diff.cluster, "c.toml");
  // A file of that name is still a job.
  EXPECT_EQ(Parse<PlanArgs>({"plan", "./diff"}).action, PlanAction::kShow);
}

TEST(Args, APlanWritesFilesAndTakesDecisions) {
  const auto plan = Parse<PlanArgs>(
      {"plan", "j", "--svg", "s", "--save", "p", "--trace", "t", "--plan", "q", "--no-plan-cache"});
  EXPECT_EQ(plan.svg, "s");
  EXPECT_EQ(plan.save, "p");
  EXPECT_EQ(plan.timeline, "t");
  EXPECT_EQ(plan.decisions, "q");
  EXPECT_EQ(plan.plan_cache, "off");
  EXPECT_EQ(Parse<SubmitArgs>({"submit", "j", "--plan", "q"}).decisions, "q");
  EXPECT_EQ(Parse<PlanArgs>({"plan", "j", "--plan-cache", "/x"}).plan_cache, "/x");
}

TEST(Args, PlansAreCachedUnlessSaid) {
  ::unsetenv("MESHWRIGHT_PLAN_CACHE");
  EXPECT_EQ(Parse<PlanArgs>({"plan", "j"}).plan_cache, "default");
  EXPECT_EQ(Parse<ControllerArgs>({"controller"}).plan_cache, "default");
  ::setenv("MESHWRIGHT_PLAN_CACHE", "/folder", 1);
  EXPECT_EQ(Parse<ControllerArgs>({"controller"}).plan_cache, "/folder");
  EXPECT_EQ(Parse<PlanArgs>({"plan", "j", "--no-plan-cache"}).plan_cache, "off");
  ::unsetenv("MESHWRIGHT_PLAN_CACHE");
}

TEST(Args, JsonOfAPlanHasAShortName) {
  for (const auto& args : {std::vector<std::string>{"plan", "j", "--json"},
                           std::vector<std::string>{"plan", "j", "-o", "json"}}) {
    const ParsedArgs parsed = ParseArgs(args);
    ASSERT_TRUE(parsed.invocation) << parsed.text;
    EXPECT_TRUE(parsed.invocation->global.json);
  }
}

TEST(Args, WorkersAreMeasuredOncePerMachineUnlessSaid) {
  EXPECT_EQ(Parse<WorkerArgs>({"worker"}).profile, "cached");
  EXPECT_EQ(Parse<UpArgs>({"up", "--profile=off"}).profile, "off");
  ::setenv("MESHWRIGHT_PROFILE", "off", 1);
  EXPECT_EQ(Parse<WorkerArgs>({"worker"}).profile, "off");
  EXPECT_EQ(Parse<WorkerArgs>({"worker", "--profile", "measure"}).profile, "measure");
  ::unsetenv("MESHWRIGHT_PROFILE");
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

TEST(Args, WorkersArePinnedWhenAskedFor) {
  EXPECT_FALSE(Parse<UpArgs>({"up"}).pin);
  EXPECT_TRUE(Parse<UpArgs>({"up", "--pin"}).pin);
  EXPECT_TRUE(Parse<WorkerArgs>({"worker", "--pin"}).pin);
}

TEST(Args, AClusterTakesAWorkerOfOnesOwn) {
  EXPECT_EQ(Parse<UpArgs>({"up"}).worker_binary, "");
  EXPECT_EQ(Parse<UpArgs>({"up", "--worker-binary", "build/mine"}).worker_binary, "build/mine");
  EXPECT_EQ(ParseArgs({"worker", "--worker-binary", "x"}).exit_code, kExitUsage);
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

TEST(Args, VerifyTakesWhatItPlansAndHowMuchItMayEmulate) {
  const auto verify = Parse<VerifyArgs>({"verify", "j.toml", "--set", "a.b=1", "--devices", "4",
                                         "--plan", "p", "--max-ranks", "8", "--seed", "3"});
  EXPECT_EQ(verify.plan.file, "j.toml");
  EXPECT_EQ(verify.plan.overrides, std::vector<std::string>{"a.b=1"});
  EXPECT_EQ(verify.plan.devices, 4);
  EXPECT_EQ(verify.plan.decisions, "p");
  EXPECT_EQ(verify.max_ranks, 8);
  EXPECT_EQ(verify.seed, 3u);
  EXPECT_TRUE(ParseArgs({"verify", "j", "--json"}).invocation->global.json);
  EXPECT_EQ(ParseArgs({"verify", "j", "--max-ranks", "257"}).exit_code, kExitUsage);
  EXPECT_EQ(ParseArgs({"verify"}).exit_code, kExitUsage);
}

TEST(Args, HelpAndVersionExitWithZero) {
  const ParsedArgs help = ParseArgs({"--help"});
  EXPECT_EQ(help.exit_code, kExitOk);
  for (const char* command : {"up", "down", "submit", "jobs", "logs", "cancel", "status", "plan",
                              "verify", "visualize", "config", "controller", "worker"}) {
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
  // A full disk or no memory here; RunPlan tells what does not fit.
  EXPECT_EQ(ExitCodeOf(ResourceExhausted("x")), 1);
  EXPECT_EQ(ExitCodeOf(DeadlineExceeded("x")), 5);
  EXPECT_EQ(ExitCodeOf(Internal("x")), 1);
}

std::string UsageText(const std::vector<std::string>& args) {
  const ParsedArgs parsed = ParseArgs(args);
  EXPECT_EQ(parsed.exit_code, kExitUsage);
  EXPECT_FALSE(parsed.invocation);
  return parsed.text;
}

TEST(Args, NumbersOutOfRangeAreUsageErrors) {
  const std::vector<std::vector<std::string>> cases = {
      {"plan", "j", "--devices", "0"},
      {"plan", "j", "--devices", "-4"},
      {"plan", "j", "--devices", "65537"},
      {"plan", "j", "--devices-per-worker", "0"},
      {"plan", "j", "--devices-per-worker", "-1"},
      {"up", "--port", "70000"},
      {"up", "--port", "-1"},
      {"up", "--metrics-port", "65536"},
      {"up", "--workers", "257"},
      {"up", "--timeout-ms", "-1"},
      {"controller", "--port", "70000"},
      {"controller", "--metrics-port", "-2"},
      {"worker", "--data-port", "70000"},
      {"worker", "--metrics-port", "70000"},
      {"worker", "--memory-mib", "-1"},
      {"worker", "--devices", "0"},
      {"submit", "j", "--timeout-s", "-1"},
      {"wait", "1", "--timeout-s", "-1"},
      {"wait", "0"},
      {"cancel", "-3"},
  };
  for (const auto& args : cases) {
    const std::string option = args.size() > 2 ? args[args.size() - 2] : "id";
    EXPECT_NE(UsageText(args).find(option), std::string::npos) << UsageText(args);
  }
  EXPECT_EQ(Parse<ControllerArgs>({"controller", "--metrics-port", "-1"}).metrics_port, -1);
  EXPECT_EQ(Parse<UpArgs>({"up", "--port", "0"}).port, 0);
}

TEST(Args, WorkersAreGivenOrdersByName) {
  using Action = WorkerOrderArgs::Action;
  const auto drain = Parse<WorkerOrderArgs>({"worker", "drain", "w0", "--deadline-s", "9"});
  EXPECT_EQ(drain.action, Action::kDrain);
  EXPECT_EQ(drain.name, "w0");
  EXPECT_EQ(drain.deadline_s, 9);
  EXPECT_EQ(Parse<WorkerOrderArgs>({"worker", "drain", "w0"}).deadline_s, 120);
  EXPECT_EQ(Parse<WorkerOrderArgs>({"worker", "cordon", "w0"}).action, Action::kCordon);
  EXPECT_EQ(Parse<WorkerOrderArgs>({"worker", "uncordon", "w0"}).action, Action::kUncordon);
  EXPECT_EQ(Parse<WorkerOrderArgs>({"worker", "evict", "w0"}).action, Action::kEvict);
  EXPECT_EQ(Parse<WorkerArgs>({"worker", "--name", "w0", "--drain-s", "5"}).drain_s, 5);
  EXPECT_EQ(ParseArgs({"worker", "drain"}).exit_code, kExitUsage);
}

TEST(Args, PlacesInTheQueueAreKeysOfTheJob) {
  const auto submit = Parse<SubmitArgs>(
      {"submit", "j", "--set", "training.steps=5", "--priority", "-3", "--max-queue-wait-s", "60"});
  EXPECT_THAT(submit.overrides,
              ::testing::UnorderedElementsAre("training.steps=5", "job.priority=-3",
                                              "job.max_queue_wait_seconds=60"));
  EXPECT_EQ(ParseArgs({"submit", "j", "--priority", "1001"}).exit_code, kExitUsage);
  EXPECT_TRUE(Parse<PauseArgs>({"pause", "3", "--no-wait"}).no_wait);
  EXPECT_EQ(Parse<ResumeArgs>({"resume", "3"}).id, 3);
}

TEST(Args, AddressesAreHostAndPort) {
  for (const char* address : {"h:1", "127.0.0.1:7700", "[::1]:65535", "unix:/run/c.sock"}) {
    EXPECT_TRUE(ParseArgs({"jobs", "--address", address}).invocation) << address;
  }
  for (const char* address : {"h", "h:", ":1", "h:0", "h:65536", "h:1x", "::1:7700", "http://h:1",
                              "a b:1", "unix:", "unix:c.sock"}) {
    EXPECT_NE(UsageText({"jobs", "--address", address}).find("write host:port"), std::string::npos)
        << address;
  }
}

TEST(Args, UnknownWordsGetTheNearestKnownOne) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"statsu"}, "unknown command 'statsu' (did you mean 'status'?)"},
      {{"--address", "h:1", "job"}, "unknown command 'job'"},
      {{"up", "--wrokers", "3"},
       "unknown option '--wrokers' of `meshwright up` (did you mean '--workers'?)"},
      {{"jobs", "--colour", "never"}, "(did you mean '--color'?)"},
      {{"up", "-n", "3", "--prot=1"}, "(did you mean '--port'?)"},
      {{"submit", "j", "--training.steps", "5"}, "write --training.steps=VALUE"},
      {{"tokenizer", "train", "t.txt", "--out", "t.json", "--vocabularies", "5"},
       "unknown option '--vocabularies' of `meshwright tokenizer train` (did you mean "
       "'--vocabulary'?)"},
      {{"jobs", "--training.steps=5"}, "unknown option '--training.steps' of `meshwright jobs`"},
  };
  for (const auto& [args, text] : cases) {
    EXPECT_NE(UsageText(args).find(text), std::string::npos) << UsageText(args);
  }
}

TEST(Args, AdaptersAreExportedOrMerged) {
  const auto exported =
      Parse<AdapterArgs>({"adapter", "export", "w.safetensors", "out", "--base-model", "gpt2"});
  EXPECT_EQ(exported.action, AdapterAction::kExport);
  EXPECT_EQ(exported.base_model, "gpt2");
  const auto merged = Parse<AdapterArgs>({"adapter", "merge", "w.safetensors", "m.safetensors",
                                          "--adapter", "dir", "--dtype", "bfloat16"});
  EXPECT_EQ(merged.action, AdapterAction::kMerge);
  EXPECT_EQ(merged.adapter, "dir");
  EXPECT_EQ(merged.dtype, "bfloat16");
  EXPECT_NE(UsageText({"adapter", "merge", "w.safetensors", "m", "--dtype", "int8"}).find("int8"),
            std::string::npos);
  EXPECT_TRUE(Parse<CheckpointArgs>({"checkpoint", "export", "A", "f", "--averages"}).averages);
}

TEST(Args, ATokenizerEncodesOneThing) {
  EXPECT_NE(UsageText({"tokenizer", "encode", "t.json"}).find("--file or --jsonl"),
            std::string::npos);
  EXPECT_NE(
      UsageText({"tokenizer", "encode", "t.json", "--file", "a", "--jsonl", "b"}).find("excludes"),
      std::string::npos);
  EXPECT_EQ(Parse<TokenizerArgs>({"tokenizer", "encode", "t.json", ""}).text, "");
}

TEST(Args, OptionsWithoutEffectAreRefused) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"visualize", "f32[2]", "--mesh", "data=2"},
                                             {"down"},
                                             {"worker"},
                                             {"controller"},
                                             {"config", "show", "j"}}) {
    std::vector<std::string> args = command;
    args.insert(args.end(), {"-o", "json"});
    EXPECT_NE(UsageText(args).find("has no JSON output"), std::string::npos) << command[0];
  }
  EXPECT_TRUE(ParseArgs({"config", "schema", "-o", "json"}).invocation);
  EXPECT_TRUE(ParseArgs({"logs", "3", "-o", "json"}).invocation);
  EXPECT_NE(UsageText({"plan", "j", "--timeline", "t", "--stop-after", "graph"}).find("--timeline"),
            std::string::npos);
  for (const std::vector<std::string>& refused : std::vector<std::vector<std::string>>{
           {"plan", "j", "--json", "--stop-after", "graph"},
           {"plan", "j", "--json", "--programs"},
           {"plan", "j", "--svg", "s", "--stop-after", "programs"},
           {"plan", "diff", "a", "b", "--svg", "s"},
           {"plan", "diff", "a", "b", "--plan", "p"},
           {"plan", "explain", "j", "stage 0", "--save", "p"}}) {
    EXPECT_NE(UsageText(refused).find("--"), std::string::npos) << UsageText(refused);
  }
  EXPECT_NE(UsageText({"plan", "explain"}).find("STAGE|VALUE"), std::string::npos);
  EXPECT_NE(UsageText({"plan", "diff", "a"}).find("diff A B"), std::string::npos);
  EXPECT_NE(UsageText({"plan", "a", "b"}).find("'b' is one too many"), std::string::npos);
  EXPECT_NE(UsageText({"submit", "j", "--no-wait", "--record", "r"}).find("--record"),
            std::string::npos);
}

}  // namespace
}  // namespace meshwright::cli
