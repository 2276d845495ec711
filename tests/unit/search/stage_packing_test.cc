#include "search/stage_packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace meshwright::search {
namespace {

using Shapes = std::vector<SubmeshShape>;

TEST(PackSubmeshes, CountsOfDevicesAreNotEnough) {
  const std::vector<int> hosts = {8, 8};
  EXPECT_FALSE(PackSubmeshes(hosts, Shapes{{1, 5}, {1, 5}, {1, 5}}));
  EXPECT_TRUE(PackSubmeshes(hosts, Shapes{{1, 5}, {1, 5}, {1, 3}, {1, 3}}));
  EXPECT_FALSE(PackSubmeshes(hosts, Shapes{{2, 8}, {1, 1}}));
  EXPECT_FALSE(PackSubmeshes(hosts, Shapes{{1, 9}}));
}

TEST(PackSubmeshes, SeveralHostsAreWholeAndOfTheShapesSize) {
  const std::vector<int> hosts = {4, 8, 4, 8};
  const auto places = PackSubmeshes(hosts, Shapes{{1, 3}, {2, 8}, {1, 4}, {1, 1}});
  ASSERT_TRUE(places);
  EXPECT_THAT((*places)[1].hosts, testing::ElementsAre(1, 3));
  EXPECT_EQ((*places)[1].first_device, 0);
  EXPECT_NE((*places)[0].hosts, (*places)[2].hosts);
  EXPECT_EQ((*places)[3].hosts, (*places)[0].hosts);
  EXPECT_EQ((*places)[3].first_device, 3);
  EXPECT_FALSE(PackSubmeshes(hosts, Shapes{{3, 8}}));
  EXPECT_FALSE(PackSubmeshes(hosts, Shapes{{2, 6}}));
}

TEST(PackSubmeshes, FindsWhatTakingTheLargestFirstMisses) {
  // First fit and best fit decreasing put 6 and 4 together, and have no room for the last 3.
  const std::vector<int> hosts = {10, 10, 10};
  EXPECT_TRUE(
      PackSubmeshes(hosts, Shapes{{1, 6}, {1, 4}, {1, 4}, {1, 3}, {1, 3}, {1, 3}, {1, 3}, {1, 4}}));
}

TEST(PackSubmeshes, NothingFitsAnywhere) {
  EXPECT_TRUE(PackSubmeshes({}, {}));
  EXPECT_FALSE(PackSubmeshes({}, Shapes{{1, 1}}));
}

}  // namespace
}  // namespace meshwright::search
