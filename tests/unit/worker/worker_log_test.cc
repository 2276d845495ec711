#include "worker/worker_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

namespace meshwright::worker {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::unique_ptr<WorkerLog> MakeWorkerLog() { return WorkerLog::Open({}).value(); }

proto::LogPiece AskForPiece(WorkerLog& log, proto::FetchLog fetch) {
  std::promise<proto::LogPiece> told;
  EXPECT_TRUE(log.Handle(
      fetch, [&](proto::UpBody body) { told.set_value(std::get<proto::LogPiece>(body)); }));
  return told.get_future().get();
}

TEST(WorkerLog, TellsEachLineOnce) {
  const auto log = MakeWorkerLog();
  EXPECT_FALSE(log->News().has_value());
  log->Take(LogLevel::kInfo, "one");
  log->Take(LogLevel::kWarn, "two\nthree");
  log->Take(LogLevel::kDebug, "nobody is told of this");
  EXPECT_THAT(log->News()->lines, ElementsAre("one", "two", "three"));
  EXPECT_FALSE(log->News().has_value());
}

TEST(WorkerLog, LeavesOutTheLowestLevelFirstAndSaysHowMany) {
  const auto log = MakeWorkerLog();
  for (int i = 0; i < 2000; ++i) log->Take(LogLevel::kInfo, fmt::format("info {}", i));
  for (int i = 0; i < 30; ++i) log->Take(LogLevel::kError, fmt::format("error {}", i));
  const proto::LogLines news = log->News().value();
  EXPECT_THAT(news.lines, SizeIs(proto::kMostLogLines));
  EXPECT_EQ(news.dropped, 2030 - static_cast<int64_t>(proto::kMostLogLines));
  EXPECT_EQ(news.lines.front(), "info 1966");
  const std::vector<std::string> last(news.lines.end() - 30, news.lines.end());
  EXPECT_THAT(last, Each(StartsWith("error ")));
}

TEST(WorkerLog, AMessageHasABoundInBytes) {
  const auto log = MakeWorkerLog();
  for (int i = 0; i < 60; ++i) log->Take(LogLevel::kInfo, std::string(10'000, 'x'));
  const proto::LogLines news = log->News().value();
  size_t bytes = 0;
  for (const std::string& line : news.lines) bytes += line.size();
  EXPECT_LE(bytes, WorkerLog::kMostNewsBytes);
  EXPECT_GT(bytes, WorkerLog::kMostNewsBytes / 2);
  EXPECT_EQ(news.dropped + static_cast<int64_t>(news.lines.size()), 60);
}

TEST(WorkerLog, AnswersWhatIsFetchedAndNothingElse) {
  const auto log = MakeWorkerLog();
  for (int i = 0; i < 10; ++i) log->Take(LogLevel::kDebug, fmt::format("line {}", i));
  const auto nobody = [](proto::UpBody) { ADD_FAILURE(); };
  EXPECT_FALSE(log->Handle(proto::Drained{}, nobody));
  const proto::LogPiece last = AskForPiece(*log, {.ask = 7, .lines = 2});
  EXPECT_EQ(last.ask, 7U);
  EXPECT_EQ(last.text, "line 8\nline 9\n");
  EXPECT_TRUE(last.end);
  log->Take(LogLevel::kInfo, "line 10");
  EXPECT_EQ(AskForPiece(*log, {.ask = 8, .from = last.next}).text, "line 10\n");
}

TEST(WorkerLog, HearsWhatThisProcessLogs) {
  const auto log = MakeWorkerLog();
  log->Capture();
  LogWarn("the disk is full");
  EXPECT_THAT(log->News()->lines, ElementsAre(::testing::HasSubstr("the disk is full")));
}

TEST(WorkerLog, ANewsOfNoLogOrForAnOldControllerIsNone) {
  const auto log = MakeWorkerLog();
  log->Take(LogLevel::kInfo, "one");
  EXPECT_FALSE(NewsOf(nullptr, true).has_value());
  EXPECT_FALSE(NewsOf(log.get(), false).has_value());
  EXPECT_TRUE(NewsOf(log.get(), true).has_value());
}

}  // namespace
}  // namespace meshwright::worker
