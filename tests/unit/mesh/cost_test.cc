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

TEST(CollectiveBytes, GroupTotalsOfAFullTensor) {
  const double full = 1200;
  for (const int64_t q : {2, 3, 8}) {
    const auto group = static_cast<double>(q);
    EXPECT_DOUBLE_EQ(BytesOfGroup(CollectiveKind::kBroadcast, full, q), (group - 1) * full);
    EXPECT_DOUBLE_EQ(BytesOfGroup(CollectiveKind::kAllGather, full / group, q), (group - 1) * full);
    EXPECT_DOUBLE_EQ(BytesOfGroup(CollectiveKind::kReduceScatter, full, q), (group - 1) * full);
    EXPECT_DOUBLE_EQ(BytesOfGroup(CollectiveKind::kAllReduce, full, q), 2 * (group - 1) * full);
    EXPECT_DOUBLE_EQ(BytesOfGroup(CollectiveKind::kAllToAll, full / group, q),
                     (group - 1) / group * full);
  }
}

TEST(CollectiveSeconds, AreAlphaPlusBytesAndNothingForOneDevice) {
  const LinkCost link{.alpha_s = 2, .seconds_per_byte = 0.5};
  EXPECT_DOUBLE_EQ(SecondsOf(CollectiveKind::kAllGather, 100, 4, link), 2 + 150);
  EXPECT_DOUBLE_EQ(SecondsOf(CollectiveKind::kAllReduce, 100, 1, link), 0);
}

}  // namespace
}  // namespace meshwright::mesh
