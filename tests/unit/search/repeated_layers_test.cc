#include "search/short_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

Staged GptStep(int layers, bool tied) {
  models::Gpt2Config config;
  config.vocabulary = 64;
  config.positions = 8;
  config.width = 16;
  config.heads = 4;
  config.layers = layers;
  config.tied = tied;
  const auto loss = Gpt2Loss(config, 2, 8);
  EXPECT_TRUE(loss.has_value()) << loss.error();
  auto staged = StepOf(*loss);
  EXPECT_TRUE(staged.has_value()) << staged.error();
  return *std::move(staged);
}

size_t Distinct(const std::vector<int>& first) {
  return std::set<int>(first.begin(), first.end()).size();
}

// Layer 0 has the embedding and the last one the head; all between are one.
TEST(RepeatedNodes, InnerLayersOfAModelAreOneWithTheirUpdate) {
  for (const bool tied : {false, true}) {
    const Staged small = GptStep(3, tied);
    const Staged large = GptStep(9, tied);
    const std::vector<int> first = RepeatedNodes(large.graph);
    EXPECT_EQ(Distinct(first), Distinct(RepeatedNodes(small.graph)));
    EXPECT_LT(Distinct(first), large.graph.nodes.size() / 2);
  }
}

TEST(RepeatedNodes, EqualNodesAreOfAKind) {
  const ir::Graph graph = GptStep(6, true).graph;
  const std::vector<int> first = RepeatedNodes(graph);
  for (size_t i = 0; i < first.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    const ir::Node& other = graph.nodes[static_cast<size_t>(first[i])];
    EXPECT_EQ(first[static_cast<size_t>(first[i])], first[i]);
    EXPECT_EQ(node.op, other.op);
    EXPECT_EQ(node.phase, other.phase);
    ASSERT_EQ(node.outputs.size(), other.outputs.size());
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      EXPECT_EQ(graph.type(node.outputs[r]), graph.type(other.outputs[r]));
    }
    // State follows its weight: weights of two layers that are one have one state.
    if (node.op != ir::Op::kAdamW) continue;
    for (size_t o = 0; o < 4; ++o) {
      const auto producer = [&](ValueId v) { return graph.value(v).producer.index(); };
      EXPECT_EQ(first[producer(node.inputs[o])], first[producer(other.inputs[o])]);
    }
  }
}

// A wider layer, or one wired otherwise, is another layer.
TEST(RepeatedNodes, DifferentLayersStayApart) {
  ir::Builder b("g");
  ValueId x =
      b.AddOne(ir::Op::kFeed, {}, {{"source", std::string("t")}}, {{ir::DType::kI32, {2, 4}}});
  const ValueId table = b.AddOne(ir::Op::kRandomNormal, {}, {{"name", std::string("n")}},
                                 {{ir::DType::kF32, {4, 8}}});
  x = b.AddOne(ir::Op::kEmbedding, {table, x});
  std::vector<size_t> gelus;
  for (int layer = 0; layer < 3; ++layer) {
    b.SetLayer(layer);
    const ValueId y = b.AddOne(ir::Op::kGelu, {x});
    gelus.push_back(b.graph().nodes.size() - 1);
    // The last layer adds its own result to itself.
    x = b.AddOne(ir::Op::kAdd, {y, layer == 2 ? y : x});
  }
  const auto graph = b.Finish();
  ASSERT_TRUE(graph.has_value()) << graph.error();
  const std::vector<int> first = RepeatedNodes(*graph);
  EXPECT_EQ(first[gelus[1]], first[gelus[0]]);
  EXPECT_NE(first[gelus[2]], first[gelus[0]]);
}

}  // namespace
}  // namespace meshwright::search
