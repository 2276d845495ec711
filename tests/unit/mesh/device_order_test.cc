#include "mesh/device_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <tuple>
#include <vector>

namespace meshwright::mesh {
namespace {

using ::testing::ElementsAre;

TEST(NaturalLess, IsAStrictTotalOrder) {
  EXPECT_TRUE(NaturalLess("w2", "w10"));
  EXPECT_TRUE(NaturalLess("a9b2", "a9b10"));
  EXPECT_TRUE(NaturalLess("w", "w0"));
  EXPECT_FALSE(NaturalLess("w007", "w007"));
  EXPECT_TRUE(rc::check("irreflexive, antisymmetric, total", [] {
    const auto name = rc::gen::container<std::string>(rc::gen::element('a', '0', '1', '2'));
    const std::string a = *name;
    const std::string b = *name;
    const std::string c = *name;
    RC_ASSERT(!NaturalLess(a, a));
    RC_ASSERT((a == b) == (!NaturalLess(a, b) && !NaturalLess(b, a)));
    if (NaturalLess(a, b) && NaturalLess(b, c)) RC_ASSERT(NaturalLess(a, c));
  }));
}

TEST(SortForPlacement, HostsWithMostDevicesFirstThenWorkersInNaturalOrder) {
  std::vector<Device> devices;
  for (const auto& [worker, host, index] :
       {std::tuple("w10", "b", 0), {"w3", "a", 0}, {"w2", "b", 1}, {"w2", "b", 0}}) {
    Device device;
    device.worker = worker;
    device.host = host;
    device.local_index = index;
    devices.push_back(device);
  }
  SortForPlacement(devices);
  std::vector<std::string> order;
  for (const Device& device : devices) {
    order.push_back(device.worker + ":" + std::to_string(device.local_index));
  }
  EXPECT_THAT(order, ElementsAre("w2:0", "w2:1", "w10:0", "w3:0"));
}

}  // namespace
}  // namespace meshwright::mesh
