#include "mesh/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::mesh {
namespace {

using ::testing::HasSubstr;

HostGroup Group(std::string name, int64_t count, int64_t devices, std::string profile) {
  HostGroup group;
  group.name = std::move(name);
  group.count = count;
  group.devices = devices;
  group.profile = std::move(profile);
  return group;
}

Cluster TwoGroups() {
  Cluster cluster;
  cluster.name = "two";
  cluster.hosts = {Group("new", 2, 8, "h100-80g"), Group("old", 3, 4, "v100-32g")};
  cluster.hosts[1].nic_bytes_per_s = 5e10;
  cluster.links.slow = {{"new", "old", {1e-3, 1e-9}}};
  return cluster;
}

std::string Refused(const Cluster& cluster) {
  const auto topology = TopologyOfCluster(cluster);
  return topology ? "" : topology.error().message();
}

TEST(TopologyOfCluster, DevicesOfAHostAreNeighboursAndKnowTheirProfile) {
  const auto topology = TopologyOfCluster(TwoGroups());
  ASSERT_TRUE(topology.has_value()) << topology.error().message();
  ASSERT_EQ(topology->devices.size(), 2u * 8 + 3 * 4);
  EXPECT_EQ(topology->devices[7].host, "new0");
  EXPECT_EQ(topology->devices[7].local_index, 7);
  EXPECT_EQ(topology->devices[8].host, "new1");
  EXPECT_EQ(topology->devices[27].host, "old2");
  EXPECT_EQ(topology->devices[27].worker, "old2");
  EXPECT_EQ(topology->ProfileOf(0).name, "h100-80g");
  EXPECT_EQ(topology->ProfileOf(16).name, "v100-32g");
  EXPECT_EQ(topology->devices[16].memory_bytes, int64_t{28} << 30) << "4 GiB are reserved";
  EXPECT_EQ(topology->hosts.at("old1").group, "old");
  EXPECT_EQ(topology->hosts.at("old1").nic_bytes_per_s, 5e10);
  EXPECT_EQ(SummaryOf(TwoGroups()), "two: 28 devices on 5 hosts");
}

TEST(TopologyOfCluster, OwnProfilesComeBeforeTheKnownOnes) {
  Cluster cluster = TwoGroups();
  DeviceProfile own = *KnownDeviceProfiles().at("v100-32g");
  own.memory_bytes = 1 << 20;
  own.reserve_bytes = 1 << 10;
  cluster.profiles["v100-32g"] = std::make_shared<const DeviceProfile>(own);
  EXPECT_EQ(TopologyOfCluster(cluster)->devices[16].memory_bytes, (1 << 20) - (1 << 10));
}

TEST(TopologyOfCluster, GpusHaveNoDiskWhateverTheyReserve) {
  Cluster cluster;
  DeviceProfile gpu = *KnownDeviceProfiles().at("a100-40g");
  gpu.name = "own";
  gpu.reserve_bytes = 0;
  DeviceProfile cpu = *KnownDeviceProfiles().at("cpu");
  cpu.memory_bytes = 1 << 20;
  cpu.reserve_bytes = 1 << 10;
  cluster.profiles["gpu"] = std::make_shared<const DeviceProfile>(gpu);
  cluster.profiles["cpu"] = std::make_shared<const DeviceProfile>(cpu);
  cluster.hosts = {Group("a", 1, 1, "gpu"), Group("b", 1, 1, "cpu")};
  const auto topology = TopologyOfCluster(cluster);
  ASSERT_TRUE(topology.has_value()) << topology.error();
  EXPECT_EQ(topology->devices[0].disk, Disk::kOfGpu);
  EXPECT_EQ(topology->devices[1].disk, Disk::kPerhaps);
}

TEST(TopologyOfCluster, RefusalsNameWhatIsWrong) {
  Cluster cluster = TwoGroups();
  cluster.hosts[0].profile = "h100-80gb";
  EXPECT_THAT(Refused(cluster), HasSubstr("hosts \"new\": unknown device 'h100-80gb' (did you "
                                          "mean 'h100-80g'?)"));
  cluster = TwoGroups();
  cluster.hosts[1].count = 0;
  EXPECT_THAT(Refused(cluster), HasSubstr("hosts \"old\": count is 0; it must be in [1, 65536]"));
  cluster = TwoGroups();
  cluster.hosts[1].count = 65536;
  EXPECT_THAT(Refused(cluster), HasSubstr("there are 262160 devices; at most 65536"));
  cluster = TwoGroups();
  cluster.hosts[1].name = "new";
  EXPECT_THAT(Refused(cluster), HasSubstr("hosts \"new\" are there twice"));
  cluster = TwoGroups();
  cluster.hosts = {Group("a", 12, 1, "cpu"), Group("a1", 1, 1, "cpu")};
  cluster.links.slow.clear();
  EXPECT_THAT(Refused(cluster), HasSubstr("\"a1\" and \"a\" both have a host a10"));
  cluster = TwoGroups();
  cluster.links.slow[0].to = "odl";
  EXPECT_THAT(Refused(cluster), HasSubstr("there are no hosts \"odl\" (did you mean 'old'?)"));
  cluster = TwoGroups();
  cluster.links.slow.push_back({"old", "new", {}});
  EXPECT_THAT(Refused(cluster), HasSubstr("is there twice"));
  cluster = TwoGroups();
  cluster.links.host.seconds_per_byte = 0;
  EXPECT_THAT(Refused(cluster), HasSubstr("the link within a host"));
  EXPECT_THAT(Refused(Cluster{}), HasSubstr("it has no hosts"));
}

}  // namespace
}  // namespace meshwright::mesh
