#include "mesh/reshard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/mesh/mesh_testing.h"

namespace meshwright::mesh {
namespace {

using ::testing::HasSubstr;

constexpr ReshardCostModel kBytesOnly{.alpha_s = 0, .seconds_per_byte = 1};

Result<ReshardPath> Find(std::string_view from, std::string_view to, const Mesh& mesh,
                         const ReshardCostModel& model = {}) {
  const TypedSharding source = Parse(from);
  return FindReshardPath(source.type, source.sharding, Parse(to).sharding, mesh, model);
}

std::string Text(const ReshardPath& path) {
  static constexpr const char* kNames[] = {"slice", "all_gather", "reduce_scatter", "all_reduce",
                                           "all_to_all"};
  std::string text;
  for (const ReshardStep& step : path.steps) {
    if (!text.empty()) text += "; ";
    text += kNames[static_cast<size_t>(step.kind)];
    for (const std::string& axis : step.axes) text += " " + axis;
    if (step.from_dim >= 0) text += " from " + std::to_string(step.from_dim);
    if (step.dim >= 0) text += " dim " + std::to_string(step.dim);
  }
  return text;
}

std::string PathText(std::string_view from, std::string_view to, const Mesh& mesh,
                     const ReshardCostModel& model = {}) {
  const Result<ReshardPath> path = Find(from, to, mesh, model);
  return path.has_value() ? Text(*path) : path.error().message();
}

double ReceivedShare(std::string_view from, std::string_view to, const Mesh& mesh) {
  const Result<ReshardPath> path = Find(from, to, mesh, kBytesOnly);
  EXPECT_TRUE(path.has_value());
  return path->bytes_per_device / static_cast<double>(Parse(from).type.bytes());
}

TEST(FindReshardPath, EqualShardingsNeedNothing) {
  const Mesh mesh = MakeMesh({{"a", 2}, {"b", 2}});
  const Result<ReshardPath> path = Find("f32[8{a},8]", "f32[8{a},8]", mesh);
  ASSERT_TRUE(path.has_value());
  EXPECT_TRUE(path->steps.empty());
  EXPECT_EQ(path->cost, 0);
}

TEST(FindReshardPath, SlicesBeforeItGathers) {
  const Mesh mesh = MakeMesh({{"m0", 2}, {"m1", 2}});
  EXPECT_DOUBLE_EQ(ReceivedShare("f32[64,64{m0}]", "f32[64{m1},64]", mesh), 0.25);
  EXPECT_EQ(PathText("f32[64,64{m0}]", "f32[64{m1},64]", mesh, kBytesOnly),
            "slice m1 dim 0; all_gather m0 dim 1");
}

TEST(FindReshardPath, SliceFirstGoldenOnAWideMesh) {
  const Mesh mesh = MakeMesh({{"m0", 2}, {"m1", 8}});
  EXPECT_DOUBLE_EQ(ReceivedShare("f32[16,16,16{m0}]", "f32[16,16{m1},16]", mesh), 0.0625);
}

TEST(FindReshardPath, MovesASplitBetweenDimsByAllToAll) {
  const Mesh mesh = MakeMesh({{"m0", 2}, {"m1", 4}});
  EXPECT_EQ(PathText("f32[64{m1},64]", "f32[64,64{m1}]", mesh), "all_to_all m1 from 0 dim 1");
  EXPECT_DOUBLE_EQ(ReceivedShare("f32[64{m1},64]", "f32[64,64{m1}]", mesh), 0.75 / 4);
}

TEST(FindReshardPath, ReducesSeveralPartialAxesInOneStep) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 2}});
  const Result<ReshardPath> path =
      Find("f32[64] partial(sum: data, tensor)", "f32[64]", mesh, kBytesOnly);
  ASSERT_TRUE(path.has_value());
  EXPECT_EQ(Text(*path), "all_reduce data tensor");
  EXPECT_DOUBLE_EQ(path->bytes_per_device, 2.0 * 3 / 4 * 256);
  EXPECT_EQ(path->steps[0].partial, ir::PartialKind::kSum);
}

TEST(FindReshardPath, SumsOfOtherDevicesAreScattered) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 4}});
  EXPECT_EQ(PathText("f32[8{data},64,16] partial(sum: tensor)", "f32[8{data},64{tensor},16]", mesh),
            "reduce_scatter tensor dim 1");
  EXPECT_EQ(PathText("f32[8{data},64,16] partial(sum: tensor)", "f32[8{data},64,16]", mesh),
            "all_reduce tensor");
}

TEST(FindReshardPath, MaximaAndLogSumExpsAreOnlyAllReduced) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 4}});
  EXPECT_EQ(PathText("f32[8,4] partial(lse: tensor)", "f32[8{tensor},4]", mesh),
            "all_reduce tensor; slice tensor dim 0");
  EXPECT_EQ(PathText("f32[8,4] partial(max: tensor)", "f32[8,4]", mesh), "all_reduce tensor");
}

