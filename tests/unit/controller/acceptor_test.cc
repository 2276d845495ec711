// The listening socket: it refuses what it cannot hold, says so, and goes on listening.
#include "controller/grpc/acceptor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "base/descriptors.h"
#include "base/file.h"
#include "base/listen_address.h"
#include "tests/fake_clock.h"

namespace meshwright::controller {
namespace {

using ::testing::HasSubstr;

constexpr int kPatienceMs = 30'000;

// Keeps what it is given.
class Keeper {
 public:
  void Take(UniqueFd connection) {
    const std::scoped_lock lock(mutex_);
    taken_.push_back(std::move(connection));
    changed_.notify_all();
  }
  // False: the count was not reached.
  bool Await(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                             [&] { return taken_.size() >= count; });
  }
  size_t count() {
    const std::scoped_lock lock(mutex_);
    return taken_.size();
  }
  void CloseAll() {
    const std::scoped_lock lock(mutex_);
    taken_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<UniqueFd> taken_;
};

UniqueFd ConnectTo(int port) {
  const SocketAddress address = ResolveNumeric("127.0.0.1", port).value();
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), address.get(), address.bytes), 0);
  return fd;
}

// Whether the other side has reset the connection, once it has done anything.
bool WasReset(const UniqueFd& fd) {
  pollfd wanted{fd.get(), POLLIN, 0};
  if (::poll(&wanted, 1, kPatienceMs) != 1) return false;
  char byte = 0;
  return ::recv(fd.get(), &byte, 1, 0) < 0 && errno == ECONNRESET;
}

struct RunningAcceptor {
  explicit RunningAcceptor(int64_t max_connections) {
    auto made = Acceptor::Listen("127.0.0.1", 0, max_connections, clock);
    EXPECT_TRUE(made.has_value()) << made.error();
    acceptor = std::move(*made);
    acceptor->Start([this](UniqueFd fd) { keeper.Take(std::move(fd)); });
  }
  FakeClock clock;
  Keeper keeper;
  std::unique_ptr<Acceptor> acceptor;  // stops first
};

TEST(Acceptor, RefusesConnectionsBeyondTheMostAndTakesOthersLater) {
  RunningAcceptor running(20);
  Acceptor& acceptor = *running.acceptor;
  std::vector<UniqueFd> clients;
  // Both ends are descriptors of this process and count, as do some that other tests have left.
  while (acceptor.refused() == 0 && clients.size() < 40) {
    const size_t before = running.keeper.count();
    clients.push_back(ConnectTo(acceptor.port()));
    pollfd wanted{clients.back().get(), POLLIN, 0};
    while (running.keeper.count() == before && ::poll(&wanted, 1, 10) == 0) {
    }
  }
  EXPECT_GE(running.keeper.count(), 4u);
  EXPECT_LE(running.keeper.count(), 20u);
  EXPECT_TRUE(WasReset(clients.back()));
  EXPECT_EQ(acceptor.Health().code(), StatusCode::kUnavailable);
  EXPECT_THAT(acceptor.Health().message(), HasSubstr("--max-connections 20"));
  clients.clear();
  running.keeper.CloseAll();
  const UniqueFd later = ConnectTo(acceptor.port());
  EXPECT_TRUE(running.keeper.Await(1));
  running.clock.AdvanceMs(10'000);
  EXPECT_TRUE(acceptor.Health().ok()) << acceptor.Health();
}

TEST(Acceptor, GoesOnListeningWhenThereWasNoDescriptorLeft) {
  RunningAcceptor running(1000);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // No number is free any more.
  const int next = ::fcntl(client.get(), F_DUPFD_CLOEXEC, 0);
  ::close(next);
  rlimit none = old;
  none.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const SocketAddress address = ResolveNumeric("127.0.0.1", running.acceptor->port()).value();
  ASSERT_EQ(::connect(client.get(), address.get(), address.bytes), 0);
  EXPECT_TRUE(WasReset(client));
  EXPECT_EQ(running.keeper.count(), 0u);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_FALSE(running.acceptor->Health().ok());
  const UniqueFd later = ConnectTo(running.acceptor->port());
  EXPECT_TRUE(running.keeper.Await(1));
}

UniqueFd ConnectTo(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fd.Reset();
  return fd;
}

// The same bound and the same refusal as at a port.
TEST(Acceptor, ASocketOfTheFileSystemIsItsOwnersAndRefusesBeyondTheMost) {
  const auto folder = TempDir::Make("acceptor");
  ASSERT_TRUE(folder.has_value()) << folder.error();
  const std::string path = LocalSocketIn(folder->path());
  Keeper keeper;
  auto acceptor = Acceptor::ListenLocal(path, 2);
  ASSERT_TRUE(acceptor.has_value()) << acceptor.error();
  (*acceptor)->Start([&](UniqueFd fd) { keeper.Take(std::move(fd)); });
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  std::vector<UniqueFd> clients;
  // Both ends are descriptors of this process and count.
  for (int i = 0; i < 3; ++i) clients.push_back(ConnectTo(path));
  pollfd wanted{clients.back().get(), POLLIN, 0};
  EXPECT_EQ(::poll(&wanted, 1, kPatienceMs), 1) << "the last one is refused";
  EXPECT_LT(keeper.count(), 3u);
  EXPECT_THAT((*acceptor)->Health().message(), HasSubstr(path));
  (*acceptor)->Stop();
  EXPECT_NE(::stat(path.c_str(), &info), 0) << "its file is gone";
}

TEST(Acceptor, ASocketThatWasLeftIsReplacedAndAnotherFileIsNot) {
  const auto folder = TempDir::Make("acceptor");
  ASSERT_TRUE(folder.has_value()) << folder.error();
  const std::string path = LocalSocketIn(folder->path());
  { const UniqueFd left = ListenUnix(path, 1).value(); }
  EXPECT_FALSE(ConnectTo(path).valid()) << "nobody listens";
  EXPECT_TRUE(Acceptor::ListenLocal(path, 10).has_value());
  ASSERT_TRUE(WriteFileAtomic(path, "a file of the user").ok());
  const auto refused = Acceptor::ListenLocal(path, 10);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr(path + " is no socket: move it away"));
  EXPECT_EQ(ReadFile(path).value(), "a file of the user");
}

TEST(Acceptor, ThePortIsFreeWhenItHasStopped) {
  RunningAcceptor running(10);
  const int port = running.acceptor->port();
  EXPECT_EQ(Acceptor::Listen("127.0.0.1", port, 10).error().code(), StatusCode::kAlreadyExists);
  running.acceptor->Stop();
  EXPECT_TRUE(Acceptor::Listen("127.0.0.1", port, 10).has_value());
}

TEST(Descriptors, TheLimitIsRaisedToTheHardOne) {
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit low = old;
  low.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(DescriptorLimit(), 256);
  const int64_t raised = RaiseDescriptorLimit();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_EQ(raised, std::min<int64_t>(static_cast<int64_t>(old.rlim_max), 1 << 20));
}

}  // namespace
}  // namespace meshwright::controller
