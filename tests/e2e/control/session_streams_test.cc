// The connections of a session on a clock of the test's own.
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "client/grpc/session_streams.h"
#include "tests/e2e/control/local_cluster.h"
#include "tests/e2e/driven_job.h"
#include "tests/fake_clock.h"

namespace meshwright::testing {
namespace {

constexpr std::chrono::seconds kSoon{20};

// A job in the queue sends nothing: that its controller had the stream is all that the client
// knows, and enough to try for the whole patience when it breaks.
TEST(SessionStreams, OfAJobThatWaitedForHoursAreMadeAgain) {
  LocalClusterOptions options;
  options.workers = 1;
  auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto job = MakeDrivenJob(2, 600);
  ASSERT_TRUE(job.has_value()) << job.error();
  FakeClock clock;
  client::SessionStart start;
  start.prepare = [](grpc::ClientContext&) {};
  start.explain = [](const grpc::Status& status) {
    return status.ok() ? OkStatus() : Unavailable(status.error_message());
  };
  start.open.op_id = "waits";
  start.open.session = "patient";
  start.open.job = *job;
  start.options.reconnect_ms = 1'000;
  client::SessionStreams streams(
      grpc::CreateChannel("127.0.0.1:" + std::to_string((*cluster)->port()),
                          grpc::InsecureChannelCredentials()),
      start, clock);
  std::promise<Status> broke;
  std::promise<Status> ended;
  bool once = false;
  std::thread reader([&] {
    client::SessionStreams::Events events;
    events.told = [](const auto&, const proto::ClientDown&) { return OkStatus(); };
    events.lost = [&](const Status& why) {
      if (!std::exchange(once, true)) broke.set_value(why);
    };
    ended.set_value(streams.Run(events));
  });
  const auto waits = [&] {
    const auto info = (*cluster)->client().Get(1);
    return info.has_value() && info->state == client::JobState::kQueued;
  };
  for (int i = 0; i < 2'000 && !waits(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(waits());
  clock.AdvanceMs(3'600'000);
  const Status restarted = (*cluster)->RestartServer();
  EXPECT_TRUE(restarted.ok()) << restarted;
  std::future<Status> end = ended.get_future();
  EXPECT_EQ(broke.get_future().wait_for(kSoon), std::future_status::ready)
      << "the session was given up at its first break";
  EXPECT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  streams.GiveUp();
  reader.join();
  EXPECT_EQ(end.get().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace meshwright::testing
