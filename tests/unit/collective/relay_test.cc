// A fabric whose connections come from a listener of another process, as far as one process can
// show it.
#include "collective/relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace meshwright::collective {
namespace {

constexpr uint64_t kWithPort = 11;  // the process with a listener of its own
constexpr uint64_t kRelayed = 22;   // the one whose connections are relayed
constexpr uint64_t kGeneration = 5;

class RelayTest : public ::testing::Test {
 protected:
  RelayTest() {
    auto [at_port, at_child] = MakeRelaySocket().value();
    at_port_ = std::move(at_port);
    child_listener_ = MakeRelayedListener(std::move(at_child), [this] {
      awaits_.set_value();
      if (relay_at_once_) Relay();
    });
  }

  // What the supervisor does.
  void Relay() {
    auto relay = MakeRelay(port_, {"c", kGeneration, kRelayed, {kRelayed, kWithPort}, "secret"},
                           std::move(at_port_));
    ASSERT_TRUE(relay.has_value()) << relay.error();
    relay_ = std::move(*relay);
  }

  // relayed_first: the lower rank is dialled by the higher one.
  FabricOptions Options(bool relayed_first, bool relayed, const std::string& secret = "secret") {
    const Member at_port{"own", fmt::format("127.0.0.1:{}", own_->port()), "a", kWithPort};
    const Member child{"child", fmt::format("127.0.0.1:{}", port_->port()), "b", kRelayed};
    FabricOptions options;
    options.members = relayed_first ? std::vector{child, at_port} : std::vector{at_port, child};
    options.local_ranks = {relayed == relayed_first ? 0 : 1};
    options.cluster_id = "c";
    options.generation = MeshGeneration(kGeneration);
    options.secret = secret;
    options.transport = Transport::kTcp;
    options.connect_timeout_ms = 20'000;
    return options;
  }

  std::shared_ptr<Listener> own_ = MakeListener("127.0.0.1", 0).value();
  std::shared_ptr<Listener> port_ = MakeListener("127.0.0.1", 0).value();
  UniqueFd at_port_;
  std::promise<void> awaits_;
  bool relay_at_once_ = true;
  std::unique_ptr<collective::Relay> relay_;
  std::shared_ptr<Listener> child_listener_;
};

class RelayedPair : public RelayTest, public ::testing::WithParamInterface<bool> {};

TEST_P(RelayedPair, TalksAsWithAPortOfItsOwn) {
  const auto dialer = MakeCpuFabric(Options(GetParam(), false), own_).value();
  const auto child = MakeCpuFabric(Options(GetParam(), true), child_listener_).value();
  ASSERT_TRUE(dialer->MakeGroup("g", {0, 1}).has_value());
  const auto groups = child->MakeGroup("g", {0, 1}).value();
  Group* const group = groups.begin()->second;
  Group* const other = dialer->MakeGroup("h", {0, 1}).value().begin()->second;
  Group* const same = child->MakeGroup("h", {0, 1}).value().begin()->second;
  Status connected;
  std::thread thread([&] { connected = child->Connect(); });
  const Status dialed = dialer->Connect();
  thread.join();
  ASSERT_TRUE(dialed.ok()) << dialed;
  ASSERT_TRUE(connected.ok()) << connected;
  float a = 1;
  float b = 2;
  std::thread adds(
      [&] { EXPECT_TRUE(same->AllReduce(&b, 1, ir::DType::kF32, Reduction::kSum).ok()); });
  EXPECT_TRUE(other->AllReduce(&a, 1, ir::DType::kF32, Reduction::kSum).ok());
  adds.join();
  EXPECT_EQ(a, 3);
  EXPECT_EQ(b, 3);
  EXPECT_EQ(group->size(), 2);
}

INSTANTIATE_TEST_SUITE_P(WhoDials, RelayedPair, ::testing::Bool());

// The port holds it, as for a fabric of its own that is not there yet.
TEST_F(RelayTest, AConnectionThatComesBeforeTheFabricWaitsAtThePort) {
  const auto dialer = MakeCpuFabric(Options(true, false), own_).value();
  ASSERT_TRUE(dialer->MakeGroup("g", {0, 1}).has_value());
  auto dialed = std::async(std::launch::async, [&] { return dialer->Connect(); });
  const auto child = MakeCpuFabric(Options(true, true), child_listener_).value();
  ASSERT_TRUE(child->MakeGroup("g", {0, 1}).has_value());
  awaits_.get_future().wait();
  EXPECT_TRUE(child->Connect().ok());
  EXPECT_TRUE(dialed.get().ok());
}

TEST_F(RelayTest, ARefusalAtThePortIsToldToTheFabric) {
  const auto child = MakeCpuFabric(Options(true, true), child_listener_).value();
  ASSERT_TRUE(child->MakeGroup("g", {0, 1}).has_value());
  const auto stranger = MakeCpuFabric(Options(true, false, "wrong"), own_).value();
  ASSERT_TRUE(stranger->MakeGroup("g", {0, 1}).has_value());
  const Status refused = stranger->Connect();
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("wrong secret"));
}

TEST_F(RelayTest, EndsWithTheSocketAndWantsAPort) {
  relay_at_once_ = false;
  const auto none = MakeRelay(child_listener_, {}, UniqueFd());
  EXPECT_EQ(none.error().code(), StatusCode::kInvalidArgument);
  Relay();
  auto [at_port, at_child] = MakeRelaySocket().value();
  const auto twin =
      MakeRelay(port_, {"c", kGeneration, kRelayed, {kWithPort}, "secret"}, std::move(at_port));
  EXPECT_EQ(twin.error().code(), StatusCode::kAlreadyExists);
  child_listener_.reset();  // ends its thread
  relay_.reset();
}

}  // namespace
}  // namespace meshwright::collective
