#include "cli/worker_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "cli/args.h"
#include "cli/log_time.h"

namespace meshwright::cli {
namespace {

using ::testing::HasSubstr;

// Answers in an order that the test says, and keeps what it was asked.
class ScriptedInspector final : public client::Inspector {
 public:
  std::deque<client::LogText> answers;
  std::vector<client::LogAsk> asked;

  Result<std::string> Hang(int64_t, bool) override { return std::string(); }
  Result<client::LogText> Log(const client::LogAsk& ask) override {
    asked.push_back(ask);
    client::LogText answer = answers.front();
    answers.pop_front();
    return answer;
  }
  Result<client::ControllerState> State() override { return client::ControllerState{}; }
  Result<std::string> Metrics() override { return std::string(); }
};

TEST(WorkerLogReaders, GoOnWhereTheLastPieceEnded) {
  ScriptedInspector inspector;
  inspector.answers = {{"one\ntwo\n", 8, false, true, ""}, {"", 8, true, true, ""}};
  WorkerLogReader reader(inspector, {.worker = "w", .what = {.lines = 5}});
  const auto lines = reader.Next();
  ASSERT_TRUE(lines.has_value());
  ASSERT_EQ(lines->size(), 2U);
  EXPECT_EQ((*lines)[1].text, "two");
  EXPECT_FALSE(reader.end());
  EXPECT_TRUE(reader.Next()->empty());
  EXPECT_TRUE(reader.end());
  EXPECT_EQ(inspector.asked[0].what.from, -1);
  EXPECT_EQ(inspector.asked[1].what.from, 8);
  EXPECT_EQ(reader.TakeNote(), "");
}

TEST(WorkerLogReaders, GoOnByWhatIsKeptWhenTheWorkerIsGone) {
  ScriptedInspector inspector;
  inspector.answers = {{"one\n", 100, true, true, ""},
                       {"its last words\n", 30, true, false, "worker 'w' is not here"},
                       {"it is back\n", 41, true, false, ""}};
  WorkerLogReader reader(inspector, {.worker = "w", .what = {}});
  (void)reader.Next();
  EXPECT_EQ(reader.Next()->at(0).text, "its last words");
  EXPECT_EQ(reader.TakeNote(), "worker 'w' is not here");
  EXPECT_EQ(reader.TakeNote(), "") << "it is said once";
  EXPECT_EQ(reader.Next()->at(0).text, "it is back");
  EXPECT_TRUE(inspector.asked[2].kept);
  EXPECT_EQ(inspector.asked[2].what.from, 30);
}

TEST(WorkerLogLines, OfSeveralWorkersAreInTheOrderOfTime) {
  const std::vector<LogLine> merged =
      MergeLines({{{"a", "1", 10}, {"a", "no time, as the line before", 10}, {"a", "3", 30}},
                  {{"b", "2", 20}, {"b", "set back", 5}}});
  std::string order;
  for (const LogLine& line : merged) order += line.worker + line.text.substr(0, 1) + " ";
  EXPECT_EQ(order, "a1 an b2 bs a3 ");
  EXPECT_EQ(WorkerLineJson({"w\"", "a\tb", 0}), R"({"worker":"w\"","line":"a\tb"})");
}

TEST(LogTimes, AreAgesOrTimes) {
  constexpr int64_t kNow = 1'772'366'400'000;
  EXPECT_EQ(SinceUnixMs("", kNow), 0);
  EXPECT_EQ(SinceUnixMs("90s", kNow), kNow - 90'000);
  EXPECT_EQ(SinceUnixMs("10m", kNow), kNow - 600'000);
  EXPECT_EQ(SinceUnixMs("2h", kNow), kNow - 7'200'000);
  EXPECT_EQ(SinceUnixMs("1d", kNow), kNow - 86'400'000);
  EXPECT_EQ(SinceUnixMs("2026-03-01T12:00:00Z", kNow), kNow);
  for (const char* text : {"x", "10", "m", "-5m", "10 m", "99999999999999999999d"}) {
    const auto since = SinceUnixMs(text, kNow);
    ASSERT_FALSE(since.has_value()) << text;
    EXPECT_THAT(since.error().message(), HasSubstr("--since"));
  }
}

TEST(ObserveArgs, LogsAreOfAJobOrOfWorkers) {
  const auto logs = [](std::vector<std::string> args) {
    args.insert(args.begin(), "logs");
    const ParsedArgs parsed = ParseArgs(args);
    EXPECT_TRUE(parsed.invocation) << parsed.text;
    return std::get<LogsArgs>(parsed.invocation->command);
  };
  EXPECT_EQ(logs({"7", "-f"}).id, 7);
  EXPECT_EQ(logs({"--worker", "w0", "--lines", "5"}).lines, 5);
  EXPECT_EQ(logs({"7", "--all", "--since", "10m"}).since, "10m");
  const auto refused = [](std::vector<std::string> args) {
    args.insert(args.begin(), "logs");
    const ParsedArgs parsed = ParseArgs(args);
    EXPECT_EQ(parsed.exit_code, kExitUsage);
    return parsed.text;
  };
  EXPECT_THAT(refused({}), HasSubstr("needs a job, --worker NAME, --all or --controller"));
  EXPECT_TRUE(logs({"--controller", "-f"}).controller);
  EXPECT_THAT(refused({"--controller", "--all"}), HasSubstr("a log by itself"));
  EXPECT_THAT(refused({"7", "--controller"}), HasSubstr("a log by itself"));
  EXPECT_THAT(refused({"--worker", "a", "--all"}), HasSubstr("exclude each other"));
  EXPECT_THAT(refused({"7", "--since", "1h"}), HasSubstr("--worker NAME or --all"));
}

// Silence is not told from a mistake.
TEST(WorkerLogs, WhereThereIsNothingAPersonIsTold) {
  LogsArgs args;
  args.worker = "w0";
  EXPECT_EQ(NoLinesNote(args), "the log of worker 'w0' has no line");
  args.id = 7;
  args.since = "10m";
  EXPECT_EQ(NoLinesNote(args),
            "the log of worker 'w0' has no line of job 7 since 10m; what happened to the job: "
            "meshwright logs 7");
  LogsArgs all;
  all.all = true;
  all.follow = true;
  EXPECT_EQ(NoLinesNote(all), "the logs of the workers have no line; those that come are shown");
  LogsArgs own;
  own.controller = true;
  EXPECT_EQ(NoLinesNote(own), "the log of the controller has no line");
}

TEST(ObserveArgs, ServersLogAsTextOrJson) {
  EXPECT_FALSE(ParseArgs({"worker"}).invocation->global.log_json);
  const ParsedArgs json = ParseArgs({"worker", "--log-format", "json", "--log-dir", "/x"});
  ASSERT_TRUE(json.invocation) << json.text;
  EXPECT_TRUE(json.invocation->global.log_json);
  EXPECT_EQ(std::get<WorkerArgs>(json.invocation->command).log_dir, "/x");
  EXPECT_EQ(ParseArgs({"worker", "--log-format", "xml"}).exit_code, kExitUsage);
}

TEST(ObserveArgs, DebugHangWantsAJob) {
  EXPECT_EQ(std::get<DebugArgs>(ParseArgs({"debug", "hang", "7"}).invocation->command).id, 7);
  EXPECT_TRUE(ParseArgs({"debug", "hang", "7", "-o", "json"}).invocation->global.json);
  EXPECT_EQ(ParseArgs({"debug", "hang"}).exit_code, kExitUsage);
  EXPECT_EQ(ParseArgs({"debug"}).exit_code, kExitUsage);
}

}  // namespace
}  // namespace meshwright::cli
