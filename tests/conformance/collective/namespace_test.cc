// TCP between two network namespaces: two hosts, as far as the processes can tell.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/conformance/collective/cluster.h"

namespace meshwright::collective {
namespace {

// Two namespaces with a cable between them; removed in the destructor.
class TwoHosts {
 public:
  TwoHosts() {
    const int id = getpid() % 10'000;
    names_[0] = fmt::format("mwa{}", id);
    names_[1] = fmt::format("mwb{}", id);
    ready_ = Ip(fmt::format("netns add {}", names_[0])) &&
             Ip(fmt::format("netns add {}", names_[1])) &&
             Ip(fmt::format("link add name {0} netns {0} type veth peer name {1} netns {1}",
                            names_[0], names_[1]));
    for (int i = 0; i < 2 && ready_; ++i) {
      const std::string inside = fmt::format("-n {} ", names_[i]);
      ready_ = Ip(inside + fmt::format("addr add {}/24 dev {}", Address(i), names_[i])) &&
               Ip(inside + fmt::format("link set {} up", names_[i]));
    }
  }
  ~TwoHosts() {
    Ip("netns del " + names_[0]);  // the cable goes with its ends
    Ip("netns del " + names_[1]);
  }
  bool ready() const { return ready_; }
  static std::string Address(int host) { return fmt::format("10.213.77.{}", host + 1); }
  void Enter(int host) const {
    const int fd = open(("/var/run/netns/" + names_[host]).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
      _exit(4);
    }
    close(fd);
  }
  bool Cut() const { return Ip(fmt::format("-n {} link set {} down", names_[1], names_[1])); }

 private:
  static bool Ip(const std::string& arguments) {
    return std::system(("ip " + arguments + " >/dev/null 2>&1").c_str()) == 0;
  }
  std::string names_[2];
  bool ready_ = false;
};

ClusterSpec SpecOn(const TwoHosts& hosts) {
  ClusterSpec spec = EvenCluster(4, 2, Transport::kAuto);
  spec.enter = [&hosts](int process) { hosts.Enter(process); };
  spec.hosts = {TwoHosts::Address(0), TwoHosts::Address(1)};
  return spec;
}

TEST(NetworkNamespaces, HostsAreToldApartAndTalkByTcp) {
  const TwoHosts hosts;
  if (!hosts.ready()) {
    GTEST_SKIP() << "making network namespaces is not permitted here";
  }
  const ClusterSpec spec = SpecOn(hosts);
  ForkedCluster cluster(
      spec, OnWorld(spec, [](RankSite& site) -> std::string {
        std::vector<double> data(200'000, site.rank + 1.0);
        const Status status =
            site.world->AllReduce(data.data(), 200'000, ir::DType::kF64, Reduction::kSum);
        const std::string way = site.fabric->transport(3 - site.rank);
        const bool right = status.ok() && data[0] == 10.0 && data[199'999] == 10.0 && way == "tcp";
        return right ? "" : fmt::format("{} by {}", status.ToString(), way);
      }));
  EXPECT_EQ(cluster.Results(), std::vector<std::string>(2));
}

TEST(NetworkNamespaces, CutCableIsADeadlineThatNamesTheOtherSide) {
  const TwoHosts hosts;
  if (!hosts.ready()) {
    GTEST_SKIP() << "making network namespaces is not permitted here";
  }
  ClusterSpec spec = SpecOn(hosts);
  spec.process_of_rank = {0, 1};
  spec.operation_timeout_ms = 2'000;
  ForkedCluster cluster(spec, OnWorld(spec, [](RankSite& site) -> std::string {
                          std::vector<float> data(100'000);
                          for (int i = 0;; ++i) {
                            if (i == 2) {
                              site.report_ready();
                            }
                            const Status status = site.world->AllReduce(
                                data.data(), 100'000, ir::DType::kF32, Reduction::kMax);
                            if (!status.ok()) {
                              return status.ToString();
                            }
                          }
                        }));
  cluster.AwaitReady(0);
  cluster.AwaitReady(1);
  ASSERT_TRUE(hosts.Cut());
  EXPECT_NE(cluster.Result(0, 10'000).find("rank 1 (worker-1) did not"), std::string::npos);
  EXPECT_NE(cluster.Result(1, 10'000).find("rank 0 (worker-0) did not"), std::string::npos);
}

}  // namespace
}  // namespace meshwright::collective
