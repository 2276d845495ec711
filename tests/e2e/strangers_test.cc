// Connections of strangers, who show no token and say nothing.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/listen_address.h"
#include "base/unique_fd.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

class Strangers : public FaultFixture {
 protected:
  // A connection that says nothing.
  UniqueFd Knock() {
    const int port = std::stoi(cluster().address().substr(cluster().address().rfind(':') + 1));
    const SocketAddress address = ResolveNumeric("127.0.0.1", port).value();
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), address.get(), address.bytes), 0) << errno;
    return fd;
  }
};

// The soft limit of the shell, which 400 connections use up, is raised to the hard one.
TEST_F(Strangers, MoreConnectionsThanTheSoftLimitOfTheShell) {
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  if (old.rlim_max < 1024) GTEST_SKIP() << "the hard limit is " << old.rlim_max;
  rlimit low = old;
  low.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  StartWorkers(1);
  low.rlim_cur = std::min<rlim_t>(old.rlim_max, 4096);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<UniqueFd> held;
  for (int i = 0; i < 400; ++i) held.push_back(Knock());
  ExpectAJobSucceeds(1, 1);
  held.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
}

// Who says nothing is dropped: the place is free again although the stranger holds on.
TEST_F(Strangers, SilentConnectionsAreDroppedAndOthersServed) {
  ProcessClusterOptions options;
  options.workers = 1;
  options.controller_args = {"--max-connections", "64"};
  Start(options);
  std::vector<UniqueFd> held;
  for (int i = 0; i < 300; ++i) held.push_back(Knock());
  ExpectAJobSucceeds(1, 1);
  // A client that comes now finds a place once the silent ones are dropped, in some 5 s.
  const Deadline patience = Deadline::After(60'000);
  int code = -1;
  while (code != 0 && !patience.expired()) {
    const auto run = RunMeshwright({"--address", cluster().address(), "jobs"});
    ASSERT_TRUE(run.has_value()) << run.error();
    code = run->exit.code;
  }
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace meshwright::testing
