#include "search/node_strategies.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ir/builder.h"

namespace meshwright::search {
namespace {

using ir::Op;
using mesh::Sharding;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

ir::TensorType F32(ir::Dims dims) { return {ir::DType::kF32, std::move(dims)}; }

ValueId Input(ir::Builder& b, const std::string& name, ir::TensorType type) {
  return b.AddOne(Op::kInput, {}, {{"name", name}}, {std::move(type)});
}

StrategySpace Space(std::vector<ir::MeshAxis> axes) {
  StrategySpace space;
  for (const ir::MeshAxis& axis : axes) space.axes.push_back(axis.name);
  space.mesh.axes = std::move(axes);
  return space;
}

planner::NodeStrategy Whole(const ir::Graph& graph, const ir::Node& node) {
  planner::NodeStrategy base;
  for (ValueId v : node.inputs) base.operands.push_back(Sharding::Replicated(graph.type(v).rank()));
  for (ValueId v : node.outputs) base.results.push_back(Sharding::Replicated(graph.type(v).rank()));
  return base;
}

// "[t,-] [-,-] -> [t,-]+d": axes per dim of operands and results, by first letter; + sums.
std::string Short(const planner::NodeStrategy& strategy) {
  const auto text = [](const Sharding& sharding) {
    std::string dims;
    for (const mesh::AxisList& axes : sharding.dims) {
      dims += dims.empty() ? "" : ",";
      for (const std::string& axis : axes) dims += axis[0];
      if (axes.empty()) dims += "-";
    }
    dims = "[" + dims + "]";
    for (const auto& [axis, kind] : sharding.partial) dims += fmt::format("+{}", axis[0]);
    return dims;
  };
  std::string out;
  for (const Sharding& operand : strategy.operands) out += text(operand) + " ";
  out += "->";
  for (const Sharding& result : strategy.results) out += " " + text(result);
  if (strategy.expansion == planner::Expansion::kSplitWidth) return out + " width";
  return strategy.expansion == planner::Expansion::kSplitVocabulary ? out + " vocabulary" : out;
}

std::vector<std::string> StrategiesOf(const ir::Builder& b, const StrategySpace& space) {
  EXPECT_TRUE(b.status().ok()) << b.status();
  const ir::Node& node = b.graph().nodes.back();
  std::vector<std::string> out;
  for (const auto& s : NodeStrategies(b.graph(), node, Whole(b.graph(), node), space)) {
    out.push_back(Short(s));
  }
  return out;
}

TEST(NodeStrategies, ADotIsSplitByRowsColumnsOrTheContraction) {
  ir::Builder b("g");
  b.Add(Op::kEinsum, {Input(b, "x", F32({8, 6})), Input(b, "w", F32({6, 4}))},
        {{"equation", std::string("mk,kn->mn")}});
  EXPECT_THAT(StrategiesOf(b, Space({{"t", 2}})),
              ElementsAre("[-,-] [-,-] -> [-,-]", "[t,-] [-,-] -> [t,-]", "[-,t] [t,-] -> [-,-]+t",
                          "[-,-] [-,t] -> [-,t]"));
  // Three do not divide the rows or columns.
  EXPECT_THAT(StrategiesOf(b, Space({{"t", 3}})),
              ElementsAre("[-,-] [-,-] -> [-,-]", "[-,t] [t,-] -> [-,-]+t"));
}

TEST(NodeStrategies, TwoAxesShareAFactorWhileItDivides) {
  ir::Builder b("g");
  b.Add(Op::kEinsum, {Input(b, "x", F32({8, 6})), Input(b, "w", F32({6, 2}))},
        {{"equation", std::string("mk,kn->mn")}});
  const auto all = StrategiesOf(b, Space({{"a", 2}, {"b", 2}}));
  EXPECT_THAT(all, Contains("[ab,-] [-,-] -> [ab,-]"));
  EXPECT_THAT(all, Contains("[a,b] [b,-] -> [a,-]+b"));
  EXPECT_THAT(all, Not(Contains("[-,ab] [ab,-] -> [-,-]+a+b")));
  EXPECT_EQ(all.size(), 16u - 2u);  // neither k nor n takes both
}

TEST(NodeStrategies, LinearOpsPassSumsOnAndOthersDoNot) {
  ir::Builder b("g");
  const ValueId x = Input(b, "x", F32({4}));
  b.AddOne(Op::kScale, {x}, {{"factor", 2.0}});
  const StrategySpace space = Space({{"t", 2}});
  EXPECT_THAT(StrategiesOf(b, space), ElementsAre("[-] -> [-]", "[t] -> [t]", "[-]+t -> [-]+t"));
  b.AddOne(Op::kGelu, {x});
  EXPECT_THAT(StrategiesOf(b, space), ElementsAre("[-] -> [-]", "[t] -> [t]"));
  b.AddOne(Op::kAdd, {x, Input(b, "y", F32({4}))});
  EXPECT_THAT(StrategiesOf(b, space),
              ElementsAre("[-] [-] -> [-]", "[t] [t] -> [t]", "[-]+t [-]+t -> [-]+t"));
}

TEST(NodeStrategies, WhatIsNeededWholeStaysWhole) {
  ir::Builder b("g");
  b.AddOne(Op::kSoftmax, {Input(b, "x", F32({4, 8}))});
  EXPECT_THAT(StrategiesOf(b, Space({{"t", 2}})), ElementsAre("[-,-] -> [-,-]", "[t,-] -> [t,-]"));
}

TEST(NodeStrategies, AScalarIsWholeWhereItsCopiesAreSplit) {
  ir::Builder b("g");
  b.AddOne(Op::kBroadcast, {Input(b, "x", F32({}))}, {{"dims", std::vector<int64_t>{0}}},
           {F32({4})});
  EXPECT_THAT(StrategiesOf(b, Space({{"t", 2}})),
              ElementsAre("[] -> [-]", "[] -> [t]", "[]+t -> [-]+t"));
}

TEST(NodeStrategies, TheWidthOfANormIsSplitByAnExpansion) {
  ir::Builder b("g");
  b.Add(Op::kLayerNorm,
        {Input(b, "x", F32({4, 8})), Input(b, "w", F32({8})), Input(b, "b", F32({8}))},
        {{"eps", 1e-5}});
  EXPECT_THAT(StrategiesOf(b, Space({{"t", 2}})),
              ElementsAre("[-,-] [-] [-] -> [-,-] [-] [-]", "[t,-] [-] [-] -> [t,-] [t] [t]",
                          "[-,t] [t] [t] -> [-,t] [-] [-] width"));
}

TEST(NodeStrategies, AMinorFactorOfAReshapeIsNotSplit) {
  ir::Builder b("g");
  b.Add(Op::kReshape, {Input(b, "x", F32({4, 6}))}, {}, {F32({24})});
  EXPECT_THAT(StrategiesOf(b, Space({{"t", 2}})),
              ElementsAre("[-,-] -> [-]", "[t,-] -> [t]", "[-,-]+t -> [-]+t"));
}

TEST(NodeStrategies, ASplitVocabularyIsReducedInside) {
  ir::Builder b("g");
  const ValueId labels =
      b.AddOne(Op::kInput, {}, {{"name", std::string("l")}}, {{ir::DType::kI32, {4}}});
  b.Add(Op::kCrossEntropy, {Input(b, "x", F32({4, 8})), labels});
  EXPECT_THAT(StrategiesOf(b, Space({{"t", 2}})),
              ElementsAre("[-,-] [-] -> [] [] [-]", "[t,-] [t] -> []+t []+t [t]",
                          "[-,t] [-] -> [] [] [-] vocabulary"));
}

TEST(NodeStrategies, ExtendAFixedBaseBehindItsAxes) {
  ir::Builder b("g");
  b.AddOne(Op::kGelu, {Input(b, "x", F32({8, 3}))});
  StrategySpace space{{{{"micro", 4}, {"data", 2}}, {}}, {"data"}};
  const ir::Node& node = b.graph().nodes.back();
  planner::NodeStrategy base = Whole(b.graph(), node);
  base.operands[0].dims[0] = base.results[0].dims[0] = {"micro"};
  std::vector<std::string> found;
  for (const auto& s : NodeStrategies(b.graph(), node, base, space)) found.push_back(Short(s));
  EXPECT_THAT(found, ElementsAre("[m,-] -> [m,-]", "[md,-] -> [md,-]"));
  // Eight rows in four microbatches do not go into four blocks each.
  space.mesh.axes[1].size = 4;
  EXPECT_EQ(NodeStrategies(b.graph(), node, base, space).size(), 1u);
}

TEST(NodeStrategies, FeedsAreSplitByRows) {
  ir::Builder b("g");
  b.AddOne(Op::kFeed, {}, {{"source", std::string("tokens")}}, {{ir::DType::kI32, {4, 8}}});
  EXPECT_THAT(StrategiesOf(b, Space({{"t", 2}})), ElementsAre("-> [-,-]", "-> [t,-]"));
}

TEST(StorageShardings, AreAllSplitsThatDivide) {
  const auto all = StorageShardings(F32({4, 3}), Space({{"a", 2}, {"b", 2}}));
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0], Sharding::Replicated(2));
  EXPECT_THAT(all, Contains(Sharding{{{"a", "b"}, {}}, {}}));
}

}  // namespace
}  // namespace meshwright::search
