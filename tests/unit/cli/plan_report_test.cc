#include "cli/plan_report.h"

#include <gtest/gtest.h>

namespace meshwright::cli {
namespace {

TEST(DryRunTopology, HasTheDevicesThatItWasAskedFor) {
  const auto topology = DryRunTopology(4, 2);
  ASSERT_TRUE(topology.has_value()) << topology.error();
  EXPECT_EQ(topology->devices.size(), 4u);
  EXPECT_EQ(topology->devices[3].worker, "worker1");
}

TEST(DryRunTopology, RefusesProductsThatDoNotFitAnInt) {
  for (const int64_t devices : {int64_t{1} << 48, (int64_t{1} << 32) + 4, int64_t{65537}}) {
    const auto topology = DryRunTopology(devices, 1);
    ASSERT_FALSE(topology.has_value()) << devices;
    EXPECT_EQ(topology.error().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(topology.error().message().find(std::to_string(devices)), std::string::npos)
        << topology.error();
    EXPECT_NE(topology.error().message().find("smaller degrees"), std::string::npos);
  }
  EXPECT_FALSE(DryRunTopology(4, 0).has_value());
}

}  // namespace
}  // namespace meshwright::cli
