#include "base/log.h"

#include <gtest/gtest.h>

#include <regex>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace meshwright {
namespace {

// Collects lines; the log is back to its defaults at the end.
class LogTest : public testing::Test {
 protected:
  LogTest() {
    SetLogSink([this](LogLevel level, std::string_view line) {
      levels_.push_back(level);
      lines_.emplace_back(line);
    });
  }
  ~LogTest() override {
    SetLogSink(nullptr);
    EXPECT_TRUE(InitLog({}).ok());
  }

  std::vector<LogLevel> levels_;
  std::vector<std::string> lines_;
};

TEST_F(LogTest, TextLinesHaveTimeLevelRoomAndMessage) {
  ASSERT_TRUE(InitLog({.to_stderr = false}).ok());
  Log(LogLevel::kWarn, "worker 3 missed 4 heartbeats", "controller/core.cc", 10);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_TRUE(std::regex_match(
      lines_[0], std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warn  controller: )"
                            R"(worker 3 missed 4 heartbeats)")))
      << lines_[0];
}

TEST_F(LogTest, LinesOfOtherProcessesAreMarkedAndWhatIsNoLineOfALogIsAWarning) {
  ASSERT_TRUE(InitLog({.to_stderr = false}).ok());
  LogForeignLine({"executor 7", 3}, "2026-03-01T12:00:00.000Z info  worker: ready");
  LogForeignLine({"executor 7", 0}, "double free or corruption");
  EXPECT_EQ(lines_, (std::vector<std::string>{
                        "executor 7 of job 3 | 2026-03-01T12:00:00.000Z info  worker: ready",
                        "executor 7 | double free or corruption"}));
  EXPECT_EQ(levels_, (std::vector<LogLevel>{LogLevel::kInfo, LogLevel::kWarn}));
}

TEST_F(LogTest, LinesOfOtherProcessesAreJsonWhereItsOwnAre) {
  ASSERT_TRUE(InitLog({.json = true, .to_stderr = false}).ok());
  LogForeignLine({"executor 7", 3}, R"({"time":"2026-03-01T12:00:00.000Z","level":"error"})");
  LogForeignLine({"executor 7", 3}, "a \"crash\"");
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_EQ(lines_[0], R"({"process":"executor 7","job":3,"time":"2026-03-01T12:00:00.000Z",)"
                       R"("level":"error"})");
  EXPECT_EQ(levels_[0], LogLevel::kError);
  EXPECT_TRUE(lines_[1].starts_with(R"({"process":"executor 7","job":3,"time":")")) << lines_[1];
  EXPECT_TRUE(lines_[1].ends_with(R"("level":"warn","message":"a \"crash\""})")) << lines_[1];
}

TEST_F(LogTest, RoomIsTheFolderOfTheCallingFile) {
  ASSERT_TRUE(InitLog({.to_stderr = false}).ok());
  LogInfo("here");
  Log(LogLevel::kInfo, "nested", "collective/cpu/tcp.cc", 1);
  Log(LogLevel::kInfo, "absolute", "/home/somebody/tree/worker/agent.cc", 1);
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_NE(lines_[0].find(" tests: here"), std::string::npos) << lines_[0];
  EXPECT_NE(lines_[1].find(" collective: nested"), std::string::npos) << lines_[1];
  EXPECT_NE(lines_[2].find(" worker: absolute"), std::string::npos) << lines_[2];
}

TEST_F(LogTest, LevelsBelowTheThresholdAreDropped) {
  ASSERT_TRUE(InitLog({.level = LogLevel::kWarn, .to_stderr = false}).ok());
  LogDebug("a");
  LogInfo("b");
  LogWarn("c");
  LogError("d");
  EXPECT_EQ(levels_, (std::vector<LogLevel>{LogLevel::kWarn, LogLevel::kError}));
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  EXPECT_TRUE(LogEnabled(LogLevel::kError));
}

TEST_F(LogTest, JsonLinesEscapeWhateverTheMessageHolds) {
  ASSERT_TRUE(InitLog({.json = true, .to_stderr = false}).ok());
  Log(LogLevel::kInfo, "a \"quoted\"\nline {}", "worker/agent.cc", 7);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find(R"("level":"info","component":"worker","source":"worker/agent.cc:7",)"
                           R"("message":"a \"quoted\"\nline {}"})"),
            std::string::npos)
      << lines_[0];
  EXPECT_EQ(lines_[0].find('\n'), std::string::npos);
}

TEST_F(LogTest, FileGetsTheSameLinesAsTheSink) {
  const TempDir folder = TempDir::Make().value();
  ASSERT_TRUE(InitLog({.file = folder.File("log"), .to_stderr = false}).ok());
  LogInfo("first {not a format}");
  LogInfo("second");
  EXPECT_EQ(ReadFile(folder.File("log")).value(), Join(lines_, "\n") + "\n");
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAnError) {
  const Status status = InitLog({.file = "/proc/none/log"});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("/proc/none/log"), std::string::npos) << status;
}

TEST_F(LogTest, ThreadsDoNotMixLines) {
  ASSERT_TRUE(InitLog({.to_stderr = false}).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) LogInfo(std::string(100, 'x'));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(lines_.size(), 400u);
  for (const std::string& line : lines_) {
    EXPECT_EQ(line.substr(line.size() - 102), ": " + std::string(100, 'x'));
  }
}

TEST(ParseLogLevel, KnowsItsNamesAndListsThem) {
  EXPECT_EQ(ParseLogLevel("debug").value(), LogLevel::kDebug);
  EXPECT_EQ(ParseLogLevel("error").value(), LogLevel::kError);
  const Status status = ParseLogLevel("loud").error();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("debug, info, warn, error"), std::string::npos) << status;
}

}  // namespace
}  // namespace meshwright
