// The client's connection: IPv6, and a network that goes silent.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <vector>

#include "base/executor.h"
#include "base/listen_address.h"
#include "base/unique_fd.h"
#include "tests/e2e/control/local_cluster.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;

// Passes bytes between its port and `target` until it is frozen: then the connections stay open and
// nothing moves, as when a host hangs or a cable is pulled.
class FreezingRelay {
 public:
  explicit FreezingRelay(int target)
      : target_(target),
        listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        wake_(eventfd(0, EFD_CLOEXEC)) {
    const SocketAddress address = ResolveNumeric("127.0.0.1", 0).value();
    EXPECT_EQ(bind(listener_.get(), address.get(), address.bytes), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    thread_.Post([this] { Run(); });
  }
  ~FreezingRelay() {
    ended_ = true;
    Wake();
    thread_.Stop();
  }

  int port() const {
    sockaddr_in bound{};
    socklen_t bytes = sizeof(bound);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &bytes);
    return ntohs(bound.sin_port);
  }
  void Freeze() {
    frozen_ = true;
    Wake();
  }

 private:
  struct Pair {
    UniqueFd near, far;
  };

  void Wake() const {
    const uint64_t one = 1;
    EXPECT_EQ(write(wake_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }

  void Accept() {
    Pair pair{UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)),
              UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
    const SocketAddress address = ResolveNumeric("127.0.0.1", target_).value();
    if (connect(pair.far.get(), address.get(), address.bytes) == 0) {
      pairs_.push_back(std::move(pair));
    }
  }

  // False when the connection is over.
  static bool Move(int from, int to) {
    std::array<char, 65536> block;
    const ssize_t got = read(from, block.data(), block.size());
    return got > 0 && write(to, block.data(), static_cast<size_t>(got)) == got;
  }

  void Run() {
    while (!ended_) {
      std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
      if (!frozen_) polled.push_back({listener_.get(), POLLIN, 0});
      for (const Pair& pair : pairs_) {
        if (frozen_) break;
        polled.push_back({pair.near.get(), POLLIN, 0});
        polled.push_back({pair.far.get(), POLLIN, 0});
      }
      if (poll(polled.data(), polled.size(), -1) < 0) continue;
      if (polled[0].revents != 0) {
        uint64_t count = 0;
        (void)!read(wake_.get(), &count, sizeof(count));
        continue;
      }
      for (size_t i = (polled.size() - 2) / 2; i-- > 0;) {
        const Pair& pair = pairs_[i];
        const bool alive =
            (polled[2 + 2 * i].revents == 0 || Move(pair.near.get(), pair.far.get())) &&
            (polled[3 + 2 * i].revents == 0 || Move(pair.far.get(), pair.near.get()));
        if (!alive) pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(i));
      }
      if (polled[1].revents != 0) Accept();
    }
  }

  const int target_;
  const UniqueFd listener_;
  const UniqueFd wake_;
  std::atomic<bool> frozen_{false};
  std::atomic<bool> ended_{false};
  std::vector<Pair> pairs_;  // of the thread
  Executor thread_{"relay"};
};

TEST(Client, AWatchEndsWhenTheControllerFreezes) {
  LocalClusterOptions options;
  options.workers = 0;
  auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto job = (*cluster)->Submit(ByteJob(1, 1, 1), SampleBytes(9000));
  ASSERT_TRUE(job.has_value()) << job.error();
  FreezingRelay relay((*cluster)->port());
  client::Client::Options through;
  through.address = fmt::format("127.0.0.1:{}", relay.port());
  through.keepalive_ms = 500;
  through.patience_ms = 1000;
  auto client = client::Client::Connect(through);
  ASSERT_TRUE(client.has_value()) << client.error();
  const auto end = (*client)->Watch(
      *job,
      [&relay](const client::JobUpdate&) {
        relay.Freeze();
        return true;
      },
      60'000);
  ASSERT_FALSE(end.has_value());
  EXPECT_EQ(end.error().code(), StatusCode::kUnavailable) << end.error();
  EXPECT_THAT(end.error().message(), HasSubstr(through.address));
}

controller::ServerOptions ListenOn(const std::string& bind, int metrics_port, const TempDir& dir) {
  controller::ServerOptions options;
  options.bind = bind;
  options.port = 0;
  options.metrics_port = metrics_port;
  options.state_dir = dir.File("state");
  return options;
}

TEST(Client, ReachesAControllerOnIpv6) {
  if (!ProbeListen("::1", 0).ok()) GTEST_SKIP() << "this machine has no IPv6 loopback";
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  const controller::ServerOptions options = ListenOn("::1", -1, *dir);
  auto server = controller::Server::Start(options);
  ASSERT_TRUE(server.has_value()) << server.error();
  client::Client::Options to;
  to.address = fmt::format("[::1]:{}", (*server)->port());
  EXPECT_TRUE(client::Client::Connect(to).has_value());
}

TEST(Client, ReachesAControllerOnTheNameOfLoopbackAndItsMetrics) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  const controller::ServerOptions options = ListenOn("localhost", 0, *dir);
  auto server = controller::Server::Start(options);
  ASSERT_TRUE(server.has_value()) << server.error();
  EXPECT_GT((*server)->metrics_port(), 0);
  client::Client::Options to;
  to.address = fmt::format("localhost:{}", (*server)->port());
  EXPECT_TRUE(client::Client::Connect(to).has_value());
}

TEST(Client, MetricsOnIpv6AreServedOrRefusedWithTheFix) {
  if (!ProbeListen("::1", 0).ok()) GTEST_SKIP() << "this machine has no IPv6 loopback";
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  const controller::ServerOptions options = ListenOn("::1", 0, *dir);
  const auto server = controller::Server::Start(options);
  if (server.has_value()) return;  // civetweb of this system has IPv6
  EXPECT_EQ(server.error().code(), StatusCode::kInvalidArgument) << server.error();
  EXPECT_THAT(server.error().message(), HasSubstr("port -1"));
}

}  // namespace
}  // namespace meshwright::testing
