// The store: what was applied is there after a restart, all or nothing, and only the newest
// controller writes.
#include "controller/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <optional>

#include "base/file.h"
#include "controller/state_dir.h"

namespace meshwright::controller {
namespace {

using ::testing::HasSubstr;

JobRecord MakeRecord(int64_t id) {
  JobRecord job;
  job.id = id;
  job.op_id = "op-" + std::to_string(id);
  job.name = "name '; drop table jobs";
  job.tool = "generate";
  job.layout = "data=2";
  job.steps = 100;
  job.submitted_unix_ms = 1234;
  job.tries = 2;
  job.checkpoint_step = 50;
  job.checkpoint_folder = {"shared", "gpt/7"};
  job.unheard_commits = 1;
  job.wish = JobWish::kPause;
  job.told_steps = 60;
  job.spec = std::string("\0spec\xff", 6);
  return job;
}

// Both stores keep the same promises.
class Stores : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto dir = TempDir::Make();
    ASSERT_TRUE(dir.has_value()) << dir.error();
    dir_ = std::make_unique<TempDir>(std::move(*dir));
  }
  std::unique_ptr<Store> Open() {
    if (!GetParam()) return OpenMemoryStore(disk_);
    auto store = OpenSqliteStore(dir_->File("state.db"));
    EXPECT_TRUE(store.has_value()) << store.error();
    return store.has_value() ? std::move(*store) : nullptr;
  }

  std::unique_ptr<TempDir> dir_;
  std::shared_ptr<MemoryDisk> disk_ = MakeMemoryDisk();
};

TEST_P(Stores, KeepWhatWasApplied) {
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->opened().jobs.empty());
  EXPECT_EQ(store->opened().next_mesh_gen, 1u);
  StoreBatch batch;
  batch.jobs = {MakeRecord(1), MakeRecord(2)};
  batch.next_mesh_gen = 8;
  batch.events = {{10, 1, "submitted"}, {11, 0, "worker joined"}};
  ASSERT_TRUE(store->Apply(batch).ok());
  const std::string cluster = store->opened().cluster_id;
  store.reset();
  store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->opened().cluster_id, cluster);
  EXPECT_EQ(store->opened().next_mesh_gen, 8u);
  ASSERT_EQ(store->opened().jobs.size(), 2u);
  EXPECT_EQ(store->opened().jobs[0], MakeRecord(1));
  EXPECT_EQ(store->Events(0, 10).value().size(), 2u);
  EXPECT_EQ(store->Events(1, 10).value().at(0).text, "submitted");
}

TEST_P(Stores, RaiseTheTermAtEveryStart) {
  const Term first = Open()->opened().term;
  EXPECT_EQ(Open()->opened().term.value(), first.value() + 1);
}

TEST_P(Stores, RefuseTheWritesOfAnOlderController) {
  auto old = Open();
  auto young = Open();
  StoreBatch batch;
  batch.jobs = {MakeRecord(1)};
  EXPECT_EQ(old->Apply(batch).code(), StatusCode::kAborted);
  EXPECT_TRUE(young->Apply(batch).ok());
}

TEST_P(Stores, AnUpdateWithoutSpecKeepsTheSpec) {
  auto store = Open();
  StoreBatch batch;
  batch.jobs = {MakeRecord(1)};
  ASSERT_TRUE(store->Apply(batch).ok());
  batch.jobs[0].spec.clear();
  batch.jobs[0].state = proto::JobState::kStarting;
  ASSERT_TRUE(store->Apply(batch).ok());
  store.reset();
  store = Open();
  EXPECT_EQ(store->opened().jobs.at(0).state, proto::JobState::kStarting);
  EXPECT_EQ(store->opened().jobs.at(0).spec, MakeRecord(1).spec);
}

TEST_P(Stores, KeepWhatHasToOutliveTheProcessOnly) {
  auto store = Open();
  StoreBatch batch;
  batch.jobs = {MakeRecord(1)};
  ASSERT_TRUE(store->Apply(batch).ok());
  batch.jobs[0].tries = 3;
  batch.process_only = true;
  ASSERT_TRUE(store->Apply(batch).ok());
  store.reset();
  EXPECT_EQ(Open()->opened().jobs.at(0).tries, 3);
}

