// What becomes of blobs after they were stored: damage, age, quota.
#include "controller/blob_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/sha256.h"
#include "tests/fake_clock.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr int64_t kHourMs = 3'600'000;

class BlobsTest : public ::testing::Test {
 protected:
  void Open(BlobLimits limits = {}) {
    store_.reset();
    auto store = BlobStore::Open(dir_.path(), limits, clock_);
    ASSERT_TRUE(store.has_value()) << store.error();
    store_ = std::move(*store);
  }
  // Stored an hour ago, as all before it.
  std::string Put(const std::string& bytes) {
    const auto blob = store_->PutBytes(bytes, "blob");
    EXPECT_TRUE(blob.has_value()) << blob.error();
    const std::string hash = blob.value_or(ir::BlobRef{}).sha256;
    // Files have the machine's time until they are used at the test's.
    clock_.AdvanceMs(kHourMs);
    EXPECT_TRUE(store_->Find(hash));
    return hash;
  }
  bool Has(const std::string& hash) const { return FileExists(dir_.File(hash)); }

  TempDir dir_ = TempDir::Make("mw-blobs").value();
  // Later than any file of the test is made.
  FakeClock clock_{0, SystemClock().UnixMs()};
  std::unique_ptr<BlobStore> store_;
};

TEST_F(BlobsTest, ADamagedBlobIsPutAsideAndTakenAgain) {
  Open();
  for (const bool cut : {false, true}) {
    const std::string bytes = "the bytes of a data set";
    const std::string hash = Put(bytes);
    EXPECT_TRUE(store_->Verify(hash));
    std::string damaged = bytes;
    damaged[3] ^= 1;
    if (cut) damaged.resize(4);
    ASSERT_TRUE(WriteFileAtomic(dir_.File(hash), damaged).ok());
    EXPECT_FALSE(store_->Verify(hash)) << "it has changed since it was read";
    EXPECT_FALSE(store_->Find(hash));
    EXPECT_TRUE(FileExists(dir_.File(hash + ".damaged")));
    EXPECT_TRUE(store_->PutBytes(bytes, "again").has_value());
    EXPECT_EQ(ReadFile(dir_.File(hash)).value_or(""), bytes);
    EXPECT_TRUE(store_->Verify(hash));
  }
  store_->Collect({});
  EXPECT_EQ(store_->bytes(), 23);
  // Also what a program of this process is stored over.
  const std::string hash = Put("a program");
  ASSERT_TRUE(WriteFileAtomic(dir_.File(hash), "a pogrom ").ok());
  EXPECT_EQ(Put("a program"), hash);
  EXPECT_EQ(ReadFile(dir_.File(hash)).value_or(""), "a program");
}

// A disk that returns other bytes than were written changes no time of the file.
TEST_F(BlobsTest, DamageThatLeavesNoTraceIsFoundWhenItIsLookedFor) {
  Open();
  const std::string hash = Put("some bytes");
  const auto time = std::filesystem::last_write_time(dir_.File(hash));
  std::filesystem::permissions(dir_.File(hash), std::filesystem::perms::owner_all);
  { std::fstream(dir_.File(hash), std::ios::in | std::ios::out) << "S"; }
  std::filesystem::last_write_time(dir_.File(hash), time);
  EXPECT_TRUE(store_->Verify(hash)) << "not read again";
  EXPECT_FALSE(store_->Verify(hash, true));
  EXPECT_FALSE(Has(hash));
}

// Weights that a job left are asked for by each client that reads them.
TEST_F(BlobsTest, AFileThatIsLinkedIsReadOnceUntilItChanges) {
  Open();
  const TempDir job = TempDir::Make("mw-job").value();
  const std::string path = job.File("model.safetensors");
  ASSERT_TRUE(WriteFileAtomic(path, "the weights").ok());
  const auto overwrite = [&path](const char* with) {
    std::fstream(path, std::ios::in | std::ios::out) << with;
  };
  const auto add = [&] { return store_->AddFile(path, "weights").value_or(ir::BlobRef{}); };
  const ir::BlobRef first = add();
  EXPECT_EQ(first.sha256, Sha256Hex("the weights"));
  EXPECT_EQ(store_->bytes(), 11) << "a linked file counts, too";
  const auto time = std::filesystem::last_write_time(path);
  overwrite("T");
  std::filesystem::last_write_time(path, time);
  EXPECT_EQ(add().sha256, first.sha256) << "it looks as it did, and is not read again";
  // A use changes the time of both.
  clock_.AdvanceMs(kHourMs);
  EXPECT_EQ(add().sha256, first.sha256);
  EXPECT_EQ(add().size_bytes, 11);
  overwrite("A weight");
  EXPECT_EQ(add().sha256, Sha256Hex("A weighthts"));
}

