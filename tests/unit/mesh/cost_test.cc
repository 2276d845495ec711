#include "mesh/cost.h"

#include <gtest/gtest.h>

#include <cmath>

namespace meshwright::mesh {
namespace {

TEST(CollectiveBytes, PerDeviceVolumesOfLocalBytes) {
  EXPECT_DOUBLE_EQ(BytesPerDevice(CollectiveKind::kAllGather, 100, 4), 300);
  EXPECT_DOUBLE_EQ(BytesPerDevice(CollectiveKind::kReduceScatter, 100, 4), 75);
  EXPECT_DOUBLE_EQ(BytesPerDevice(CollectiveKind::kAllReduce, 100, 4), 150);
  EXPECT_DOUBLE_EQ(BytesPerDevice(CollectiveKind::kAllToAll, 100, 4), 75);
  EXPECT_DOUBLE_EQ(BytesPerDevice(CollectiveKind::kBroadcast, 100, 4), 75);
}

constexpr CollectiveKind kKinds[] = {CollectiveKind::kBroadcast, CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce,
                                     CollectiveKind::kAllToAll};
constexpr CollectiveAlgorithm kAlgorithms[] = {CollectiveAlgorithm::kRing,
                                               CollectiveAlgorithm::kRecursive,
                                               CollectiveAlgorithm::kHierarchical};

GroupShape Shape(int64_t hosts, int64_t per_host) {
  GroupShape group;
  group.hosts = hosts;
  group.members_per_host = per_host;
  group.members = hosts * per_host;
  group.within = {1, 0.001};
  group.between = {10, 0.01};
  return group;
}

TEST(CostOfCollective, FollowsTheFormulasOnOneHost) {
  const GroupShape group = Shape(1, 8);
  const auto ring = [&](CollectiveKind kind) {
    return CostOfCollective(kind, 8000, group, CollectiveAlgorithm::kRing).seconds;
  };
  EXPECT_DOUBLE_EQ(ring(CollectiveKind::kAllReduce), 14 + 14);
  EXPECT_DOUBLE_EQ(ring(CollectiveKind::kReduceScatter), 7 + 7);
  EXPECT_DOUBLE_EQ(ring(CollectiveKind::kAllGather), 7 + 56);
  EXPECT_DOUBLE_EQ(ring(CollectiveKind::kAllToAll), 7 + 7);
  EXPECT_DOUBLE_EQ(ring(CollectiveKind::kBroadcast), 7 + 8);
  const CollectiveCost best = CostOfCollective(CollectiveKind::kAllReduce, 8000, group);
  EXPECT_EQ(best.algorithm, CollectiveAlgorithm::kRecursive) << "fewer messages, as many bytes";
  EXPECT_DOUBLE_EQ(best.seconds, 6 + 14);
}

TEST(CostOfCollective, FollowsTheFormulasOverHosts) {
  const GroupShape group = Shape(3, 4);
  const auto cost = [&](CollectiveAlgorithm algorithm) {
    return CostOfCollective(CollectiveKind::kAllReduce, 12000, group, algorithm);
  };
  EXPECT_DOUBLE_EQ(cost(CollectiveAlgorithm::kRing).seconds, 22 * 10 + 22000 * 0.01);
  EXPECT_TRUE(std::isinf(cost(CollectiveAlgorithm::kRecursive).seconds)) << "three hosts";
  // (p-1) a + (p-1)/p n b + (h-1) A + (h-1)/h n/p B, twice.
  EXPECT_DOUBLE_EQ(cost(CollectiveAlgorithm::kHierarchical).seconds,
                   2 * (3 + 9000 * 0.001 + 2 * 10 + 2000 * 0.01));
  EXPECT_DOUBLE_EQ(cost(CollectiveAlgorithm::kHierarchical).bytes_between, 4000);
  EXPECT_EQ(CostOfCollective(CollectiveKind::kAllReduce, 12000, group).algorithm,
            CollectiveAlgorithm::kHierarchical);
}

TEST(CostOfCollective, CardsAreSharedByAllThatLeaveAHost) {
  GroupShape group = Shape(2, 4);
  group.nic_seconds_per_byte = 0.01;
  const auto hierarchical = [&] {
    return CostOfCollective(CollectiveKind::kReduceScatter, 8000, group,
                            CollectiveAlgorithm::kHierarchical);
  };
  EXPECT_DOUBLE_EQ(hierarchical().seconds, 3 + 6 + 10 + 1000 * 0.04) << "four flows share them";
  group.groups_per_host = 2;
  EXPECT_DOUBLE_EQ(hierarchical().seconds, 3 + 6 + 10 + 1000 * 0.08);
  const auto ring =
      CostOfCollective(CollectiveKind::kReduceScatter, 8000, group, CollectiveAlgorithm::kRing);
  EXPECT_DOUBLE_EQ(ring.seconds, 70 + 7000 * 0.02) << "one flow of each group";
}

TEST(CostOfCollective, MovesTheBytesOfThePerDeviceVolumes) {
  for (const auto& [hosts, per_host] : {std::pair{1, 8}, {4, 1}, {4, 2}, {3, 5}}) {
    const GroupShape group = Shape(hosts, per_host);
    for (const CollectiveKind kind :
         {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
      for (const CollectiveAlgorithm algorithm : kAlgorithms) {
        const CollectiveCost cost = CostOfCollective(kind, 1000, group, algorithm);
        EXPECT_NEAR(cost.bytes_within + cost.bytes_between,
                    BytesPerDevice(kind, 1000, group.members), 1e-6)
            << hosts << "x" << per_host << " " << CollectiveAlgorithmName(algorithm);
      }
    }
  }
}

TEST(CostOfCollective, TheCheapestIsNeverAboveOneOfThem) {
  for (const CollectiveKind kind : kKinds) {
    for (const auto& [hosts, per_host] : {std::pair{1, 1}, {1, 7}, {2, 8}, {8, 1}, {5, 3}}) {
      for (const double bytes : {0., 1., 1e4, 1e9}) {
        const GroupShape group = Shape(hosts, per_host);
        const CollectiveCost best = CostOfCollective(kind, bytes, group);
        EXPECT_TRUE(std::isfinite(best.seconds));
        for (const CollectiveAlgorithm algorithm : kAlgorithms) {
          EXPECT_LE(best.seconds, CostOfCollective(kind, bytes, group, algorithm).seconds);
        }
      }
    }
  }
  EXPECT_EQ(CostOfCollective(CollectiveKind::kAllReduce, 1e9, Shape(1, 1)).seconds, 0);
}

TEST(CostOfCollective, AnUnevenGroupTakesTheRing) {
  GroupShape group = Shape(2, 4);
  group.is_even = false;
  group.members = 5;
  const CollectiveCost cost = CostOfCollective(CollectiveKind::kAllReduce, 5000, group);
  EXPECT_EQ(cost.algorithm, CollectiveAlgorithm::kRing);
  EXPECT_DOUBLE_EQ(cost.seconds, 8 * 10 + 8000 * 0.01);
}

}  // namespace
}  // namespace meshwright::mesh
