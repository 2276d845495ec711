#include "worker/executor_messages.h"

#include <gtest/gtest.h>

namespace meshwright::worker {
namespace {

template <typename Body, typename Message>
Body Sent(const Message& message) {
  const auto read = [&] {
    if constexpr (std::is_same_v<Message, ToExecutor>) {
      return DecodeToExecutor(Encode(message));
    } else {
      return DecodeFromExecutor(Encode(message));
    }
  }();
  EXPECT_TRUE(read.has_value()) << read.error();
  return std::get<Body>(*read);
}

TEST(ExecutorMessages, SettingsArriveAsTheyWere) {
  ExecutorSettings settings;
  settings.worker = "w\xff";  // a name need not be UTF-8
  settings.devices = 3;
  settings.threads_per_device = 2;
  settings.cores = {4, 5, 6};
  settings.memory_bytes = int64_t{5} << 30;
  settings.gpus = {1, 0};
  settings.gpu_drain_timeout_ms = 7;
  settings.transport = collective::Transport::kTcp;
  settings.collective_timeout_ms = 8;
  settings.data_roots = {{"d", "/data"}};
  settings.checkpoint_roots = {{"c", "/checkpoints"}};
  settings.host_actors.types = {"pole"};
  settings.host_actors.command = {"/proc/self/exe", "host-actors"};
  settings.host_actors.silent_ms = 9;
  settings.controller = "unix:/x";
  settings.token = "secret";
  settings.tls_dir = "/etc/meshwright/tls";
  settings.log_level = LogLevel::kWarn;
  const auto read = Sent<ExecutorSettings>(ToExecutor(settings));
  EXPECT_EQ(read.worker, settings.worker);
  EXPECT_EQ(read.devices, 3);
  EXPECT_EQ(read.threads_per_device, 2);
  EXPECT_EQ(read.cores, settings.cores);
  EXPECT_EQ(read.memory_bytes, settings.memory_bytes);
  EXPECT_EQ(read.gpus, settings.gpus);
  EXPECT_EQ(read.gpu_drain_timeout_ms, 7);
  EXPECT_EQ(read.transport, collective::Transport::kTcp);
  EXPECT_EQ(read.collective_timeout_ms, 8);
  EXPECT_EQ(read.data_roots, settings.data_roots);
  EXPECT_EQ(read.checkpoint_roots, settings.checkpoint_roots);
  EXPECT_EQ(read.host_actors.types, settings.host_actors.types);
  EXPECT_EQ(read.host_actors.command, settings.host_actors.command);
  EXPECT_EQ(read.host_actors.silent_ms, 9);
  EXPECT_EQ(read.controller, "unix:/x");
  EXPECT_EQ(read.token, "secret");
  EXPECT_EQ(read.tls_dir, settings.tls_dir);
  EXPECT_EQ(read.log_level, LogLevel::kWarn);
}

TEST(ExecutorMessages, MessagesOfMeshesArriveAsTheyWere) {
  const proto::DownBody launch =
      proto::Launch{MeshGeneration(3), LaunchSeq(4), 1, 5, 6, {}, proto::Fetch::kAll};
  EXPECT_EQ(Sent<proto::DownBody>(ToExecutor(launch)), launch);
  proto::LaunchDone done{MeshGeneration(3), LaunchSeq(4), {}, {}, {}};
  done.reports.push_back({5, 0.5, {{"loss", 2.5}}});
  EXPECT_EQ(Sent<proto::UpBody>(FromExecutor(proto::UpBody(done))), proto::UpBody(done));
}

TEST(ExecutorMessages, BlobsAndCountsArriveAsTheyWere) {
  const ir::BlobRef blob{std::string(64, 'a'), 10, "text"};
  const auto ask = Sent<BlobAsk>(FromExecutor(BlobAsk{7, blob}));
  EXPECT_EQ(ask.id, 7u);
  EXPECT_EQ(ask.blob, blob);
  const Status status = Status(StatusCode::kDataLoss, "another hash").WithBlame(Blame::kUser);
  const auto answer = Sent<BlobAnswer>(ToExecutor(BlobAnswer{7, status, "/cache/aa"}));
  EXPECT_EQ(answer.status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(answer.status.blame(), Blame::kUser);
  EXPECT_EQ(answer.status.message(), "another hash");
  EXPECT_EQ(answer.path, "/cache/aa");
  EXPECT_EQ(Sent<CountsAsk>(ToExecutor(CountsAsk{9})).id, 9u);
  DeviceStats stats;
  stats.rank = 2;
  stats.instructions = {1, 2, 3, 4};
  stats.memory_bytes[ir::MemoryKind::kWeights] = 100;
  stats.collectives.push_back({"data", collective::Kind::kAllGather, "nccl", {5, 6, 0.5}});
  const auto counts = Sent<MeshCounts>(FromExecutor(MeshCounts{9, {stats}, {1}}));
  EXPECT_EQ(counts.id, 9u);
  ASSERT_EQ(counts.stats.size(), 1u);
  EXPECT_EQ(counts.devices, std::vector<int>{1});
  EXPECT_EQ(counts.stats[0].rank, 2);
  EXPECT_EQ(counts.stats[0].instructions.recv, 3);
  EXPECT_EQ(counts.stats[0].memory_bytes, stats.memory_bytes);
  ASSERT_EQ(counts.stats[0].collectives.size(), 1u);
  EXPECT_EQ(counts.stats[0].collectives[0].axis, "data");
  EXPECT_EQ(counts.stats[0].collectives[0].kind, collective::Kind::kAllGather);
  EXPECT_EQ(counts.stats[0].collectives[0].backend, "nccl");
  EXPECT_EQ(counts.stats[0].collectives[0].counters.bytes, 6);
  const auto lost = Sent<DeviceLost>(FromExecutor(DeviceLost{status}));
  EXPECT_EQ(lost.cause.message(), "another hash");
}

TEST(ExecutorMessages, WhatIsNoMessageIsAnError) {
  for (const std::string& bytes :
       {std::string(), std::string("\xff\xff\xff"), std::string(9, 'x')}) {
    EXPECT_EQ(DecodeFromExecutor(bytes).error().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(DecodeToExecutor(bytes).error().code(), StatusCode::kInvalidArgument);
  }
  // Of a kind of memory that there is not.
  DeviceStats stats;
  stats.memory_bytes[static_cast<ir::MemoryKind>(device::kMemoryKindCount)] = 1;
  EXPECT_FALSE(DecodeFromExecutor(Encode(FromExecutor(MeshCounts{0, {stats}, {0}}))).has_value());
}

}  // namespace
}  // namespace meshwright::worker
