#include "mesh/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/mesh/mesh_testing.h"

namespace meshwright::mesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Values(const std::vector<DeviceIndex>& devices) {
  std::vector<int32_t> values;
  for (DeviceIndex device : devices) values.push_back(device.value());
  return values;
}

Status Validate(std::string_view text, const Mesh& mesh) {
  const TypedSharding parsed = Parse(text);
  return ValidateSharding(parsed.type, parsed.sharding, mesh);
}

std::string ParseError(std::string_view text) {
  const Result<TypedSharding> parsed = ParseSharding(text);
  return parsed.has_value() ? "parsed" : parsed.error().message();
}

TEST(Mesh, PositionsAreRowMajorWithTheFirstAxisMajor) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"pipe", 3}, {"tensor", 4}});
  EXPECT_EQ(mesh.device_count(), 24);
  EXPECT_THAT(mesh.CoordsOf(0), ElementsAre(0, 0, 0));
  EXPECT_THAT(mesh.CoordsOf(5), ElementsAre(0, 1, 1));
  EXPECT_THAT(mesh.CoordsOf(23), ElementsAre(1, 2, 3));
}

TEST(Mesh, UnknownAxesHaveSizeOne) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 4}});
  EXPECT_EQ(mesh.AxisSize("tensor"), 4);
  EXPECT_EQ(mesh.AxisSize("expert"), 1);
  EXPECT_EQ(mesh.SizeOf({"tensor", "data"}), 8);
  EXPECT_EQ(mesh.SizeOf({}), 1);
}

TEST(Mesh, GroupsDifferOnlyInTheNamedAxesMajorFirst) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 3}}, /*first_device=*/10);
  EXPECT_THAT(Values(mesh.GroupOf(4, {"tensor"})), ElementsAre(13, 14, 15));
  EXPECT_THAT(Values(mesh.GroupOf(4, {"data"})), ElementsAre(11, 14));
  EXPECT_THAT(Values(mesh.GroupOf(4, {"data", "tensor"})), ElementsAre(10, 11, 12, 13, 14, 15));
  EXPECT_THAT(Values(mesh.GroupOf(4, {"tensor", "data"})), ElementsAre(10, 13, 11, 14, 12, 15));
  EXPECT_THAT(Values(mesh.GroupOf(4, {})), ElementsAre(14));
  EXPECT_THAT(Values(mesh.GroupOf(4, {"expert"})), ElementsAre(14));
}

TEST(Sharding, KnowsWhichAxesItUses) {
  const Sharding sharding = Parse("f32[8{data},4] partial(max: tensor)").sharding;
  EXPECT_TRUE(sharding.UsesAxis("data"));
  EXPECT_TRUE(sharding.UsesAxis("tensor"));
  EXPECT_FALSE(sharding.UsesAxis("pipe"));
}

TEST(ShardingText, CanonicalFormsReadBackAsTheyAre) {
  for (const std::string text :
       {"f32[32{data},128,4096{tensor}] partial(sum: pipe)", "f32[]", "i32[8{a,b},4]",
        "bf16[8{b,a}]", "f64[] partial(sum: data, tensor)",
        "f32[4] partial(sum: a, c; max: b; lse: d)", "f32[0]"}) {
    const TypedSharding parsed = Parse(text);
    EXPECT_EQ(FormatSharding(parsed.type, parsed.sharding), text);
  }
}

TEST(ShardingText, SpacesBetweenTokensAreFree) {
  const TypedSharding parsed = Parse(" f32 [ 8 , 16 { data , tensor } ]  partial( sum :pipe ) ");
  EXPECT_EQ(FormatSharding(parsed.type, parsed.sharding),
            "f32[8,16{data,tensor}] partial(sum: pipe)");
}

