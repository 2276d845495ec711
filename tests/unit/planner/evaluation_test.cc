#include "planner/evaluation.h"

#include <gtest/gtest.h>

#include "ir/builder.h"

namespace meshwright::planner {
namespace {

using ir::Op;

// x + noise, and its sum.
ir::Graph NoisyGraph(bool only_in_training) {
  ir::Builder builder("noisy");
  const ValueId x = builder.AddOne(Op::kParam, {}, {{"name", std::string("x")}},
                                   {ir::TensorType{ir::DType::kF32, {4}}});
  ir::Attrs attrs = {{"name", std::string("x.noise")}, {"kind", std::string("normal")}};
  if (only_in_training) attrs.Set("training", int64_t{1});
  const ValueId noisy = builder.AddOne(Op::kAdd, {x, builder.AddOne(Op::kNoise, {x}, attrs)});
  builder.SetOutput("y",
                    builder.AddOne(Op::kReduceSum, {noisy}, {{"dims", std::vector{int64_t{0}}}}));
  auto graph = builder.Finish();
  EXPECT_TRUE(graph.has_value()) << graph.error();
  return *std::move(graph);
}

TEST(ForwardGraph, HasNoNoiseThatIsOfTrainingOnly) {
  const auto kept = MakeForwardGraph(NoisyGraph(false), nullptr);
  ASSERT_TRUE(kept.has_value()) << kept.error();
  EXPECT_EQ(kept->NodesOf(Op::kNoise).size(), 1u);
  const auto silent = MakeForwardGraph(NoisyGraph(true), nullptr);
  ASSERT_TRUE(silent.has_value()) << silent.error();
  EXPECT_TRUE(silent->NodesOf(Op::kNoise).empty());
  ASSERT_EQ(silent->NodesOf(Op::kScale).size(), 1u);
  EXPECT_EQ(silent->node(silent->NodesOf(Op::kScale)[0]).attrs.Real("factor"), 0);
}

}  // namespace
}  // namespace meshwright::planner
