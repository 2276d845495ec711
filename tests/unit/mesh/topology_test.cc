#include "mesh/topology.h"

#include <gtest/gtest.h>

namespace meshwright::mesh {
namespace {

TEST(Topology, LocalDevicesOfAWorkerAreNeighbours) {
  const Topology topology = Topology::Local(5, 2);
  ASSERT_EQ(topology.devices.size(), 5u);
  EXPECT_EQ(topology.devices[0].worker, topology.devices[1].worker);
  EXPECT_NE(topology.devices[1].worker, topology.devices[2].worker);
  EXPECT_EQ(topology.devices[3].local_index, 1);
  EXPECT_EQ(topology.devices[4].local_index, 0);
  for (const Device& device : topology.devices) EXPECT_EQ(device.host, topology.devices[0].host);
}

TEST(Topology, OneDevicePerWorkerUnlessSaid) {
  const Topology topology = Topology::Local(2);
  EXPECT_NE(topology.devices[0].worker, topology.devices[1].worker);
}

// Streams of `topology`'s first device, as a part of what it streams alone.
double StreamShare(Topology topology) {
  const KernelClass stream = KernelClass::kElementwise;
  const double alone = topology.ProfileOf(0).Rates(stream).bytes_per_s;
  ShareHost(topology);
  for (size_t i = 1; i < topology.devices.size(); ++i) {
    EXPECT_EQ(topology.devices[i].profile, topology.devices[0].profile)
        << "one profile, not copies";
  }
  return topology.ProfileOf(0).Rates(stream).bytes_per_s / alone;
}

TEST(ShareHost, DevicesThatRunAtOnceShareWhatTheHostHas) {
  DeviceProfile profile = *DefaultDeviceProfile();
  const double alone = profile.Rates(KernelClass::kElementwise).bytes_per_s;
  profile.host_bytes_per_s = 1.5 * alone;
  const auto host = [&](int devices, int cores, int threads) {
    Topology topology = Topology::Local(devices);
    const auto shared = std::make_shared<const DeviceProfile>(profile);
    for (Device& device : topology.devices) {
      device.profile = shared;
      device.threads = threads;
    }
    topology.hosts["local"].cores = cores;
    return topology;
  };
  EXPECT_DOUBLE_EQ(StreamShare(host(1, 2, 1)), 1) << "alone";
  EXPECT_DOUBLE_EQ(StreamShare(host(2, 2, 1)), 0.75);
  EXPECT_DOUBLE_EQ(StreamShare(host(4, 2, 1)), 0.75) << "two cores run two at once";
  EXPECT_DOUBLE_EQ(StreamShare(host(4, 0, 1)), 0.375) << "cores of their own";
  EXPECT_DOUBLE_EQ(StreamShare(host(4, 8, 4)), 0.75);
  profile.host_bytes_per_s = 0;
  EXPECT_DOUBLE_EQ(StreamShare(host(4, 4, 1)), 1) << "not known";
  EXPECT_DOUBLE_EQ(StreamShare(Topology::Local(4)), 1) << "nothing measured";
}

TEST(ShareHost, CoresSlowDownAsOthersCompute) {
  DeviceProfile profile = *DefaultDeviceProfile();
  profile.host_compute_share = 0.8;
  const auto rate_of = [&](int devices, int cores, int threads) {
    Topology topology = Topology::Local(devices);
    for (Device& device : topology.devices) {
      device.profile = std::make_shared<const DeviceProfile>(profile);
      device.threads = threads;
    }
    topology.hosts["local"].cores = cores;
    ShareHost(topology);
    return topology.ProfileOf(0).RateOf(KernelClass::kProduct, ir::DType::kF32, 1e9) /
           profile.RateOf(KernelClass::kProduct, ir::DType::kF32, 1e9);
  };
  EXPECT_DOUBLE_EQ(rate_of(1, 2, 1), 1) << "alone";
  EXPECT_DOUBLE_EQ(rate_of(2, 2, 1), 0.8);
  EXPECT_DOUBLE_EQ(rate_of(4, 2, 1), 0.8) << "two cores run two at once";
  EXPECT_DOUBLE_EQ(rate_of(3, 5, 1), 0.9) << "half of the other cores";
  EXPECT_DOUBLE_EQ(rate_of(2, 4, 2), 0.8);
  EXPECT_DOUBLE_EQ(rate_of(1, 2, 2), 1) << "measured with all its threads";
  EXPECT_DOUBLE_EQ(rate_of(2, 0, 1), 1) << "cores of their own";
}

TEST(ShareHost, OneWorkersBadSecondIsNotTheHosts) {
  Topology topology = Topology::Local(4);
  topology.hosts["local"].cores = 2;
  for (size_t i = 0; i < 4; ++i) {
    DeviceProfile profile = *DefaultDeviceProfile();
    const double alone = profile.Rates(KernelClass::kElementwise).bytes_per_s;
    profile.host_compute_share = i == 1 ? 0.5 : i == 3 ? 0 : 0.9;
    profile.host_bytes_per_s = (i == 2 ? 0.5 : 1.6) * alone;
    profile.links.host = LinkCost{i == 0 ? 9e-6 : 2e-6, i == 3 ? 9e-11 : 1e-11};
    topology.devices[i].profile = std::make_shared<const DeviceProfile>(profile);
  }
  TakeMeasuredLinks(topology);
  ShareHost(topology);
  EXPECT_EQ(topology.hosts["local"].links.host, (LinkCost{2e-6, 1e-11}));
  EXPECT_FALSE(topology.hosts["local"].links.process.has_value());
  const DeviceProfile& whole = *DefaultDeviceProfile();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(topology.ProfileOf(i).RateOf(KernelClass::kProduct, ir::DType::kF32, 1e9),
                     0.9 * whole.RateOf(KernelClass::kProduct, ir::DType::kF32, 1e9))
        << i;
    EXPECT_DOUBLE_EQ(topology.ProfileOf(i).Rates(KernelClass::kElementwise).bytes_per_s,
                     0.8 * whole.Rates(KernelClass::kElementwise).bytes_per_s)
        << i;
  }
}

TEST(ShareHost, OnlyMemoryIsShared) {
  DeviceProfile profile = *DefaultDeviceProfile();
  profile.host_bytes_per_s = profile.Rates(KernelClass::kElementwise).bytes_per_s;
  Topology topology = Topology::Local(2);
  for (Device& device : topology.devices) {
    device.profile = std::make_shared<const DeviceProfile>(profile);
  }
  ShareHost(topology);
  for (const KernelClass kernel : {KernelClass::kProduct, KernelClass::kOptimizer}) {
    const KernelRates& shared = topology.ProfileOf(1).Rates(kernel);
    EXPECT_DOUBLE_EQ(shared.bytes_per_s, profile.Rates(kernel).bytes_per_s / 2);
    EXPECT_EQ(shared.curves, profile.Rates(kernel).curves);
  }
}

}  // namespace
}  // namespace meshwright::mesh