TEST_P(Stores, NeverReplaceAJobByAnotherOne) {
  auto store = Open();
  StoreBatch batch;
  batch.jobs = {MakeRecord(1)};
  ASSERT_TRUE(store->Apply(batch).ok());
  StoreBatch impostor;
  impostor.jobs = {MakeRecord(2), MakeRecord(1)};
  impostor.jobs[1].op_id = "another";
  EXPECT_EQ(store->Apply(impostor).code(), StatusCode::kAlreadyExists);
  store.reset();
  store = Open();
  ASSERT_EQ(store->opened().jobs.size(), 1u) << "all or nothing";
  EXPECT_EQ(store->opened().jobs[0], MakeRecord(1));
}

TEST_P(Stores, NeverLowerTheNextGeneration) {
  auto store = Open();
  StoreBatch batch;
  batch.next_mesh_gen = 9;
  ASSERT_TRUE(store->Apply(batch).ok());
  batch.next_mesh_gen = 4;
  ASSERT_TRUE(store->Apply(batch).ok());
  store.reset();
  EXPECT_EQ(Open()->opened().next_mesh_gen, 9u);
}

TEST_P(Stores, ProgressReachesLiveJobsOnly) {
  auto store = Open();
  StoreBatch batch;
  batch.jobs = {MakeRecord(1), MakeRecord(2)};
  batch.jobs[1].state = proto::JobState::kSucceeded;
  batch.jobs[1].ended_unix_ms = 99;
  ASSERT_TRUE(store->Apply(batch).ok());
  EXPECT_TRUE(store->SaveProgress(1, 42, 3.5).ok());
  EXPECT_TRUE(store->SaveProgress(2, 42, 3.5).ok());
  store.reset();
  store = Open();
  EXPECT_EQ(store->opened().jobs[0].steps_done, 42);
  EXPECT_EQ(store->opened().jobs[0].loss, 3.5);
  EXPECT_EQ(store->opened().jobs[1].steps_done, 0);
}

TEST_P(Stores, KeepStandingsUntilAWorkerIsOpen) {
  const StandingRecord drains{"w'0", Standing::kDraining, 5, 125, "why"};
  const StandingRecord cordoned{"w1", Standing::kCordoned, 6, 0, ""};
  StoreBatch batch;
  batch.standings = {drains, cordoned};
  ASSERT_TRUE(Open()->Apply(batch).ok());
  EXPECT_THAT(Open()->opened().standings, ::testing::UnorderedElementsAre(drains, cordoned));
  StoreBatch later;
  later.standings = {{"w'0", Standing::kDrained, 9, 0, "done"}, {"w1", Standing::kOpen, 9, 0, ""}};
  ASSERT_TRUE(Open()->Apply(later).ok());
  EXPECT_THAT(Open()->opened().standings, ::testing::ElementsAre(later.standings[0]));
}

TEST_P(Stores, DeletedJobsAreGone) {
  auto store = Open();
  StoreBatch batch;
  batch.jobs = {MakeRecord(1)};
  ASSERT_TRUE(store->Apply(batch).ok());
  StoreBatch removal;
  removal.deleted_jobs = {1};
  ASSERT_TRUE(store->Apply(removal).ok());
  store.reset();
  EXPECT_TRUE(Open()->opened().jobs.empty());
}

INSTANTIATE_TEST_SUITE_P(Both, Stores, ::testing::Values(false, true),
                         [](const auto& which) { return which.param ? "Sqlite" : "Memory"; });

TEST(SqliteStore, SaysThatAFileIsNoDatabase) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  const std::string path = dir->File("state.db");
  ASSERT_TRUE(WriteFileAtomic(path, std::string(4096, 'x')).ok());
  const auto store = OpenSqliteStore(path);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code(), StatusCode::kDataLoss) << store.error();
  EXPECT_THAT(store.error().message(), HasSubstr(path));
}

