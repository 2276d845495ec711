// Requests and connections that no honest client makes, against a real controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/store.h"
#include "proto/job_codec.h"
#include "tests/e2e/control/local_cluster.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::HasSubstr;

constexpr int64_t kPatienceMs = 60'000;

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
    const auto info = cluster->client().Wait(77, kPatienceMs);
    ASSERT_TRUE(info.has_value()) << info.error();
    EXPECT_EQ(info->state, JobState::kFailed);
    EXPECT_THAT(info->message, HasSubstr("devices, the cluster has"));
  }
  EXPECT_EQ(cluster->client().Wait(*sound, kPatienceMs)->state, JobState::kSucceeded);
}

}  // namespace
}  // namespace meshwright::testing
