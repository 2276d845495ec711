#include "mesh/cost.h"

#include <gtest/gtest.h>

namespace meshwright::mesh {
namespace {

TEST(CollectiveBytes, PerDeviceVolumesOfLocalBytes) {
  EXPECT_DOUBLE_EQ(BytesPerDevice(CollectiveKind::kAllGather, 100, 4), 300);
  EXPECT_DOUBLE_EQ(BytesPerDevice(CollectiveKind::kReduceScatter, 100, 4), 75);
  EXPECT_DOUBLE_EQ(BytesPerDevice(CollectiveKind::kAllReduce, 100, 4), 150);
  EXPECT_DOUBLE_EQ(BytesPerDevice(CollectiveKind::kAllToAll, 100, 4), 75);
  EXPECT_DOUBLE_EQ(BytesPerDevice(CollectiveKind::kBroadcast, 100, 4), 75);
}

}  // namespace
}  // namespace meshwright::mesh
