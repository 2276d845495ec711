// The agent against a controller that is a list of messages.
#include "worker/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>

#include "tests/emulated/gpu.h"
#include "tests/unit/worker/fake_link.h"
#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTimeoutMs = 20'000;

// What both ends of a session say; outlives the session.
class Wire {
 public:
  void Down(proto::DownBody body) {
    const std::scoped_lock lock(mutex_);
    down_.push_back({Term(1), std::move(body)});
    changed_.notify_all();
  }
  // The next that the worker says, heartbeats apart; a test that waits in vain fails by its limit.
  proto::UpBody Next() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !up_.empty(); });
      proto::UpBody body = std::move(up_.front());
      up_.pop_front();
      if (!std::holds_alternative<proto::Heartbeat>(body)) return body;
    }
  }
  bool closed() {
    const std::scoped_lock lock(mutex_);
    return closed_;
  }

  bool Send(proto::UpMessage message) {
    const std::scoped_lock lock(mutex_);
    if (closed_) return false;
    up_.push_back(std::move(message.body));
    changed_.notify_all();
    return true;
  }
  Result<proto::DownMessage> Receive() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !down_.empty(); });
    if (closed_) return Fail(Cancelled("the session was closed"));
    proto::DownMessage message = std::move(down_.front());
    down_.pop_front();
    return message;
  }
  void Close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<proto::DownMessage> down_;
  std::deque<proto::UpBody> up_;
  bool closed_ = false;
};

class WireSession final : public Session {
 public:
  explicit WireSession(Wire& wire) : wire_(wire) {}
  bool Send(proto::UpMessage message) override { return wire_.Send(std::move(message)); }
  Result<proto::DownMessage> Receive() override { return wire_.Receive(); }
  void Close(int64_t) override { wire_.Close(); }

 private:
  Wire& wire_;
};

// One session, and blobs.
class OneSessionLink final : public ControllerLink {
 public:
  OneSessionLink(Wire& wire, FakeLink& blobs) : wire_(wire), blobs_(blobs) {}
  Result<std::unique_ptr<Session>> OpenSession(int64_t) override {
    if (wire_.closed()) return Fail(Unavailable("one session was enough"));
    return std::make_unique<WireSession>(wire_);
  }
  Status FetchBlob(const std::string& sha256, int64_t offset, const CancelCheck& cancelled,
                   const ChunkSink& sink) override {
    return blobs_.FetchBlob(sha256, offset, cancelled, sink);
  }
  Status PutTiles(const CancelCheck& cancelled, const TileSource& next) override {
    return blobs_.PutTiles(cancelled, next);
  }
  Status PutShard(const CancelCheck& cancelled, const proto::ShardHead& head,
                  const std::vector<std::string_view>& parts) override {
    return blobs_.PutShard(cancelled, head, parts);
  }
  Status ReadFile(const CancelCheck& cancelled, const proto::FileRange& range,
                  const ChunkSink& sink) override {
    return blobs_.ReadFile(cancelled, range, sink);
  }
  void CancelBulk() override {}

 private:
  Wire& wire_;
  FakeLink& blobs_;
};

// One device with one weight, which every program fills.
proto::LoadMesh MakeLoad(FakeLink& blobs) {
  const auto program = [&](const char* name) {
    ProgramMaker maker(name, 0);
    const SlotId x = maker.Persistent("x", F32({2}));
    maker.Run(maker.Executable(R"(graph "fill" {
      %0 = constant {value=7.0} : f32[2]
      output "x" %0
    })"),
              {}, {x});
    return blobs.Add(ir::FormatProgram(maker.Finish()), name);
  };
  proto::RankPrograms rank;
  rank.programs = {program("init"), program("step"), program("eval")};
  proto::LoadMesh load;
  load.mesh_gen = MeshGeneration(1);
  load.cluster_id = "test";
  load.members = {{"w", "", collective::LocalHostId(), 1}};
  load.programs = {"init", "step", "eval"};
  load.ranks = {rank};
  load.data = {blobs.Add(std::string(1000, 'a'), "text"), "bytes", 0.1};
  load.sequence = 8;
  return load;
}

TEST(Agent, LeavesAndEndsWhenItsProcessHasLostADevice) {
  emulated::EmulatedGpu gpu;
  Wire wire;
  FakeLink blobs;
  AgentOptions options;
  options.name = "w";
  options.metrics_port = -1;
  options.gpus.driver = &gpu.driver();
  options.gpus.toolkit = &gpu.toolkit();
  options.gpus.indices = {0};
  options.gpus.memory_bytes = int64_t{1} << 20;
  auto agent = Agent::Start(options, std::make_unique<OneSessionLink>(wire, blobs));
  ASSERT_TRUE(agent.has_value()) << agent.error();
  EXPECT_EQ(std::get<proto::Register>(wire.Next()).device_kind, "cuda");
  wire.Down(proto::Welcome{"test", 1000, 6000});
  wire.Down(MakeLoad(blobs));
  ASSERT_TRUE(std::get<proto::Loaded>(wire.Next()).error.ok());
  wire.Down(proto::Connect{MeshGeneration(1), {""}});
  ASSERT_TRUE(std::get<proto::CommUp>(wire.Next()).error.ok());
  EXPECT_EQ((*agent)->Wait(0).code(), StatusCode::kDeadlineExceeded);
  gpu.driver().SpoilDevice(0, device::cuda::kIllegalAddress);
  wire.Down(proto::Launch{MeshGeneration(1), LaunchSeq(1), 0, 0, 1});
  const auto done = std::get<proto::LaunchDone>(wire.Next());
  EXPECT_THAT(done.error.message, HasSubstr("cudaErrorIllegalAddress"));
  const auto leave = std::get<proto::Leave>(wire.Next());
  EXPECT_THAT(leave.reason, HasSubstr("it has lost a device: cuda:0"));
  const Status end = (*agent)->Wait(kTimeoutMs);
  EXPECT_EQ(end.blame(), Blame::kHardware) << end;
  EXPECT_THAT(end.message(), HasSubstr("restart it"));
  EXPECT_TRUE(wire.closed());
}

}  // namespace
}  // namespace meshwright::worker
