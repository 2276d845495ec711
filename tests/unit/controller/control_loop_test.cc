// The shell of the core, with a store in memory, workers played by the test and real files.
#include "controller/control_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "base/file.h"
#include "proto/job_codec.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::JobState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{30};

// Opened once, waited for by any.
class Gate {
 public:
  void Open() {
    std::scoped_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool Wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// A session's far end that remembers how it was closed.
class FakePeer final : public SessionPeer {
 public:
  void Send(proto::DownMessage) override {}
  void Close(Status reason) override {
    {
      std::scoped_lock lock(mutex_);
      reason_ = std::move(reason);
    }
    closed_.Open();
  }
  // The reason; nothing when it is still open after the test's patience.
  std::optional<Status> AwaitClose() {
    if (!closed_.Wait()) return std::nullopt;
    return reason();
  }
  std::optional<Status> reason() {
    std::scoped_lock lock(mutex_);
    return reason_;
  }

 private:
  std::mutex mutex_;
  std::optional<Status> reason_;
  Gate closed_;
};

class ControlLoopTest : public ::testing::Test {
 protected:
  ControlLoopTest() : metrics_(registry_) {
    dir_ = std::make_unique<StateDir>(StateDir::Open(folder_.File("state")).value());
    blobs_ = BlobStore::Open(dir_->blobs_dir()).value();
    options_ = SimCluster::DefaultOptions();
    options_.jobs_dir = dir_->jobs_dir();
  }
  ~ControlLoopTest() override { loop_.reset(); }

  void Start() {
    store_ = OpenMemoryStore(disk_);
    loop_ = std::make_unique<ControlLoop>(
        options_, ControlParts{store_.get(), blobs_.get(), &weights_, &metrics_, dir_.get(),
                               nullptr, plan, load_journal});
    loop_->Start();
  }

  // A job of the controller's last life.
  void Remember(int64_t id, JobState state) {
    JobRecord record;
    record.id = id;
    record.op_id = "old-" + std::to_string(id);
    record.name = "old";
    record.state = state;
    StoreBatch batch;
    batch.jobs = {record};
    ASSERT_TRUE(OpenMemoryStore(disk_)->Apply(batch).ok());
    ASSERT_TRUE(MakeDirs(dir_->job_dir(id)).ok());
  }

  std::shared_ptr<FakePeer> AddWorker(const std::string& name, int devices) {
    auto peer = std::make_shared<FakePeer>();
    const SessionId session = loop_->OpenSession(peer);
    proto::Register info;
    info.name = name;
    info.devices = devices;
    info.incarnation = Incarnation(session.value() + 100);
    loop_->FromWorker(session, proto::UpMessage{Term(0), info});
    loop_->FromWorker(session, proto::MakeHeartbeat(loop_->options().term));
    return peer;
  }

  template <typename T>
  struct Answer {
    std::shared_ptr<std::promise<Result<T>>> promise = std::make_shared<std::promise<Result<T>>>();
    std::future<Result<T>> future = promise->get_future();
    std::function<void(Result<T>)> callback() {
      return [to = promise](Result<T> value) { to->set_value(std::move(value)); };
    }
    Result<T> Get() {
      if (future.wait_for(kPatience) != std::future_status::ready) {
        return Fail(DeadlineExceeded("the loop did not answer"));
      }
      return future.get();
    }
  };

  int64_t Submit() {
    Answer<int64_t> answer;
    loop_->Submit({"op-" + std::to_string(++submitted_), SimCluster::MakeJob(1, 1, 1, 2)},
                  answer.callback());
    const auto id = answer.Get();
    EXPECT_TRUE(id.has_value()) << id.error();
    return id.value_or(0);
  }

  Result<ControlLoop::News> Watch(WatchCursor cursor) {
    Answer<ControlLoop::News> answer;
    loop_->Watch(loop_->NewWatchId(), cursor, answer.callback());
    return answer.Get();
  }

  // Follows the job until `enough`.
  proto::JobInfo Follow(int64_t job, const std::function<bool(const proto::JobInfo&)>& enough) {
    WatchCursor cursor{job, 0, 0, -1};
    while (true) {
      const auto news = Watch(cursor);
      EXPECT_TRUE(news.has_value()) << news.error();
      if (!news.has_value()) return {};
      if (enough(news->update.info) || news->last) return news->update.info;
      cursor = news->cursor;
    }
  }
  proto::JobInfo FollowToEnd(int64_t job) {
    return Follow(job, [](const proto::JobInfo& info) { return proto::IsTerminal(info.state); });
  }

  TempDir folder_ = TempDir::Make().value();
  MetricsRegistry registry_;
  ControllerMetrics metrics_;
  std::unique_ptr<StateDir> dir_;
  std::unique_ptr<BlobStore> blobs_;
  WeightsSink weights_;
  CoreOptions options_;
  std::shared_ptr<MemoryDisk> disk_ = MakeMemoryDisk();
  std::function<Journal(const std::string&, const JournalSizes&)> load_journal = LoadJournal;
  PlanFunction plan = [](const ir::JobRequest&, const mesh::Topology&) -> Result<planner::Plan> {
    return Fail(InvalidArgument("nothing fits"));
  };
  std::unique_ptr<Store> store_;
  std::unique_ptr<ControlLoop> loop_;
  int submitted_ = 0;
};

// ---- Planning ----

TEST_F(ControlLoopTest, AnExceptionInThePlannerFailsTheJobAndNothingElse) {
  plan = [](const ir::JobRequest&, const mesh::Topology&) -> Result<planner::Plan> {
    throw std::out_of_range("vector index 7");
  };
  Start();
  AddWorker("w0", 1);
  for (int i = 0; i < 2; ++i) {
    const proto::JobInfo info = FollowToEnd(Submit());
    EXPECT_EQ(info.state, JobState::kFailed);
    EXPECT_EQ(info.reason, "PlanFailed");
    EXPECT_THAT(info.message, HasSubstr("vector index 7"));
  }
}

TEST_F(ControlLoopTest, StoppingDoesNotBeginThePlansThatWait) {
  Gate begun;
  Gate go_on;
  std::atomic<int> plans{0};
  plan = [&](const ir::JobRequest&, const mesh::Topology&) -> Result<planner::Plan> {
    ++plans;
    begun.Open();
    EXPECT_TRUE(go_on.Wait());
    return Fail(InvalidArgument("nothing fits"));
  };
  Start();
  AddWorker("w0", 2);
  Submit();
  const int64_t second = Submit();
  const proto::JobInfo info =
      Follow(second, [](const proto::JobInfo& i) { return i.state == JobState::kPlanning; });
  ASSERT_EQ(info.state, JobState::kPlanning);
  ASSERT_TRUE(begun.Wait());
  const auto now = Watch({second, 0, 0, -1});
  ASSERT_TRUE(now.has_value());
  Answer<ControlLoop::News> ended;
  loop_->Watch(loop_->NewWatchId(), now->cursor, ended.callback());
  auto stop = std::async(std::launch::async, [this] { loop_->Stop(); });
  EXPECT_FALSE(ended.Get().has_value()) << "watchers end when stopping begins";
  go_on.Open();
  stop.get();
  EXPECT_EQ(plans, 1);
}

TEST_F(ControlLoopTest, OnlyThePlannersOwnErrorIsAMisfit) {
  Start();
  AddWorker("w0", 1);
  EXPECT_EQ(FollowToEnd(Submit()).reason, "Infeasible");
}

// ---- Sessions ----

TEST_F(ControlLoopTest, ASessionThatNeverRegistersIsClosed) {
  options_.register_deadline_ms = 200;
  Start();
  const auto worker = AddWorker("w0", 1);
  const auto mute = std::make_shared<FakePeer>();
  loop_->OpenSession(mute);
  const auto reason = mute->AwaitClose();
  ASSERT_TRUE(reason.has_value());
  EXPECT_EQ(reason->code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(reason->message(), HasSubstr("Register"));
  EXPECT_FALSE(worker->reason().has_value()) << "who has registered stays";
}

TEST_F(ControlLoopTest, FewSessionsMayWaitToRegister) {
  options_.max_pending_sessions = 3;
  Start();
  std::vector<std::shared_ptr<FakePeer>> mute;
  for (int i = 0; i < 4; ++i) {
    mute.push_back(std::make_shared<FakePeer>());
    loop_->OpenSession(mute.back());
  }
  const auto reason = mute[3]->AwaitClose();
  ASSERT_TRUE(reason.has_value());
  EXPECT_EQ(reason->code(), StatusCode::kResourceExhausted) << "a worker tries again";
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(mute[static_cast<size_t>(i)]->reason().has_value());
}

TEST_F(ControlLoopTest, WhatAClosedSessionSaysIsNotHeard) {
  options_.max_pending_sessions = 0;
  Start();
  const auto peer = AddWorker("late", 1);
  ASSERT_TRUE(peer->AwaitClose().has_value());
  Answer<std::vector<proto::WorkerInfo>> workers;
  loop_->Workers(workers.callback());
  EXPECT_TRUE(workers.Get()->empty());
}

// ---- Files ----

TEST_F(ControlLoopTest, RemovesThePartialWeightsOfAKilledController) {
  Remember(1, JobState::kRunning);
  Remember(2, JobState::kSucceeded);
  const auto file = [&](int64_t job, const char* name) { return dir_->job_dir(job) + "/" + name; };
  for (const std::string& path :
       {file(1, "model.safetensors.aB3x_9"), file(1, "model.safetensors"),
        file(1, "model.safetensors.mine"), file(2, "model.safetensors.aB3x_9")}) {
    ASSERT_TRUE(WriteFileAtomic(path, "x").ok());
  }
  Start();
  EXPECT_EQ(FollowToEnd(1).reason, "ControllerRestarted");
  loop_->Stop();
  EXPECT_FALSE(FileExists(file(1, "model.safetensors.aB3x_9")));
  EXPECT_TRUE(FileExists(file(1, "model.safetensors")));
  EXPECT_TRUE(FileExists(file(1, "model.safetensors.mine"))) << "somebody else's";
  EXPECT_TRUE(FileExists(file(2, "model.safetensors.aB3x_9"))) << "that job had ended";
}

TEST_F(ControlLoopTest, AForgottenJobTakesItsFolderWithIt) {
  options_.max_jobs = 1;
  Start();
  const int64_t first = Submit();
  Answer<bool> cancelled;
  loop_->Order(
      [first](CallId call) {
        return CancelJob{call, JobId(first)};
      },
      [done = cancelled.callback()](const Status& status) { done(status.ok()); });
  ASSERT_TRUE(cancelled.Get().value());
  EXPECT_EQ(FollowToEnd(first).state, JobState::kCancelled);
  const int64_t second = Submit();
  EXPECT_EQ(Watch({first, 0, 0, -1}).error().code(), StatusCode::kNotFound);
  loop_->Stop();
  EXPECT_FALSE(FileExists(dir_->job_dir(first)));
  EXPECT_TRUE(FileExists(dir_->job_dir(second) + "/job.log"));
}

TEST_F(ControlLoopTest, BlobsThatNoJobUsesGoAtTheStart) {
  const std::string old = blobs_->PutBytes("old", "old").value().sha256;
  const std::string young = blobs_->PutBytes("young", "young").value().sha256;
  std::filesystem::last_write_time(
      blobs_->PathOf(old).value(),
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(24 * 8));
  Start();
  loop_->Stop();
  EXPECT_FALSE(blobs_->Find(old));
  EXPECT_TRUE(blobs_->Find(young));
}

TEST_F(ControlLoopTest, ReadingAnOldHistoryHoldsUpNobodyElse) {
  Remember(1, JobState::kSucceeded);
  ASSERT_TRUE(WriteFileAtomic(dir_->job_dir(1) + "/job.log", "one\ntwo\n").ok());
  ASSERT_TRUE(
      WriteFileAtomic(dir_->job_dir(1) + "/metrics.jsonl",
                      FormatStep({0, 5.5, 1, 1, 64, 0.1, 2}) + FormatStep({1, 5, 1, 1, 64, 1, 2}))
          .ok());
  // A disk as slow as the test wants.
  Gate disk;
  load_journal = [&disk](const std::string& job_dir, const JournalSizes& sizes) {
    EXPECT_TRUE(disk.Wait());
    return LoadJournal(job_dir, sizes);
  };
  Start();
  Answer<ControlLoop::News> history;
  loop_->Watch(loop_->NewWatchId(), {1, 0, 0, -1}, history.callback());
  Answer<std::vector<proto::JobInfo>> jobs;
  loop_->List(jobs.callback());
  EXPECT_EQ(jobs.Get().value_or(std::vector<proto::JobInfo>{}).size(), 1u);
  disk.Open();
  const auto news = history.Get();
  ASSERT_TRUE(news.has_value()) << news.error();
  EXPECT_EQ(news->update.steps.size(), 2u);
  EXPECT_THAT(news->update.log_lines, ElementsAre("one", "two"));
  EXPECT_TRUE(news->last);
}

TEST_F(ControlLoopTest, ManyRestoredJobsKeepTheirLastLines) {
  // More than the histories that are kept: all are being read when their ends are logged.
  constexpr int64_t kJobs = 10;
  for (int64_t job = 1; job <= kJobs; ++job) {
    Remember(job, JobState::kRunning);
    ASSERT_TRUE(WriteFileAtomic(dir_->job_dir(job) + "/job.log", "began\n").ok());
  }
  Start();
  for (int64_t job = 1; job <= kJobs; ++job) {
    WatchCursor cursor{job, 0, 0, -1};
    std::vector<std::string> lines;
    for (bool last = false; !last;) {
      const auto news = Watch(cursor);
      ASSERT_TRUE(news.has_value()) << news.error();
      lines.insert(lines.end(), news->update.log_lines.begin(), news->update.log_lines.end());
      cursor = news->cursor;
      last = news->last;
    }
    ASSERT_GE(lines.size(), 2u) << "job " << job;
    EXPECT_EQ(lines.front(), "began");
    EXPECT_THAT(lines.back(), HasSubstr("FAILED")) << "job " << job;
  }
}

TEST_F(ControlLoopTest, AQueuedJobOfAnEarlierLifeContinuesItsHistory) {
  {
    Start();
    const int64_t job = Submit();
    ASSERT_EQ(job, 1);
    loop_.reset();
  }
  Start();
  WatchCursor cursor{1, 0, 0, -1};
  std::vector<std::string> lines;
  while (lines.size() < 3) {
    const auto news = Watch(cursor);
    ASSERT_TRUE(news.has_value()) << news.error();
    lines.insert(lines.end(), news->update.log_lines.begin(), news->update.log_lines.end());
    cursor = news->cursor;
  }
  EXPECT_THAT(lines[0], HasSubstr("submitted job 1"));
  EXPECT_THAT(lines[2], HasSubstr("queued again"));
}

}  // namespace
}  // namespace meshwright::controller