TEST(ShardingText, ErrorsNameTheColumnAndWhatWasExpected) {
  EXPECT_THAT(ParseError("f32[8,16{tensor}"), HasSubstr("column 17: expected ']', found the end"));
  EXPECT_THAT(ParseError("f32[8,x]"), HasSubstr("column 7: expected a size, found 'x]'"));
  EXPECT_THAT(ParseError("f32[8{}]"), HasSubstr("column 7: expected an axis name"));
  EXPECT_THAT(ParseError("f32[8] replicated"), HasSubstr("column 8: expected partial(...)"));
  EXPECT_THAT(ParseError("f32[8] partial(avg: a)"),
              HasSubstr("column 16: expected sum, max or lse"));
  EXPECT_THAT(ParseError("f32[8] partial(sum: a) x"), HasSubstr("expected the end"));
  EXPECT_THAT(ParseError("f32[8] partial(sum: a; max: a)"), HasSubstr("names axis a twice"));
  EXPECT_THAT(ParseError(""), HasSubstr("expected an element type"));
  EXPECT_THAT(ParseError("f31[8]"), HasSubstr("f31"));
  EXPECT_THAT(ParseError("f32[99999999999999999999]"), HasSubstr("expected a size"));
}

TEST(ValidateSharding, AcceptsAxesThatDivideTheirDims) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 4}});
  EXPECT_EQ(Validate("f32[8{data,tensor},3]", mesh), OkStatus());
  EXPECT_EQ(Validate("f32[] partial(sum: data, tensor)", mesh), OkStatus());
}

TEST(ValidateSharding, SaysWhichSizesWouldDivide) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 3}});
  const Status status = Validate("f32[8,16{tensor}]", mesh);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "sharding f32[8,16{tensor}] over mesh data=2 tensor=3: axis tensor=3 does not divide "
            "dim 1 of size 16; pad it or choose tensor in {1, 2, 4, 8, 16}");
  EXPECT_THAT(Validate("f32[16{data,tensor}]", mesh).message(),
              HasSubstr("axis tensor=3 does not divide the 8 left of dim 0 of size 16; pad it or "
                        "choose tensor in {1, 2, 4, 8}"));
}

TEST(ValidateSharding, RejectsUnknownRepeatedAndMisfittingAxes) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 4}});
  EXPECT_THAT(Validate("f32[8{expert}]", mesh).message(),
              HasSubstr("dim 0 names axis expert, which the mesh does not have"));
  EXPECT_THAT(Validate("f32[8{data},8{data}]", mesh).message(),
              HasSubstr("axis data is used by dim 0 and again by dim 1"));
  EXPECT_THAT(Validate("f32[8{data}] partial(sum: data)", mesh).message(),
              HasSubstr("axis data is used by dim 0 and again by partial"));
  const Status rank = ValidateSharding({ir::DType::kF32, {8, 8}}, Sharding::Replicated(1), mesh);
  EXPECT_THAT(rank.message(), HasSubstr("it describes 1 dims, the tensor has 2"));
}

TEST(ValidateSharding, RejectsSumsAndMaximaTogether) {
  const Mesh mesh = MakeMesh({{"data", 2}, {"tensor", 4}});
  EXPECT_THAT(Validate("f32[8] partial(sum: data; max: tensor)", mesh).message(),
              HasSubstr("partial mixes kinds"));
}

TEST(ValidateSharding, RejectsMeshesThatAreNone) {
  EXPECT_THAT(Validate("f32[8]", Mesh{{{"data", 0}}, {}}).message(), HasSubstr("size 0"));
  EXPECT_THAT(Validate("f32[8]", Mesh{{{"a", 2}, {"a", 2}}, {}}).message(),
              HasSubstr("axis a is listed twice"));
}

TEST(LocalBox, OrderOfAxesInADimDecidesWhoHoldsWhat) {
  const Mesh mesh = MakeMesh({{"a", 2}, {"b", 3}});
  const TypedSharding ab = Parse("f32[12{a,b},5]");
  const TypedSharding ba = Parse("f32[12{b,a},5]");
  EXPECT_THAT(LocalDims(ab.type.dims, ab.sharding, mesh), ElementsAre(2, 5));
  // Position 4 is a=1, b=1.
  EXPECT_EQ(LocalBox(ab.type.dims, ab.sharding, mesh, 4), (ir::Box{{8, 0}, {2, 5}}));
  EXPECT_EQ(LocalBox(ba.type.dims, ba.sharding, mesh, 4), (ir::Box{{6, 0}, {2, 5}}));
}

}  // namespace
}  // namespace meshwright::mesh
