// Requests and connections that no honest client makes, against a real controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "controller/store.h"
#include "proto/job_codec.h"
#include "tests/e2e/control/half_sender.h"
#include "tests/e2e/control/local_cluster.h"
#include "tests/scale.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::HasSubstr;

constexpr int64_t kHostilePatienceMs = 60'000;

std::unique_ptr<LocalCluster> StartAttacked(LocalClusterOptions options = {}) {
  auto cluster = LocalCluster::Start(std::move(options));
  EXPECT_TRUE(cluster.has_value()) << cluster.error();
  return cluster.has_value() ? std::move(*cluster) : nullptr;
}

// Degrees whose product is 2^64: 0 in 64 bits.
ir::JobRequest OverflowingJob() {
  ir::JobRequest job = ByteJob(0, 1, 2);
  job.parallel.tensor = 0;
  job.parallel.tensor_axes = "65536x65536x65536";
  job.parallel.pipeline = 65536;
  return job;
}

TEST(HostileSubmit, WhatCannotBePlacedIsRefusedBeforeItIsKept) {
  LocalClusterOptions options;
  options.workers = 0;
  const auto cluster = StartAttacked(options);
  ASSERT_NE(cluster, nullptr);
  const auto refused = [&](auto set, const std::string& says) {
    ir::JobRequest job = ByteJob(0, 1, 2);
    set(job.parallel);
    const auto id = cluster->Submit(job, SampleBytes(9000));
    ASSERT_FALSE(id.has_value()) << says;
    EXPECT_EQ(id.error().code(), StatusCode::kInvalidArgument) << id.error();
    EXPECT_THAT(id.error().message(), HasSubstr(says));
  };
  const auto overflow = cluster->Submit(OverflowingJob(), SampleBytes(9000));
  ASSERT_FALSE(overflow.has_value());
  EXPECT_THAT(overflow.error().message(), HasSubstr("tensor_axes"));
  refused([](ir::ParallelSpec& p) { p.pipeline = 65536; }, "needs at least 65536 layers");
  refused([](ir::ParallelSpec& p) { p.stage_meshes = "2x1,x"; }, "is no mesh");
  refused([](ir::ParallelSpec& p) { p.part_layers = "1*1000000"; }, "more than 100000 parts");
  refused([](ir::ParallelSpec& p) { p.recompute_layers = "0-99"; }, "the model has 2 layers");
  refused([](ir::ParallelSpec& p) { p.sharding_pins = "no.such=[_]"; }, "no weight is called");
  refused([](ir::ParallelSpec& p) { p.schedule = std::string(1 << 20, 'x'); }, "may have at most");
  EXPECT_TRUE(cluster->client().List()->empty());
}

// An older controller has accepted it: it is on disk, and workers come.
TEST(HostileSubmit, AStoredJobThatCannotBePlacedFailsAndTheQueueGoesOn) {
  LocalClusterOptions options;
  options.workers = 0;
  const auto cluster = StartAttacked(options);
  ASSERT_NE(cluster, nullptr);
  const auto sound = cluster->Submit(ByteJob(1, 1, 2), SampleBytes(9000));
  ASSERT_TRUE(sound.has_value()) << sound.error();
  {
    auto store = controller::OpenSqliteStore(cluster->state_dir() + "/state.db");
    ASSERT_TRUE(store.has_value()) << store.error();
    controller::JobRecord record;
    record.id = 77;
    record.op_id = "poison";
    record.name = "poison";
    record.spec = proto::EncodeJob(OverflowingJob());
    controller::StoreBatch batch;
    batch.jobs = {record};
    ASSERT_TRUE((*store)->Apply(batch).ok());
  }
  for (int start = 0; start < 2; ++start) {
    const Status restarted = cluster->RestartServer();
    ASSERT_TRUE(restarted.ok()) << restarted;
    ASSERT_TRUE(cluster->AddWorker("w" + std::to_string(start)).ok());
    const auto info = cluster->client().Wait(77, kHostilePatienceMs);
    ASSERT_TRUE(info.has_value()) << info.error();
    EXPECT_EQ(info->state, JobState::kFailed);
    EXPECT_THAT(info->message, HasSubstr("devices, the cluster has"));
  }
  EXPECT_EQ(cluster->client().Wait(*sound, kHostilePatienceMs)->state, JobState::kSucceeded);
}

