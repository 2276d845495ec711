// Groups of replicas as axes of the mesh.
#include "planner/zero_levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/resolve_layout.h"

namespace meshwright::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Layout LayoutWith(int64_t data, int64_t zero, ZeroGroups groups) {
  Layout layout;
  layout.degrees[Axis::kData] = data;
  layout.zero = zero;
  layout.zero_groups = groups;
  return layout;
}

std::vector<std::string> AxesOf(const Layout& layout) {
  std::vector<std::string> axes;
  for (const ir::MeshAxis& axis : DataAxes(layout, layout.degrees[Axis::kData])) {
    axes.push_back(axis.name + "=" + std::to_string(axis.size));
  }
  return axes;
}

TEST(ZeroLevels, OneGroupOfAllIsOneAxis) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    const Layout layout = LayoutWith(8, zero, {});
    EXPECT_THAT(AxesOf(layout), ElementsAre("data=8"));
    EXPECT_EQ(ZeroDegree(layout, ZeroKind::kOptimizer), zero >= 1 ? 8 : 1);
    EXPECT_EQ(ZeroDegree(layout, ZeroKind::kGradients), zero >= 2 ? 8 : 1);
    EXPECT_EQ(ZeroDegree(layout, ZeroKind::kWeights), zero >= 3 ? 8 : 1);
  }
  EXPECT_THAT(AxesOf(LayoutWith(1, 3, {})), ElementsAre("data=1"));
  EXPECT_THAT(ZeroAxes(LayoutWith(1, 3, {}), ZeroKind::kWeights), IsEmpty());
}

TEST(ZeroLevels, GroupsLieInOneAnother) {
  const Layout layout = LayoutWith(16, 3, {8, 4, 2});
  EXPECT_THAT(AxesOf(layout), ElementsAre("data=2", "data2=2", "data3=2", "data4=2"));
  EXPECT_THAT(ZeroAxes(layout, ZeroKind::kOptimizer), ElementsAre("data4", "data3", "data2"));
  EXPECT_THAT(ZeroAxes(layout, ZeroKind::kGradients), ElementsAre("data4", "data3"));
  EXPECT_THAT(ZeroAxes(layout, ZeroKind::kWeights), ElementsAre("data4"));
  // What is left open is as wide as the kind before.
  EXPECT_THAT(AxesOf(LayoutWith(16, 3, {4, 0, 0})), ElementsAre("data=4", "data2=4"));
  EXPECT_EQ(ZeroDegree(LayoutWith(16, 3, {4, 0, 0}), ZeroKind::kWeights), 4);
  EXPECT_THAT(AxesOf(LayoutWith(16, 3, {0, 0, 4})), ElementsAre("data=4", "data2=4"));
  // A group of one holds all of it.
  EXPECT_EQ(ZeroDegree(LayoutWith(16, 3, {8, 4, 1}), ZeroKind::kWeights), 1);
}

// What the stage does not split has no group.
TEST(ZeroLevels, AxesAreThoseOfTheStage) {
  EXPECT_THAT(AxesOf(LayoutWith(16, 0, {8, 4, 2})), ElementsAre("data=16"));
  EXPECT_THAT(AxesOf(LayoutWith(16, 1, {8, 4, 2})), ElementsAre("data=2", "data2=8"));
  EXPECT_THAT(AxesOf(LayoutWith(16, 2, {8, 4, 2})), ElementsAre("data=2", "data2=2", "data3=4"));
}

TEST(ZeroLevels, AKindIsSplitByThePrefixOfItsAxes) {
  const Layout layout = LayoutWith(16, 3, {8, 4, 2});
  mesh::Sharding state{{{"tensor"}, {"data4", "data3", "data2"}}, {}};
  EXPECT_EQ(AsOfKind(state, layout, ZeroKind::kOptimizer), state);
  EXPECT_THAT(AsOfKind(state, layout, ZeroKind::kGradients).dims[1], ElementsAre("data4", "data3"));
  EXPECT_THAT(AsOfKind(state, layout, ZeroKind::kWeights).dims[1], ElementsAre("data4"));
  EXPECT_THAT(AsOfKind(state, layout, ZeroKind::kWeights).dims[0], ElementsAre("tensor"));
  const Layout first = LayoutWith(4, 1, {});
  EXPECT_THAT(AsOfKind({{{"data"}}, {}}, first, ZeroKind::kWeights).dims[0], IsEmpty());
}

std::string Refusal(const ir::ParallelSpec& pins) {
  const auto groups = ZeroGroupsOf(pins);
  return groups.has_value() ? "" : groups.error().ToString();
}

TEST(ZeroLevels, PinsThatDoNotFitAreNamed) {
  ir::ParallelSpec pins;
  pins.zero_shard = 8;
  pins.zero_weights = 3;
  EXPECT_THAT(Refusal(pins), HasSubstr("does not divide the groups of 8 replicas that split the "
                                       "optimizer; choose one of {1, 2, 4, 8}"));
  pins.zero_weights = 2;
  EXPECT_EQ(Refusal(pins), "");
  pins.zero_gradients = 4;
  pins.zero_weights = 8;
  EXPECT_THAT(Refusal(pins), HasSubstr("that split the gradients"));
  pins.zero_weights = 0;
  pins.shardings = "search";
  EXPECT_THAT(Refusal(pins), HasSubstr("shardings by the rules"));
  EXPECT_THAT(CheckZeroGroups(LayoutWith(6, 1, {4, 0, 0})).ToString(),
              HasSubstr("does not divide the 6 replicas; choose one of {1, 2, 3, 6}"));
}

TEST(ZeroLevels, PinsOfALayoutAreItsGroups) {
  ir::ParallelSpec pins;
  PinDegrees(LayoutWith(16, 3, {8, 4, 2}), pins);
  EXPECT_EQ(ZeroGroupsOf(pins).value(), (ZeroGroups{8, 4, 2}));
  EXPECT_THAT(LayoutWith(16, 3, {8, 4, 2}).ToString(), HasSubstr("zero=3 groups=8/4/2"));
  EXPECT_THAT(LayoutWith(16, 2, {8, 4, 2}).ToString(), HasSubstr("zero=2 groups=8/4/0"));
  EXPECT_THAT(LayoutWith(16, 1, {0, 4, 2}).ToString(), Not(HasSubstr("groups")));
}

TEST(ZeroLevels, FewerReplicasHaveGroupsThatDivideThem) {
  ir::ParallelSpec pins;
  pins.zero_shard = 8;
  pins.zero_gradients = 0;
  pins.zero_weights = 2;
  ShrinkZeroGroups(6, pins);
  EXPECT_EQ(pins.zero_shard, 2);
  EXPECT_EQ(pins.zero_gradients, 0);
  EXPECT_EQ(pins.zero_weights, 2);
  ShrinkZeroGroups(3, pins);
  EXPECT_EQ(pins.zero_shard, 1);
  EXPECT_EQ(pins.zero_weights, 1);
}

}  // namespace
}  // namespace meshwright::planner
