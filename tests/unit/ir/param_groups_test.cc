// Frozen params: what differentiation, the update and the checks make of them, counted.
#include "ir/param_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/autodiff.h"
#include "ir/builder.h"
#include "ir/verify.h"

namespace meshwright::ir {
namespace {

using ::testing::HasSubstr;

// x [2, 3] -> a [3, 4] -> tanh -> b [4, 5] -> sum of squares.
Graph TwoProducts() {
  Builder b("two");
  const auto param = [&](const char* name, Dims dims) {
    return b.AddOne(
        Op::kParam, {},
        {{"name", std::string(name)}, {"init", std::string("ones")}, {"decay", int64_t{1}}},
        {TensorType{DType::kF32, std::move(dims)}});
  };
  const ValueId x =
      b.AddOne(Op::kFeed, {}, {{"source", std::string("x")}}, {TensorType{DType::kF32, {2, 3}}});
  const ValueId hidden =
      b.AddOne(Op::kTanh, {b.AddOne(Op::kEinsum, {x, param("first.weight", {3, 4})},
                                    {{"equation", std::string("bi,ij->bj")}})});
  const ValueId y = b.AddOne(Op::kEinsum, {hidden, param("second.weight", {4, 5})},
                             {{"equation", std::string("bj,jk->bk")}});
  const ValueId count =
      b.AddOne(Op::kConstant, {}, {{"value", 2.0}}, {TensorType{DType::kF32, {}}});
  b.SetOutput("loss_sum", b.AddOne(Op::kSumSquares, {y}));
  b.SetOutput("count", count);
  return *b.Finish();
}

size_t Backwards(const Graph& graph) {
  size_t count = 0;
  for (const Node& node : graph.nodes) count += node.phase == Phase::kBackward ? 1u : 0u;
  return count;
}

int64_t StateBytes(const Graph& step) {
  int64_t bytes = 0;
  for (const NodeId id : step.NodesOf(Op::kParam)) {
    const Node& node = step.node(id);
    if (node.attrs.Int("state") != 0) bytes += step.type(node.outputs[0]).bytes();
  }
  return bytes;
}

Result<Graph> StepOf(const Graph& loss, const std::vector<ParamGroup>& groups) {
  MW_ASSIGN_OR_RETURN(const Graph grouped, WithParamGroups(loss, groups));
  MW_ASSIGN_OR_RETURN(const Graph gradients, Differentiate(grouped));
  return AppendUpdate(gradients, OptimizerSpec());
}

std::set<std::string> OutputNames(const Graph& graph, std::string_view prefix) {
  std::set<std::string> names;
  for (const NamedValue& output : graph.outputs) {
    if (output.name.starts_with(prefix)) names.insert(output.name.substr(prefix.size()));
  }
  return names;
}

TEST(Frozen, FirstOfTwoHasNoGradientStateOrBackward) {
  const auto all = StepOf(TwoProducts(), {});
  const auto some = StepOf(TwoProducts(), {{.pattern = "first.*", .frozen = true}});
  ASSERT_TRUE(all && some) << some.error();
  EXPECT_EQ(OutputNames(*some, "grad/"), std::set<std::string>{"second.weight"});
  EXPECT_EQ(OutputNames(*some, "update/"),
            (std::set<std::string>{"second.weight", "opt.m/second.weight", "opt.v/second.weight"}));
  EXPECT_EQ(StateBytes(*all), 2 * 4 * (12 + 20));
  EXPECT_EQ(StateBytes(*some), 2 * 4 * 20);
  EXPECT_EQ(some->NodesOf(Op::kSumSquares).size(), 2u) << "the loss, and one gradient";
  // All: the product's two, tanh's, and the first one's. Some: one product.
  size_t products = 0;
  for (const Node& node : some->nodes) {
    products += node.phase == Phase::kBackward && node.op == Op::kEinsum ? 1u : 0u;
  }
  EXPECT_EQ(products, 1u);
  EXPECT_LT(Backwards(*some), Backwards(*all));
}

TEST(Frozen, LastOfTwoStillPassesGradients) {
  const auto some = StepOf(TwoProducts(), {{.pattern = "second.*", .frozen = true}});
  ASSERT_TRUE(some) << some.error();
  size_t products = 0;
  for (const Node& node : some->nodes) {
    products += node.phase == Phase::kBackward && node.op == Op::kEinsum ? 1u : 0u;
  }
  EXPECT_EQ(products, 2u) << "through the second, and of the first";
  EXPECT_EQ(StateBytes(*some), 2 * 4 * 12);
}

TEST(Frozen, EverythingIsAnErrorOfTheUpdate) {
  const auto none = StepOf(TwoProducts(), {{.pattern = "*", .frozen = true}});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message(), HasSubstr("no params to train"));
}

TEST(Frozen, OpsWithoutGradientMayStandBeforeWhatIsTrained) {
  Graph loss = TwoProducts();
  const auto frozen = WithParamGroups(loss, std::vector<ParamGroup>{{"first.*", true}});
  ASSERT_TRUE(frozen);
  EXPECT_TRUE(VerifyLossGraph(*frozen).ok());
}

TEST(ParamGroups, LaterOnesCountAndReachTheUpdate) {
  const std::vector<ParamGroup> groups = {{.pattern = "*", .lr_factor = 2, .weight_decay = 0.5},
                                          {.pattern = "first.*", .lr_factor = 0.5}};
  const auto step = StepOf(TwoProducts(), groups);
  ASSERT_TRUE(step) << step.error();
  for (const NodeId id : step->NodesOf(Op::kAdamW)) {
    const Node& node = step->node(id);
    const std::string name = step->producer(node.inputs[0]).attrs.Str("name");
    const double lr = step->producer(node.inputs[5]).attrs.Real("lr");
    EXPECT_EQ(node.attrs.Real("weight_decay"), 0.5);
    EXPECT_DOUBLE_EQ(lr, OptimizerSpec().lr * (name == "first.weight" ? 0.5 : 2));
  }
}

TEST(ParamGroups, WithoutSettingsTheStepIsWhatItWas) {
  const auto plain = StepOf(TwoProducts(), {});
  const auto grouped = StepOf(TwoProducts(), {{.pattern = "*", .frozen = false}});
  ASSERT_TRUE(plain && grouped);
  EXPECT_EQ(plain->nodes.size(), grouped->nodes.size());
  EXPECT_EQ(plain->NodesOf(Op::kLearningRate).size(), 1u);
}

TEST(ParamGroups, AnUnknownPatternNamesAParam) {
  const auto none = WithParamGroups(TwoProducts(), std::vector<ParamGroup>{{"third.*", true}});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message(), HasSubstr("no param of the model fits 'third.*'"));
  EXPECT_THAT(none.error().message(), HasSubstr("second.weight"));
}

TEST(ParamGroups, TextsAreRead) {
  const auto group = ParseParamGroup(" *.bias : lr_factor = 2.5, weight_decay=0 ");
  ASSERT_TRUE(group) << group.error();
  EXPECT_EQ(*group, (ParamGroup{.pattern = "*.bias", .lr_factor = 2.5, .weight_decay = 0}));
  for (const char* bad : {"*.bias", ": lr_factor=1", "a: lr=1", "a: lr_factor", "a: lr_factor=x",
                          "a: lr_factor=1e999"}) {
    const auto refused = ParseParamGroup(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_THAT(refused.error().message(), HasSubstr(bad));
  }
}

}  // namespace
}  // namespace meshwright::ir
