#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/plan_text.h"

namespace meshwright::planner {
namespace {

using ::testing::ElementsAre;

ParamInfo RowParam(std::string name, std::vector<int> stages, int64_t rows = 8) {
  ParamInfo param;
  param.name = std::move(name);
  param.type = {ir::DType::kF32, {rows}};
  param.sharding = mesh::Sharding::Replicated(1);
  param.stages = std::move(stages);
  return param;
}

TEST(ParamRows, EqualLayersAndPartsOfOneNameAreOneRow) {
  Plan plan;
  plan.params = {RowParam("wte.weight", {0, 1})};
  for (int layer = 0; layer < 4; ++layer) {
    const std::string h = "h." + std::to_string(layer);
    plan.params.push_back(RowParam(h + ".ln.weight", {layer / 2}));
    plan.params.push_back(RowParam(h + ".ln.bias", {layer / 2}));
    plan.params.push_back(RowParam(h + ".fc.weight", {layer / 2}, layer == 2 ? 16 : 32));
  }
  EXPECT_THAT(FoldedParamRows(plan),
              ElementsAre(ParamRow{"wte.weight", "0-1", "f32[8]"},
                          ParamRow{"h.{0-3}.ln.{weight,bias}", "0-1", "f32[8]"},
                          ParamRow{"h.{0-1,3}.fc.weight", "0-1", "f32[32]"},
                          ParamRow{"h.2.fc.weight", "1", "f32[16]"}));
  EXPECT_EQ(ParamRows(plan).size(), 13u);
  EXPECT_EQ(ParamRows(plan)[0].stages, "0,1") << "owner first";
}

TEST(ParamRows, NamesWithoutLayersOrPartsStay) {
  Plan plan;
  plan.params = {RowParam("a", {0}), RowParam("b", {0}), RowParam("0.weight", {0}),
                 RowParam("1.weight", {0})};
  EXPECT_THAT(FoldedParamRows(plan),
              ElementsAre(ParamRow{"a", "0", "f32[8]"}, ParamRow{"b", "0", "f32[8]"},
                          ParamRow{"{0-1}.weight", "0", "f32[8]"}));
}

}  // namespace
}  // namespace meshwright::planner
