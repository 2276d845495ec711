#include "controller/weights_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/file.h"
#include "ir/text.h"

namespace meshwright::controller {
namespace {

using ::testing::HasSubstr;

class WeightsSinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto graph = ir::ParseGraph(R"(graph "loss" {
      %0 = param {decay=0, export_name="w", init="zeros", name="w", std=0.0} : f32[4,8]
      output "w" %0
    })");
    ASSERT_TRUE(graph.has_value()) << graph.error();
    const auto loss = std::make_shared<const ir::Graph>(std::move(*graph));
    const Status opened = sink_.Open(kGen, dir_.File("model.safetensors"), loss);
    ASSERT_TRUE(opened.ok()) << opened;
  }

  static proto::WeightTile Tile(ir::Box box) {
    return {kGen, "w", ir::DType::kF32, std::move(box), {}};
  }

  static constexpr MeshGeneration kGen{3};
  TempDir dir_ = TempDir::Make().value();
  WeightsSink sink_;
};

TEST_F(WeightsSinkTest, KnowsHowManyBytesATileHasBeforeTheyCome) {
  EXPECT_EQ(sink_.ExpectedBytes(Tile({})).value(), 4 * 8 * 4);
  EXPECT_EQ(sink_.ExpectedBytes(Tile({{2, 0}, {2, 8}})).value(), 2 * 8 * 4);
}

TEST_F(WeightsSinkTest, RefusesAHeadThatNoFileWaitsFor) {
  proto::WeightTile other = Tile({});
  other.mesh_gen = MeshGeneration(4);
  EXPECT_EQ(sink_.ExpectedBytes(other).error().code(), StatusCode::kNotFound);
  other = Tile({});
  other.param = "v";
  EXPECT_EQ(sink_.ExpectedBytes(other).error().code(), StatusCode::kNotFound);
  other = Tile({});
  other.dtype = ir::DType::kF64;
  EXPECT_EQ(sink_.ExpectedBytes(other).error().code(), StatusCode::kInvalidArgument);
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const ir::Box& box : {ir::Box{{0}, {4}}, ir::Box{{0, 0}, {4, 9}}, ir::Box{{1, 0}, {4, 8}},
                             ir::Box{{-1, 0}, {4, 8}}, ir::Box{{0, 0}, {-4, 8}},
                             ir::Box{{kHuge, 0}, {4, 8}}, ir::Box{{0, 0}, {kHuge, kHuge}}}) {
    const auto bytes = sink_.ExpectedBytes(Tile(box));
    ASSERT_FALSE(bytes.has_value());
    EXPECT_EQ(bytes.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(bytes.error().message(), HasSubstr("'w'"));
  }
}

TEST_F(WeightsSinkTest, TakesTheBytesOfTheTileAndNoOthers) {
  proto::WeightTile tile = Tile({});
  tile.data.resize(100);
  EXPECT_EQ(sink_.Write(tile).code(), StatusCode::kInvalidArgument);
  tile.data.resize(128);
  EXPECT_TRUE(sink_.Write(tile).ok());
  EXPECT_TRUE(sink_.Finish(kGen).ok());
}

}  // namespace
}  // namespace meshwright::controller
