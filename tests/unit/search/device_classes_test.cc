#include "search/device_classes.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "planner/forecast.h"

namespace meshwright::search {
namespace {

using Classes = std::vector<std::vector<int>>;

mesh::SharedProfile Slower(const mesh::SharedProfile& profile, double factor) {
  mesh::DeviceProfile slower = *profile;
  for (mesh::KernelRates& rates : slower.kernels) {
    for (mesh::RateCurve& curve : rates.curves) {
      for (mesh::RatePoint& point : curve) point.flops_per_s *= factor;
    }
  }
  return std::make_shared<const mesh::DeviceProfile>(slower);
}

// Devices of these rates on a host.
mesh::Topology DevicesOf(const std::vector<double>& rates, int cores) {
  mesh::Topology topology = mesh::Topology::Local(static_cast<int>(rates.size()));
  for (size_t i = 0; i < rates.size(); ++i) {
    topology.devices[i].profile = Slower(mesh::DefaultDeviceProfile(), rates[i]);
  }
  topology.hosts[topology.devices[0].host].cores = cores;
  return topology;
}

Classes ClassesOf(const mesh::Topology& topology) {
  return ClassesOfDevices(
      RatesOfDevices(planner::CostModel(topology), planner::CoreUses(topology)));
}

TEST(ClassesOfDevices, AreOfAboutEqualRatesFromFastToSlow) {
  EXPECT_EQ(ClassesOf(DevicesOf({0.8, 1.0, 0.82, 0.97}, 4)), (Classes{{1, 3}, {0, 2}}));
  EXPECT_EQ(ClassesOf(DevicesOf({0.8, 1.0}, 0)), (Classes{{1}, {0}})) << "cores are not known";
}

ProbeDevices Slowest(const mesh::Topology& topology, size_t size) {
  const planner::CostModel costs(topology);
  std::vector<int> members(topology.devices.size());
  std::iota(members.begin(), members.end(), 0);
  return SlowestGroup(members, size, RatesOfDevices(costs, planner::CoreUses(topology)), costs);
}

TEST(SlowestGroup, OfDevicesThatTakeTurnsIsThatOfTheFirst) {
  EXPECT_EQ(Slowest(DevicesOf({1.0, 0.9, 0.4, 0.97}, 4), 1).group, std::vector<int>{2});
  EXPECT_EQ(Slowest(DevicesOf({1.0, 0.9, 0.4, 0.97}, 2), 1).group, std::vector<int>{0});
}

TEST(SlowestGroup, IsOneOnTwoHostsWhereThereIsAny) {
  // Of eight devices, four on each host.
  mesh::Topology topology = DevicesOf({1, 0.96, 1, 1, 1, 0.97, 1, 1}, 0);
  for (size_t i = 4; i < 8; ++i) topology.devices[i].host = "other";
  topology.hosts["other"] = topology.hosts.begin()->second;
  const auto group = [&](size_t size) { return Slowest(topology, size).group; };
  EXPECT_EQ(group(2), (std::vector<int>{0, 1})) << "none is on two: that of the slowest device";
  EXPECT_EQ(group(3), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(group(4), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(group(8).size(), 8u);
  EXPECT_EQ(Slowest(topology, 3).slowest, 1) << "other groups wait for it, too";
}

TEST(ClassesOfDevices, DevicesThatTakeTurnsOnCoresAreEqual) {
  EXPECT_EQ(ClassesOf(DevicesOf({0.8, 1.0, 0.82, 0.97}, 3)), (Classes{{0, 1, 2, 3}}));
  mesh::Topology two_hosts = DevicesOf({0.8, 1.0, 0.5, 0.4}, 1);
  two_hosts.devices[2].host = two_hosts.devices[3].host = "slow";
  two_hosts.hosts["slow"].cores = 1;
  EXPECT_EQ(ClassesOf(two_hosts), (Classes{{0, 1}, {2, 3}}));
  mesh::Topology threads = DevicesOf({0.8, 1.0, 0.4}, 2);
  threads.devices[0].threads = threads.devices[1].threads = 2;
  EXPECT_EQ(ClassesOf(threads), (Classes{{0, 1}, {2}})) << "one has fewer threads";
}

}  // namespace
}  // namespace meshwright::search