TEST_F(BlobsTest, WhatNoJobUsesGoesAfterItsTime) {
  Open({.keep_ms = 24 * kHourMs});
  const std::string unused = Put("unused");
  const std::string asked = Put("asked for");
  const std::string used = Put("used");
  clock_.AdvanceMs(20 * kHourMs);
  EXPECT_TRUE(store_->Find(asked));
  clock_.AdvanceMs(5 * kHourMs);
  const std::string fresh = Put("fresh");
  EXPECT_EQ(store_->Collect({used}), 6);
  EXPECT_FALSE(Has(unused));
  EXPECT_TRUE(Has(asked) && Has(used) && Has(fresh));
  // The time goes on when the controller does not run.
  clock_.AdvanceMs(100 * kHourMs);
  Open({.keep_ms = 24 * kHourMs});
  EXPECT_EQ(store_->bytes(), 18);
  store_->Collect({used});
  EXPECT_FALSE(Has(asked) || Has(fresh));
  EXPECT_TRUE(Has(used));
  EXPECT_EQ(store_->bytes(), 4);
}

TEST_F(BlobsTest, AFullStoreLosesTheOldestFirstAndRefusesTheRest) {
  Open({.quota_bytes = 1000});
  const std::string oldest = Put(std::string(400, 'a'));
  const std::string used = Put(std::string(300, 'b'));
  const std::string newer = Put(std::string(250, 'c'));
  EXPECT_EQ(store_->Begin(std::string(64, 'd'), 300).error().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(store_->Collect({used}), 400);
  EXPECT_TRUE(!Has(oldest) && Has(used) && Has(newer));
  {
    const auto upload = store_->Begin(std::string(64, 'd'), 300);
    EXPECT_TRUE(upload.has_value()) << upload.error();
    const auto refused = store_->Begin(std::string(64, 'e'), 300);
    ASSERT_FALSE(refused.has_value()) << "what is under way counts";
    EXPECT_THAT(refused.error().message(), HasSubstr("--blob-quota-gib"));
  }
  EXPECT_TRUE(store_->Begin(std::string(64, 'e'), 300).has_value());
}

// ---- What the core says of them ----

const std::string kData(64, 'a');
const std::string kWeights(64, 'b');

ir::JobRequest JobWithBlobs() {
  ir::JobRequest job = SimCluster::MakeJob(1, 1, 1, 2);
  job.data.blob.sha256 = kData;
  job.init_weights.blob.sha256 = kWeights;
  return job;
}

TEST(CoreBlobs, AreInUseUntilTheJobHasEnded) {
  SimCluster cluster;
  const int64_t job = cluster.Submit(JobWithBlobs());
  EXPECT_THAT(cluster.core().BlobsInUse(), UnorderedElementsAre(kData, kWeights));
  cluster.RestartController();
  EXPECT_THAT(cluster.core().BlobsInUse(), UnorderedElementsAre(kData, kWeights));
  EXPECT_TRUE(cluster.Cancel(job).ok());
  EXPECT_TRUE(cluster.core().BlobsInUse().empty());
}

TEST(CoreBlobs, AreReadAgainWhenAWorkerGotOtherBytes) {
  SimCluster cluster;
  cluster.AddWorkers(1);
  cluster.hold_plans = true;
  const int64_t job = cluster.Submit(JobWithBlobs());
  while (cluster.DeliverOne()) {
  }
  cluster.FeedFrom("w0", proto::Heartbeat{});
  PlannedJob plan;
  plan.devices.resize(1);
  cluster.Feed(PlanFinished{JobId(job), 1, plan, false});
  ASSERT_EQ(cluster.Info(job).state, proto::JobState::kStarting);
  const MeshGeneration gen(1);
  cluster.FeedFrom(
      "w0",
      proto::Loaded{
          gen, proto::MakeError(proto::ErrorKind::kLoadFailed, DataLoss("other hash"), "w0"), ""});
  EXPECT_THAT(cluster.checked_blobs, UnorderedElementsAre(kData, kWeights));
}

}  // namespace
}  // namespace meshwright::controller
