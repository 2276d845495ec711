#include "controller/worker_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "base/file.h"

namespace meshwright::controller {
namespace {

using ::testing::HasSubstr;

class WorkerLogsTest : public ::testing::Test {
 protected:
  WorkerLogsTest() { Reopen(); }
  void Reopen() {
    logs_.reset();
    logs_ = WorkerLogs::Open(dir_.File("logs"), SystemClock()).value();
  }
  static proto::LogLines Lines(std::vector<std::string> lines, int64_t dropped = 0) {
    return {std::move(lines), dropped};
  }
  Result<LogAnswer> Ask(const std::string& worker, int64_t from = -1, bool kept = false) {
    std::promise<Result<LogAnswer>> told;
    LogQuestion question;
    question.worker = worker;
    question.what.from = from;
    question.kept = kept;
    logs_->Ask(question, [&](Result<LogAnswer> answer) { told.set_value(std::move(answer)); });
    return told.get_future().get();
  }
  // A worker that answers with the position that it was asked for.
  uint64_t JoinOne(const std::string& name) {
    return logs_->Join(name, [this](const proto::FetchLog& fetch) {
      logs_->OnPiece({fetch.ask, "from " + std::to_string(fetch.from) + "\n", 9, true});
    });
  }

  TempDir dir_ = TempDir::Make("mw-worker-logs").value();
  std::unique_ptr<WorkerLogs> logs_;
};

TEST_F(WorkerLogsTest, WhatAWorkerToldOutlivesItAndTheController) {
  logs_->Keep("gpu/1", Lines({"one", "two"}));
  logs_->Keep("w", Lines({"of another"}));
  logs_->Stop();
  Reopen();
  logs_->Keep("gpu/1", Lines({"three"}, 5));
  const LogAnswer answer = Ask("gpu/1").value();
  EXPECT_EQ(answer.piece.text, "one\ntwo\n(5 lines were left out)\nthree\n");
  EXPECT_FALSE(answer.live);
  EXPECT_THAT(answer.note, HasSubstr("worker 'gpu/1' is not here"));
}

TEST_F(WorkerLogsTest, AWorkerThatIsHereIsAskedItself) {
  (void)JoinOne("w");
  logs_->Keep("w", Lines({"kept"}));
  const LogAnswer answer = Ask("w", 42).value();
  EXPECT_EQ(answer.piece.text, "from 42\n");
  EXPECT_TRUE(answer.live);
  EXPECT_EQ(answer.note, "");
  EXPECT_EQ(Ask("w", -1, true)->piece.text, "kept\n");
}

TEST_F(WorkerLogsTest, OneThatLeavesBeforeItAnswersIsAnsweredFor) {
  std::promise<void> asked;
  const uint64_t id = logs_->Join("w", [&](const proto::FetchLog&) { asked.set_value(); });
  logs_->Keep("w", Lines({"its last words"}));
  auto answer = std::async(std::launch::async, [&] { return Ask("w", 1'000'000); });
  asked.get_future().wait();
  logs_->Leave("w", id);
  const LogAnswer got = answer.get().value();
  EXPECT_EQ(got.piece.text, "its last words\n") << "a position of the worker's log means nothing";
  EXPECT_THAT(got.note, HasSubstr("worker 'w' has just left"));
}

TEST_F(WorkerLogsTest, TheEndOfAnOldSessionLeavesTheNewOneAlone) {
  const uint64_t old = JoinOne("w");
  (void)JoinOne("w");
  logs_->Leave("w", old);
  EXPECT_TRUE(Ask("w")->live);
}

TEST_F(WorkerLogsTest, ALateAnswerIsNoAnswer) {
  logs_->OnPiece({99, "late", 0, true});
  const auto answer = Ask("nobody");
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), StatusCode::kNotFound);
}

TEST_F(WorkerLogsTest, WhatIsKeptOfAWorkerHasABound) {
  for (int i = 0; i < 200; ++i) {
    logs_->Keep("w", Lines(std::vector<std::string>(4, std::string(1000, 'x'))));
  }
  logs_->Keep("w", Lines({"the last"}));
  const LogAnswer answer = Ask("w").value();
  EXPECT_LE(answer.piece.text.size(), WorkerLogs::kKeptBytes);
  EXPECT_TRUE(answer.piece.text.ends_with("the last\n"));
}

TEST_F(WorkerLogsTest, WhoAsksWhenItStopsIsAnswered) {
  std::promise<void> asked;
  (void)logs_->Join("w", [&](const proto::FetchLog&) { asked.set_value(); });
  auto answer = std::async(std::launch::async, [&] { return Ask("w"); });
  asked.get_future().wait();
  logs_->Stop();
  EXPECT_EQ(answer.get().error().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Ask("w", -1, true).error().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace meshwright::controller
