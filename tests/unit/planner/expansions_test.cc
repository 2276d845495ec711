#include "planner/expansions.h"

#include <gtest/gtest.h>

#include <string>

#include "ir/builder.h"
#include "planner/strategy.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::DType;
using ir::Op;
using mesh::Sharding;

Sharding Columns(int rank) {
  Sharding sharding = Sharding::Replicated(rank);
  sharding.dims.back() = {"tensor"};
  return sharding;
}

// The sums of a norm, or of its gradient, whose last dim is split.
InnerSums SumsOfNorm(Op op) {
  const bool has_mean = op == Op::kLayerNorm || op == Op::kLayerNormGrad;
  const bool gradient = op == Op::kLayerNormGrad || op == Op::kRmsNormGrad;
  Builder b("norm");
  const auto input = [&](const std::string& name, ir::Dims dims) {
    return b.AddOne(Op::kInput, {}, {{"name", name}}, {{DType::kF32, std::move(dims)}});
  };
  std::vector<ValueId> inputs = {input("x", {4, 8}), input("w", {8})};
  NodeStrategy strategy{
      .operands = {Columns(2), Columns(1)}, .results = {}, .expansion = Expansion::kSplitWidth};
  const auto add = [&](const std::string& name, ir::Dims dims) {
    strategy.operands.push_back(dims == ir::Dims{4} ? Sharding::Replicated(1)
                                                    : Columns(static_cast<int>(dims.size())));
    inputs.push_back(input(name, std::move(dims)));
  };
  if (op == Op::kLayerNorm) add("b", {8});
  if (gradient) add("rstd", {4});
  if (op == Op::kLayerNormGrad) add("mean", {4});
  if (gradient) add("dy", {4, 8});
  b.Add(op, inputs, {{"eps", 1e-5}});
  const ir::Graph graph = b.Finish().value();
  const ir::Node& node = graph.nodes.back();
  for (const ValueId output : node.outputs) {
    const int rank = graph.type(output).rank();
    const bool rows = !gradient && output != node.outputs[0];
    strategy.results.push_back(rows ? Sharding::Replicated(rank) : Columns(rank));
  }
  InnerSums sums = InnerSumsOf(node, strategy);
  EXPECT_EQ(graph.type(sums.like), (ir::TensorType{DType::kF32, {4}}));
  EXPECT_EQ(sums.sharding, Sharding::Replicated(1));
  EXPECT_EQ(sums.axes, mesh::AxisList{"tensor"});
  EXPECT_EQ(sums.count, has_mean ? 2 : 1);
  return sums;
}

TEST(Expansions, ANormSumsUpItsStatistics) {
  for (const Op op : {Op::kLayerNorm, Op::kRmsNorm, Op::kLayerNormGrad, Op::kRmsNormGrad}) {
    SCOPED_TRACE(ir::OpName(op));
    SumsOfNorm(op);
  }
}

TEST(Expansions, AMeshWithoutTheAxisHasNone) {
  NodeStrategy strategy{
      .operands = {Columns(2)}, .results = {}, .expansion = Expansion::kSplitWidth};
  EXPECT_EQ(OnMesh(strategy), Expansion::kSplitWidth);
  strategy.operands[0] = Sharding::Replicated(2);
  EXPECT_EQ(OnMesh(strategy), Expansion::kNone);
}

}  // namespace
}  // namespace meshwright::planner