TEST(FindReshardPath, ATargetMayStayPartial) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 4}});
  EXPECT_EQ(PathText("f32[8,4] partial(sum: data, tensor)", "f32[8,4] partial(sum: data)", mesh),
            "all_reduce tensor");
}

TEST(FindReshardPath, GathersAdjacentAxesTogether) {
  const Mesh mesh = MakeMesh({{"a", 2}, {"b", 2}});
  EXPECT_EQ(PathText("f32[8{a,b}]", "f32[8]", mesh), "all_gather a b dim 0");
  EXPECT_EQ(PathText("f32[8]", "f32[8{b,a}]", mesh), "slice b a dim 0");
}

TEST(FindReshardPath, AxesOfSizeOneCarryNothing) {
  const Mesh mesh = MakeMesh({{"data", 1}, {"tensor", 2}});
  EXPECT_EQ(PathText("f32[8{data}] partial(sum: tensor)", "f32[8] partial(sum: data)", mesh),
            "all_reduce tensor");
  EXPECT_EQ(PathText("f32[8{data}]", "f32[8]", mesh), "");
}

TEST(FindReshardPath, AWholeValueIsASumOfItAndZeros) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 2}});
  const Result<ReshardPath> free = Find("f32[8]", "f32[8] partial(sum: tensor)", mesh);
  ASSERT_TRUE(free.has_value()) << free.error();
  ASSERT_EQ(free->steps.size(), 1u);
  EXPECT_EQ(free->steps[0].kind, StepKind::kMakePartial);
  EXPECT_EQ(free->steps[0].axes, (AxisList{"tensor"}));
  EXPECT_EQ(free->bytes_per_device, 0);
  EXPECT_EQ(free->cost, 0);
  const Result<ReshardPath> path = Find("f32[8{data}]", "f32[8] partial(sum: tensor)", mesh);
  const Result<ReshardPath> gather = Find("f32[8{data}]", "f32[8]", mesh);
  ASSERT_TRUE(path.has_value()) << path.error();
  ASSERT_EQ(path->steps.size(), 2u);
  EXPECT_EQ(path->steps[0].kind, StepKind::kAllGather);
  EXPECT_EQ(path->cost, gather->cost);
}

TEST(FindReshardPath, NothingMakesAValueAMaximumOrChangesTheKind) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 2}});
  const Result<ReshardPath> path = Find("f32[8{data}]", "f32[8] partial(max: tensor)", mesh);
  ASSERT_FALSE(path.has_value());
  EXPECT_EQ(path.error().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(path.error().message(), HasSubstr("f32[8{data}] -> f32[8] partial(max: tensor)"));
  const Result<ReshardPath> kind =
      Find("f32[8] partial(max: tensor)", "f32[8] partial(sum: tensor)", mesh);
  ASSERT_FALSE(kind.has_value());
  EXPECT_EQ(kind.error().code(), StatusCode::kUnimplemented);
}

TEST(FindReshardPath, RejectsShardingsThatAreNotValid) {
  const Mesh mesh = MakeMesh({{"data", 2}});
  EXPECT_EQ(Find("f32[7{data}]", "f32[7]", mesh).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Find("f32[7]", "f32[7{data}]", mesh).error().code(), StatusCode::kInvalidArgument);
}

TEST(FindReshardPath, ModelsDoNotShareAnswers) {
  const Mesh mesh = MakeMesh({{"a", 2}, {"b", 2}});
  const Result<ReshardPath> bytes = Find("f32[8{a}]", "f32[8]", mesh, kBytesOnly);
  const Result<ReshardPath> calls = Find("f32[8{a}]", "f32[8]", mesh, {1, 0});
  EXPECT_DOUBLE_EQ(bytes->cost, 16);
  EXPECT_DOUBLE_EQ(calls->cost, 1);
}

TEST(FindReshardPath, ThreadsMayAskTogether) {
  const Mesh mesh = MakeMesh({{"a", 2}, {"b", 4}, {"c", 2}});
  const std::string want = PathText("f32[32{a,b},32,32{c}]", "f32[32{c},32{b},32{a}]", mesh);
  std::vector<std::string> got(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < got.size(); ++t) {
    threads.emplace_back([&, t] {
      // Own cost models as well, so that some answers are searched and some remembered.
      for (int i = 0; i < 4; ++i) {
        Find("f32[32{a,b},32,32{c}]", "f32[32{c},32{b},32{a}]", mesh, {1.0 + i, 1});
      }
      got[t] = PathText("f32[32{a,b},32,32{c}]", "f32[32{c},32{b},32{a}]", mesh);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : got) EXPECT_EQ(text, want);
}

}  // namespace
}  // namespace meshwright::mesh
