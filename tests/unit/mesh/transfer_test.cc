#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "mesh/reshard.h"
#include "tests/unit/mesh/mesh_testing.h"

namespace meshwright::mesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::vector<Tile>> Plan(std::string_view from, const Mesh& from_mesh, std::string_view to,
                               const Mesh& to_mesh) {
  const TypedSharding source = Parse(from);
  return PlanTransfer(source.type, source.sharding, from_mesh, Parse(to).sharding, to_mesh);
}

std::vector<int64_t> Senders(const std::vector<Tile>& tiles) {
  std::vector<int64_t> senders;
  for (const Tile& tile : tiles) senders.push_back(tile.from_position);
  return senders;
}

TEST(PlanTransfer, EqualShardingsMoveWholeBlocks) {
  const Mesh source = MakeMesh({{"data", 2}});
  const Mesh destination = MakeMesh({{"data", 2}}, 2);
  const auto tiles = Plan("f32[8{data},4]", source, "f32[8{data},4]", destination);
  ASSERT_TRUE(tiles.has_value());
  ASSERT_EQ(tiles->size(), 2u);
  EXPECT_EQ((*tiles)[1], (Tile{1, 1, {{4, 0}, {4, 4}}, {{0, 0}, {4, 4}}, {{0, 0}, {4, 4}}}));
}

TEST(PlanTransfer, BoxesAreLocalToEitherSide) {
  const Mesh source = MakeMesh({{"tensor", 2}});
  const Mesh destination = MakeMesh({{"tensor", 2}}, 2);
  const auto tiles = Plan("f32[8{tensor},4]", source, "f32[8,4{tensor}]", destination);
  ASSERT_TRUE(tiles.has_value());
  ASSERT_EQ(tiles->size(), 4u);
  // Destination 1 holds columns 2:4; its second half comes from source 1, which holds rows 4:8.
  EXPECT_EQ((*tiles)[3], (Tile{1, 1, {{4, 2}, {4, 2}}, {{0, 2}, {4, 2}}, {{4, 0}, {4, 2}}}));
}

// The n-squared defect: with a replicated source, Alpa sends a tile once per pair of replicas.
TEST(PlanTransfer, AReplicatedSourceDoesNotDuplicateTiles) {
  const Mesh source = MakeMesh({{"data", 4}});
  const Mesh destination = MakeMesh({{"data", 4}}, 4);
  const auto split = Plan("f32[16]", source, "f32[16{data}]", destination);
  ASSERT_TRUE(split.has_value());
  EXPECT_THAT(Senders(*split), ElementsAre(0, 1, 2, 3));
  const auto whole = Plan("f32[16]", source, "f32[16]", destination);
  ASSERT_TRUE(whole.has_value());
  EXPECT_THAT(Senders(*whole), ElementsAre(0, 1, 2, 3));
  for (const Tile& tile : *whole) EXPECT_EQ(tile.global, (ir::Box{{0}, {16}}));
}

TEST(PlanTransfer, HoldersOfABlockShareItsReceivers) {
  // Two holders per block, four receivers per block: two each.
  const Mesh source = MakeMesh({{"data", 2}, {"tensor", 2}});
  const Mesh destination = MakeMesh({{"data", 4}, {"tensor", 2}}, 4);
  const auto tiles = Plan("f32[8{tensor}]", source, "f32[8{tensor}]", destination);
  ASSERT_TRUE(tiles.has_value());
  EXPECT_THAT(Senders(*tiles), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
}

TEST(PlanTransfer, MeshesMayDifferInEveryWay) {
  const Mesh source = MakeMesh({{"tensor", 3}});
  const Mesh destination = MakeMesh({{"x", 2}, {"y", 2}}, 3);
  const auto tiles = Plan("f32[12{tensor}]", source, "f32[12{y,x}]", destination);
  ASSERT_TRUE(tiles.has_value());
  // Positions 0..3 hold 0:3, 6:9, 3:6, 9:12; the source's blocks are 0:4, 4:8, 8:12.
  ASSERT_EQ(tiles->size(), 6u);
  EXPECT_THAT(Senders(*tiles), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_EQ((*tiles)[2], (Tile{2, 1, {{8}, {1}}, {{0}, {1}}, {{2}, {1}}}));
}

TEST(PlanTransfer, ScalarsGoOncePerReceiver) {
  const auto tiles = Plan("f32[]", MakeMesh({{"data", 2}}), "f32[]", MakeMesh({{"data", 3}}, 2));
  ASSERT_TRUE(tiles.has_value());
  EXPECT_THAT(Senders(*tiles), ElementsAre(0, 1, 0));
}

TEST(PlanTransfer, NothingToMoveIsNoTile) {
  const auto tiles = Plan("f32[0,4]", MakeMesh({{"data", 2}}), "f32[0,4]", MakeMesh({{"data", 2}}));
  ASSERT_TRUE(tiles.has_value());
  EXPECT_TRUE(tiles->empty());
}

TEST(PlanTransfer, PartialValuesAreReducedFirst) {
  const Mesh mesh = MakeMesh({{"data", 2}});
  const auto from = Plan("f32[4] partial(sum: data)", mesh, "f32[4]", mesh);
  ASSERT_FALSE(from.has_value());
  EXPECT_EQ(from.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(from.error().message(), HasSubstr("source f32[4] partial(sum: data) is partial"));
  EXPECT_FALSE(Plan("f32[4]", mesh, "f32[4] partial(sum: data)", mesh).has_value());
}

}  // namespace
}  // namespace meshwright::mesh