// ---- Requests that never come whole ----

constexpr const char* kSubmitPath = "/meshwright.v1.JobService/Submit";
constexpr const char* kHasPath = "/meshwright.v1.BlobService/Has";
constexpr int64_t kMessageBytes = 4 << 20;

// Of this process, in which the controller runs.
int64_t ResidentBytes() {
  const auto statm = ReadFile("/proc/self/statm");
  const std::vector<std::string> fields = Split(statm.value_or("0 0"), ' ');
  return std::stoll(fields[1]) * 4096;
}

// Of four connections with 60 calls each.
struct Flood {
  std::vector<HalfSender> senders;
  int64_t sent_bytes = 0;
  int ended = 0;
};
Flood SendHalves(int port, const std::string& path, const std::string& token) {
  Flood flood;
  for (int i = 0; i < 4; ++i) {
    auto sender = HalfSender::Connect(port);
    EXPECT_TRUE(sender.has_value()) << sender.error();
    if (!sender.has_value()) continue;
    EXPECT_TRUE(sender->Begin(path, token, 60, kMessageBytes).ok());
    sender->Run(Deadline::After(kHostilePatienceMs));
    flood.sent_bytes += sender->sent_bytes();
    flood.ended += sender->ended_calls();
    flood.senders.push_back(std::move(*sender));
  }
  return flood;
}

TEST(HostileRequests, AStrangersRequestIsRefusedBeforeItIsRead) {
  LocalClusterOptions options;
  options.workers = 0;
  options.token = "right";
  const auto cluster = StartAttacked(options);
  ASSERT_NE(cluster, nullptr);
  for (const char* path : {kSubmitPath, kHasPath}) {
    const Flood flood = SendHalves(cluster->port(), path, "wrong");
    EXPECT_EQ(flood.ended, 240) << path;
    EXPECT_THAT(flood.senders[0].last_answer(), HasSubstr("token is wrong"));
    EXPECT_LT(flood.sent_bytes, 240 * kMessageBytes / 2) << path;
  }
  EXPECT_TRUE(cluster->client().List().has_value());
}

TEST(HostileRequests, ARequestThatDoesNotComeWholeIsEnded) {
  LocalClusterOptions options;
  options.workers = 0;
  options.limits.request_ms = 300;
  options.limits.upload_idle_ms = 300;
  const auto cluster = StartAttacked(options);
  ASSERT_NE(cluster, nullptr);
  for (const char* path :
       {kSubmitPath, kHasPath, "/meshwright.v1.JobService/Watch", "/meshwright.v1.BlobService/Get",
        "/meshwright.v1.BlobService/Put", "/meshwright.v1.BlobService/PutTiles",
        "/meshwright.v1.CheckpointService/Put", "/meshwright.v1.CheckpointService/Get",
        "/meshwright.v1.CheckpointService/Remove"}) {
    auto sender = HalfSender::Connect(cluster->port());
    ASSERT_TRUE(sender.has_value()) << sender.error();
    ASSERT_TRUE(sender->Begin(path, "", 8, kMessageBytes).ok());
    sender->Run(Deadline::After(kHostilePatienceMs));
    EXPECT_EQ(sender->ended_calls(), 8) << path;
  }
}