// Closed, with some jobs of long specs in it.
std::string MakeDatabase(const TempDir& dir, std::optional<uint64_t> next_mesh_gen = {}) {
  const std::string path = dir.File("state.db");
  auto store = OpenSqliteStore(path);
  EXPECT_TRUE(store.has_value()) << store.error();
  StoreBatch batch;
  for (int64_t id = 1; id <= 20; ++id) {
    batch.jobs.push_back(MakeRecord(id));
    batch.jobs.back().spec = std::string(20'000, static_cast<char>('a' + id));
  }
  batch.next_mesh_gen = next_mesh_gen;
  EXPECT_TRUE((*store)->Apply(batch).ok());
  return path;
}

void Replace(std::string& bytes, const std::string& from, const std::string& to) {
  ASSERT_EQ(from.size(), to.size());
  size_t at = bytes.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = bytes.find(from, at)) bytes.replace(at, to.size(), to);
}

TEST(SqliteStore, ANewDatabaseBesideFoldersOfJobsIsRefused) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  for (int start = 0; start < 2; ++start) {
    const auto store = OpenSqliteStore(dir->File("state.db"), 7);
    ASSERT_FALSE(store.has_value()) << "nothing may be written at the first one";
    EXPECT_EQ(store.error().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(store.error().message(), HasSubstr("the folder of job 7 is there"));
  }
  EXPECT_TRUE(OpenSqliteStore(dir->File("state.db"), 0).has_value());
  EXPECT_TRUE(OpenSqliteStore(dir->File("state.db"), 7).has_value()) << "it is known by now";
}

TEST(SqliteStore, ADamagedPageIsFoundAtTheStart) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  const std::string path = MakeDatabase(*dir);
  std::string bytes = ReadFile(path).value();
  ASSERT_GT(bytes.size(), 400'000u) << "the log was not written back";
  bytes.replace(4096 * 40, 4096, std::string(4096, '\x7f'));
  ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
  const auto store = OpenSqliteStore(path);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code(), StatusCode::kDataLoss) << store.error();
  EXPECT_THAT(store.error().message(), HasSubstr("restore a backup"));
}

TEST(SqliteStore, ALostTableIsNoEmptyTable) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  const std::string path = MakeDatabase(*dir);
  std::string bytes = ReadFile(path).value();
  Replace(bytes, "tablejobsjobs", "tablejobxjobx");
  Replace(bytes, "CREATE TABLE jobs(", "CREATE TABLE jobx(");
  Replace(bytes, "autoindex_jobs_1jobs", "autoindex_jobx_1jobx");
  ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
  const auto store = OpenSqliteStore(path);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code(), StatusCode::kDataLoss) << store.error();
  EXPECT_THAT(store.error().message(), HasSubstr("has no table 'jobs'"));
}

TEST(SqliteStore, ACountThatWouldWrapIsRefused) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  const auto store = OpenSqliteStore(MakeDatabase(*dir, UINT64_MAX));
  ASSERT_FALSE(store.has_value());
  EXPECT_THAT(store.error().message(), HasSubstr("'next_mesh_gen' is '18446744073709551615'"));
}

TEST(SqliteStore, WhatAJobNeedsGoesWithItsEnd) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  const std::string path = MakeDatabase(*dir);
  const int64_t before = FileSize(path).value();
  {
    auto store = OpenSqliteStore(path);
    ASSERT_TRUE(store.has_value());
    StoreBatch batch;
    for (int64_t id = 1; id <= 20; ++id) {
      batch.jobs.push_back(MakeRecord(id));
      batch.jobs.back().state = proto::JobState::kFailed;
    }
    ASSERT_TRUE((*store)->Apply(batch).ok());
  }
  EXPECT_LT(FileSize(path).value(), before / 2);
}

// As the first version of this program made it.
constexpr const char* kFirstDatabase = R"(
CREATE TABLE meta(k TEXT PRIMARY KEY, v TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES('schema_version', '1'), ('cluster_id', 'c1'), ('term', '4');
CREATE TABLE jobs(
  id INTEGER PRIMARY KEY, op_id TEXT UNIQUE, name TEXT, state INTEGER, reason TEXT, message TEXT,
  layout TEXT, steps INTEGER, steps_done INTEGER, loss REAL,
  t_submit INTEGER, t_start INTEGER, t_end INTEGER, spec BLOB);
INSERT INTO jobs VALUES(7, 'op-7', 'old', 1, '', '', '', 100, 60, 2.5, 1, 0, 0, x'00ff');
)";

