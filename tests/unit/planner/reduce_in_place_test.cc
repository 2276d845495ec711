// Buckets of reductions: what is made first is reduced first.
#include "planner/reduce_in_place.h"

#include <gmock/gmock.h>

#include "ir/text.h"

namespace meshwright::planner {
namespace {

using ::testing::ElementsAre;

// Three gradients in the order of their weights, as the update reads them.
ir::Graph UpdateGraph() {
  auto graph = ir::ParseGraph(R"(graph "u0" {
    %0 = input {name="embedding"} : f32[4]
    %1 = input {name="middle"} : f32[4]
    %2 = input {name="head"} : f32[4]
    %3 = all_reduce(%0) {axes=["data"], kind="sum"} : f32[4]
    %4 = add(%3, %3) : f32[4]
    %5 = all_reduce(%1) {axes=["data"], kind="sum"} : f32[4]
    %6 = add(%5, %4) : f32[4]
    %7 = all_reduce(%2) {axes=["data"], kind="sum"} : f32[4]
    %8 = add(%7, %6) : f32[4]
    output "y" %8
  })");
  EXPECT_TRUE(graph.has_value()) << graph.error();
  return *std::move(graph);
}

// Per all_reduce in order, the names of what it reduces.
std::vector<std::vector<std::string>> Reduced(const ir::Graph& graph) {
  std::vector<std::vector<std::string>> buckets;
  for (const NodeId id : graph.NodesOf(ir::Op::kAllReduce)) {
    std::vector<std::string>& names = buckets.emplace_back();
    for (const ValueId input : graph.node(id).inputs) {
      names.push_back(graph.producer(input).attrs.Str("name"));
    }
  }
  return buckets;
}

TEST(CoalesceAllReduces, BucketsComeInTheOrderInWhichGradientsAreMade) {
  const std::vector<int64_t> made = {30, 20, 10};
  const auto each = CoalesceAllReduces(UpdateGraph(), 16, made);
  ASSERT_TRUE(each.has_value()) << each.error();
  EXPECT_THAT(Reduced(*each),
              ElementsAre(ElementsAre("head"), ElementsAre("middle"), ElementsAre("embedding")));
  const auto pairs = CoalesceAllReduces(UpdateGraph(), 32, made);
  ASSERT_TRUE(pairs.has_value()) << pairs.error();
  EXPECT_THAT(Reduced(*pairs),
              ElementsAre(ElementsAre("middle", "head"), ElementsAre("embedding")));
  for (const ir::Node& node : pairs->nodes) {
    if (node.op == ir::Op::kInput) continue;
    EXPECT_EQ(node.op, ir::Op::kAllReduce) << "reductions come before what reads them";
    break;
  }
}

TEST(CoalesceAllReduces, OfEqualAgeTheyStayInTheirOrder) {
  const auto each = CoalesceAllReduces(UpdateGraph(), 16);
  ASSERT_TRUE(each.has_value()) << each.error();
  EXPECT_THAT(Reduced(*each),
              ElementsAre(ElementsAre("embedding"), ElementsAre("middle"), ElementsAre("head")));
}

}  // namespace
}  // namespace meshwright::planner
