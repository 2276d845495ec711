// LoRA as a rewrite: what the graph is, what is refused, and that a model with B = 0 is the model.
#include "ir/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/autodiff.h"
#include "ir/builder.h"
#include "ir/param_groups.h"
#include "ir/schema.h"
#include "ir/verify.h"

namespace meshwright::ir {
namespace {

using ::testing::HasSubstr;

ValueId WeightOf(Builder& b, const std::string& name, Dims dims, Attrs more = {}) {
  Attrs attrs = {{"name", name}, {"init", std::string("ones")}, {"decay", int64_t{1}}};
  for (const auto& [key, value] : more.values()) attrs.Set(key, value);
  return b.AddOne(Op::kParam, {}, std::move(attrs), {TensorType{DType::kF32, std::move(dims)}});
}

ValueId Product(Builder& b, const char* equation, ValueId x, ValueId w) {
  return b.AddOne(Op::kEinsum, {x, w}, {{"equation", std::string(equation)}});
}

// Embedding, a projection to heads (file [out, in]), one back (file [out, in]), a tied head.
Graph SmallModel() {
  Builder b("small");
  const ValueId tokens = b.AddOne(Op::kFeed, {}, {{"source", std::string("tokens")}},
                                  {TensorType{DType::kI32, {2, 3}}});
  const ValueId table = WeightOf(b, "embed.weight", {7, 6});
  const ValueId x = b.AddOne(Op::kEmbedding, {table, tokens});
  b.SetLayer(0);
  const ValueId q = Product(b, "bsd,dhe->bshe", x,
                            WeightOf(b, "layers.0.q_proj.weight", {6, 2, 4},
                                     {{"export_perm", std::vector<int64_t>{1, 2, 0}},
                                      {"export_shape", std::vector<int64_t>{8, 6}}}));
  const ValueId o = Product(b, "bshe,hed->bsd", q,
                            WeightOf(b, "layers.0.o_proj.weight", {2, 4, 6},
                                     {{"export_perm", std::vector<int64_t>{2, 0, 1}},
                                      {"export_shape", std::vector<int64_t>{6, 8}}}));
  const ValueId logits = Product(b, "bsd,vd->bsv", o, table);
  const std::vector<ValueId> loss = b.Add(Op::kCrossEntropy, {logits, tokens});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  return *b.Finish();
}

LoraSpec Rank(int64_t rank, std::vector<std::string> targets) {
  LoraSpec spec;
  spec.rank = rank;
  spec.alpha = 8;
  spec.target_modules = std::move(targets);
  return spec;
}

const Node* ParamCalled(const Graph& graph, const std::string& name) {
  for (const NodeId id : graph.NodesOf(Op::kParam)) {
    if (graph.node(id).attrs.Str("name") == name) return &graph.node(id);
  }
  return nullptr;
}

TEST(Adapters, HaveTheDimsOfTheirWeightAndPeftsFiles) {
  const auto graph = WithAdapters(SmallModel(), Rank(3, {"q_proj", "o_proj"}));
  ASSERT_TRUE(graph) << graph.error();
  EXPECT_TRUE(VerifyLossGraph(*graph).ok());
  struct Expected {
    const char* name;
    Dims dims;
    std::vector<int64_t> perm;
    Dims shape;
    std::vector<int64_t> beside;
  };
  const Expected all[] = {
      {"layers.0.q_proj.lora_A.weight", {6, 3}, {1, 0}, {3, 6}, {0, -1}},
      {"layers.0.q_proj.lora_B.weight", {3, 2, 4}, {1, 2, 0}, {8, 3}, {-1, 1, 2}},
      {"layers.0.o_proj.lora_A.weight", {2, 4, 3}, {2, 0, 1}, {3, 8}, {0, 1, -1}},
      {"layers.0.o_proj.lora_B.weight", {3, 6}, {1, 0}, {6, 3}, {-1, 2}},
  };
  for (const Expected& expected : all) {
    const Node* param = ParamCalled(*graph, expected.name);
    ASSERT_NE(param, nullptr) << expected.name;
    EXPECT_EQ(graph->type(param->outputs[0]).dims, expected.dims) << expected.name;
    EXPECT_EQ(param->attrs.Ints("export_perm"), expected.perm) << expected.name;
    EXPECT_EQ(param->attrs.Ints("export_shape"), expected.shape) << expected.name;
    EXPECT_EQ(param->attrs.Ints(kBesideDimsAttr), expected.beside) << expected.name;
    EXPECT_EQ(param->attrs.Str("export_name"), "base_model.model." + std::string(expected.name));
    EXPECT_FALSE(IsFrozen(*param));
  }
  EXPECT_TRUE(IsFrozen(*ParamCalled(*graph, "layers.0.q_proj.weight")));
  EXPECT_TRUE(IsFrozen(*ParamCalled(*graph, "embed.weight")));
  EXPECT_EQ(CountTrained(*graph).trained, 3 * (6 + 8 + 8 + 6));
}

TEST(Adapters, OnlyTheyAreTrained) {
  const auto graph = WithAdapters(SmallModel(), Rank(2, {"q_proj"}));
  ASSERT_TRUE(graph) << graph.error();
  const auto gradients = Differentiate(*graph);
  ASSERT_TRUE(gradients) << gradients.error();
  size_t of_params = 0;
  for (const NamedValue& output : gradients->outputs) {
    of_params += output.name.starts_with("grad/") ? 1u : 0u;
  }
  EXPECT_EQ(of_params, 2u);
  EXPECT_EQ(gradients->NodesOf(Op::kEmbeddingGrad).size(), 0u) << "nothing below is trained";
}

TEST(Adapters, ScaleIsAlphaOverTheRankOrItsRoot) {
  LoraSpec spec = Rank(4, {"q_proj"});
  EXPECT_EQ(spec.scale(), 2);
  spec.rank_stabilized = true;
  EXPECT_EQ(spec.scale(), 4);
}

TEST(Adapters, AllLinearLeavesTheHeadOut) {
  Graph model = SmallModel();
  const auto graph = WithAdapters(model, Rank(2, {kAllLinear}));
  ASSERT_TRUE(graph) << graph.error();
  EXPECT_NE(ParamCalled(*graph, "layers.0.q_proj.lora_A.weight"), nullptr);
  EXPECT_NE(ParamCalled(*graph, "layers.0.o_proj.lora_A.weight"), nullptr);
  EXPECT_EQ(ParamCalled(*graph, "embed.lora_A.weight"), nullptr);
}

TEST(Adapters, DropoutIsOfTheirInputAlone) {
  LoraSpec spec = Rank(2, {"q_proj"});
  spec.dropout = 0.25;
  const auto graph = WithAdapters(SmallModel(), spec);
  ASSERT_TRUE(graph) << graph.error();
  ASSERT_EQ(graph->NodesOf(Op::kDropout).size(), 1u);
  const Node& dropout = graph->node(graph->NodesOf(Op::kDropout)[0]);
  EXPECT_EQ(graph->Users()[dropout.outputs[0]].size(), 1u);
}

TEST(Adapters, ModulesToSaveAreTrainedAsAWhole) {
  LoraSpec spec = Rank(2, {"q_proj"});
  spec.modules_to_save = {"embed"};
  const auto graph = WithAdapters(SmallModel(), spec);
  ASSERT_TRUE(graph) << graph.error();
  const Node* table = ParamCalled(*graph, "embed.weight");
  EXPECT_FALSE(IsFrozen(*table));
  EXPECT_EQ(table->attrs.Int(kSavedAttr), 1);
}

TEST(Adapters, WhatCannotBeATargetIsRefusedByName) {
  const auto error = [](LoraSpec spec) {
    const auto graph = WithAdapters(SmallModel(), spec);
    return graph ? "" : graph.error().message();
  };
  EXPECT_THAT(error(Rank(2, {"k_proj"})), HasSubstr("no module fits the target 'k_proj'; the model "
                                                    "has o_proj, q_proj"));
  EXPECT_THAT(error(Rank(2, {"embed"})), HasSubstr("embedding reads its weight"));
  EXPECT_THAT(error(Rank(0, {"q_proj"})), HasSubstr("rank is 0"));
  EXPECT_THAT(error(Rank(2, {})), HasSubstr("target_modules is empty"));
  LoraSpec both = Rank(2, {"q_proj"});
  both.modules_to_save = {"q_proj"};
  EXPECT_THAT(error(both), HasSubstr("a target and a module to save"));
  LoraSpec dropout = Rank(2, {"q_proj"});
  dropout.dropout = 1;
  EXPECT_THAT(error(dropout), HasSubstr("dropout is 1"));
}

TEST(Adapters, AMatrixPerExpertIsRefused) {
  Builder b("experts");
  const ValueId x =
      b.AddOne(Op::kFeed, {}, {{"source", std::string("x")}}, {TensorType{DType::kF32, {2, 4, 3}}});
  const ValueId y = Product(b, "bed,edf->bef", x, WeightOf(b, "experts.up.weight", {4, 3, 5}));
  b.SetOutput("loss_sum", b.AddOne(Op::kSumSquares, {y}));
  b.SetOutput("count",
              b.AddOne(Op::kConstant, {}, {{"value", 1.0}}, {TensorType{DType::kF32, {}}}));
  const auto graph = WithAdapters(*b.Finish(), Rank(2, {"up"}));
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message(), HasSubstr("no single matrix"));
}

}  // namespace
}  // namespace meshwright::ir