TEST(SqliteStore, ADatabaseWithoutTheLaterColumnsIsReadAndGoesOn) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  const std::string path = dir->File("state.db");
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, kFirstDatabase, nullptr, nullptr, nullptr), SQLITE_OK);
  ASSERT_EQ(sqlite3_close(db), SQLITE_OK);
  {
    auto store = OpenSqliteStore(path);
    ASSERT_TRUE(store.has_value()) << store.error();
    EXPECT_EQ((*store)->opened().term, Term(5));
    ASSERT_EQ((*store)->opened().jobs.size(), 1u);
    JobRecord job = (*store)->opened().jobs[0];
    EXPECT_EQ(job.steps_done, 60);
    EXPECT_EQ(job.checkpoint_step, -1);
    EXPECT_EQ(job.checkpoint_folder, ir::FolderRef());
    EXPECT_EQ(job.told_steps, 0);
    EXPECT_EQ(job.unheard_commits, 0);
    job.checkpoint_step = 50;
    job.told_steps = 61;
    StoreBatch batch;
    batch.jobs = {job};
    ASSERT_TRUE((*store)->Apply(batch).ok());
  }
  const auto again = OpenSqliteStore(path);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ((*again)->opened().jobs[0].checkpoint_step, 50);
  EXPECT_EQ((*again)->opened().jobs[0].told_steps, 61);
  EXPECT_EQ((*again)->opened().jobs[0].spec, std::string("\0\xff", 2)) << "what was there stays";
}

TEST(SqliteStore, ABatchThatFailsLeavesNothing) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  auto store = OpenSqliteStore(dir->File("state.db"));
  ASSERT_TRUE(store.has_value()) << store.error();
  StoreBatch batch;
  batch.jobs = {MakeRecord(1), MakeRecord(2)};
  batch.jobs[1].op_id = batch.jobs[0].op_id;  // must be unique
  EXPECT_FALSE((*store)->Apply(batch).ok());
  store->reset();
  auto again = OpenSqliteStore(dir->File("state.db"));
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE((*again)->opened().jobs.empty());
}

TEST(StateDir, IsForItsOwnerOnlyUnlessItWasThere) {
  namespace fs = std::filesystem;
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  const auto mode = [](const std::string& path) { return fs::status(path).permissions(); };
  ASSERT_TRUE(StateDir::Open(dir->File("a/state/")).has_value());
  EXPECT_EQ(mode(dir->File("a/state")), fs::perms::owner_all);
  fs::create_directory(dir->File("shared"));
  fs::permissions(dir->File("shared"), fs::perms::owner_all | fs::perms::group_read);
  ASSERT_TRUE(StateDir::Open(dir->File("shared")).has_value());
  EXPECT_EQ(mode(dir->File("shared")), fs::perms::owner_all | fs::perms::group_read);
}

TEST(StateDir, KnowsTheNewestJobThatHasLeftAFolder) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  const auto state = StateDir::Open(dir->File("state"));
  ASSERT_TRUE(state.has_value()) << state.error();
  EXPECT_EQ(state->LastJob(), 0);
  for (const char* name : {"9", "10", "11x", "old"}) {
    ASSERT_TRUE(MakeDirs(state->jobs_dir() + "/" + name).ok());
  }
  EXPECT_EQ(state->LastJob(), 10);
}

TEST(StateDir, IsHeldByOneControllerAtATime) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  {
    const auto first = StateDir::Open(dir->File("state"));
    ASSERT_TRUE(first.has_value()) << first.error();
    const auto second = StateDir::Open(dir->File("state"));
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(second.error().message(), HasSubstr("another controller (process"));
  }
  EXPECT_TRUE(StateDir::Open(dir->File("state")).has_value()) << "free when the first is gone";
}

}  // namespace
}  // namespace meshwright::controller