// However much is sent: what has not come whole is dropped when the memory for it is used up.
TEST(HostileRequests, MemoryOfRequestsUnderWayIsBounded) {
  if (kSanitizedBuild) GTEST_SKIP() << "a sanitizer's allocator keeps what was freed";
  LocalClusterOptions options;
  options.workers = 0;
  options.limits.rpc_memory_bytes = 64 << 20;
  const auto cluster = StartAttacked(options);
  ASSERT_NE(cluster, nullptr);
  const int64_t before = ResidentBytes();
  std::vector<HalfSender> senders;
  int64_t sent = 0;
  const Deadline deadline = Deadline::After(kHostilePatienceMs);
  while (sent < 400 << 20 && !deadline.expired()) {
    // The controller may close a new connection while its memory is used up: that bounds it, too.
    auto sender = HalfSender::Connect(cluster->port());
    if (!sender.has_value() || !sender->Begin(kSubmitPath, "", 60, kMessageBytes).ok()) continue;
    sender->Run(Deadline::After(200));
    sent += sender->sent_bytes();
    senders.push_back(std::move(*sender));
  }
  EXPECT_GE(sent, 400 << 20);
  EXPECT_LT(ResidentBytes() - before, 250 << 20);
}

// ---- Disks ----

TEST(BrokenDisks, AWorkerWhoseDiskFailsTakesNoJobsUntilItWorks) {
  LocalClusterOptions options;
  options.workers = 0;
  const auto cluster = StartAttacked(options);
  ASSERT_NE(cluster, nullptr);
  worker::AgentOptions broken = cluster->AgentOptionsFor("broken");
  broken.cache_dir = cluster->File("cache");
  const auto agent = worker::Agent::Start(broken);
  ASSERT_TRUE(agent.has_value()) << agent.error();
  ASSERT_TRUE(cluster->WaitForState("READY", 1).ok());
  std::filesystem::remove_all(broken.cache_dir);
  ASSERT_TRUE(WriteFileAtomic(broken.cache_dir, "a file is where the folder was").ok());
  const auto first = cluster->Submit(ByteJob(1, 1, 2), SampleBytes(9000));
  ASSERT_TRUE(first.has_value()) << first.error();
  const Status left = cluster->WaitForState("LEFT", 1);
  ASSERT_TRUE(left.ok()) << left;
  EXPECT_FALSE(client::IsTerminal(cluster->client().Get(*first)->state)) << "it is not its fault";
  const auto second = cluster->Submit(ByteJob(1, 1, 2), SampleBytes(9000));
  ASSERT_TRUE(second.has_value()) << second.error();
  EXPECT_FALSE(client::IsTerminal(cluster->client().Get(*second)->state)) << "it waits";
  std::filesystem::remove(broken.cache_dir);
  EXPECT_EQ(cluster->client().Wait(*first, kHostilePatienceMs)->state, JobState::kSucceeded);
  const auto info = cluster->client().Wait(*second, kHostilePatienceMs);
  ASSERT_TRUE(info.has_value()) << info.error();
  EXPECT_EQ(info->state, JobState::kSucceeded) << info->message;
}

// The file of a data set is damaged between two jobs that train on it.
TEST(BrokenDisks, ADamagedBlobIsUploadedAgain) {
  LocalClusterOptions options;
  options.workers = 1;
  const auto cluster = StartAttacked(options);
  ASSERT_NE(cluster, nullptr);
  const std::string text = SampleBytes(9000);
  ir::JobRequest job = ByteJob(1, 1, 2);
  const auto first = cluster->Submit(job, text);
  ASSERT_TRUE(first.has_value()) << first.error();
  EXPECT_EQ(cluster->client().Wait(*first, kHostilePatienceMs)->state, JobState::kSucceeded);
  const auto blob = cluster->client().UploadFile(cluster->File("data.txt"));
  ASSERT_TRUE(blob.has_value()) << blob.error();
  const std::string path = cluster->state_dir() + "/blobs/" + blob->sha256;
  for (const std::string& damaged : {"#" + text.substr(1), text.substr(0, 100)}) {
    ASSERT_TRUE(WriteFileAtomic(path, damaged).ok());
    const auto again = cluster->Submit(job, text);
    ASSERT_TRUE(again.has_value()) << again.error();
    EXPECT_EQ(cluster->client().Wait(*again, kHostilePatienceMs)->state, JobState::kSucceeded);
    EXPECT_EQ(ReadFile(path).value_or(""), text);
  }
}

}  // namespace
}  // namespace meshwright::testing
