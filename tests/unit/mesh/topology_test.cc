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

}  // namespace
}  // namespace meshwright::mesh
